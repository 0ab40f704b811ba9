// The changes of a CacheCase, made to a cache and to plain tensors.
#include <saccade/decode.h>
#include <saccade/quantize.h>
#include <saccade/rope.h>

#include <algorithm>
#include <limits>
#include <stdexcept>
#include <utility>

#include "cases/bits.h"
#include "cases/caches/cache_case.h"
#include "cases/random.h"

namespace saccade::cases {
namespace {

std::int64_t share_of(std::int64_t length, double share) {
  return std::min(length, static_cast<std::int64_t>(share * static_cast<double>(length + 1)));
}

Tensor drawn(DType dtype, const Shape& shape, double scale, Random& random) {
  Tensor numbers(dtype, shape);
  draw_numbers(numbers, scale, random);
  return numbers;
}

/// Plain tensors of a quantized or any other type with the tokens of all sequences, [batch, heads, longest, dim].
struct PlainTensors {
  ScatteredTensor numbers;
  Tensor scale, multipliers;
  Tensor held;  // f32: what attention reads, transformed back

  PlainTensors(const Tensor& rows, DType dtype, const Rope* rope, bool is_rotated) {
    Tensor given = rows;  // rounded once, to the cache's type
    const DType rounded = is_quantized(dtype) ? DType::f32 : dtype;
    if (rope) {
      given = Tensor(rounded, rows.shape());
      rope->rotate(Tensor::copy_of(rows, rounded == DType::f64 ? DType::f64 : DType::f32), given);
    }
    given = Tensor::copy_of(given, rounded);
    if (!is_quantized(dtype)) {
      numbers = plain(given);
      held = Tensor::copy_of(given, DType::f32);
      return;
    }
    const QuantizedTensor quantized = quantize(is_rotated ? hadamard(given) : given, dtype);
    if (dtype == DType::i4)
      numbers = ScatteredTensor(quantized);
    else
      numbers = plain(quantized.numbers);
    scale = quantized.scale;
    multipliers = quantized.multipliers;
    held = dequantize(quantized);
    if (is_rotated) held = hadamard(held);
  }

  static ScatteredTensor plain(const Tensor& tensor) {
    ScatteredTensor result(tensor.dtype(), tensor.shape(), {0, 1, 2}, 0);
    copy(tensor, result.view());
    return result;
  }
};

}  // namespace

class CacheCase::Replay {
 public:
  explicit Replay(const CacheCase& drawn) : c_(drawn), cache_(drawn.cache_), starts_(sequences()) {
    for (std::size_t i = 0; i < sequences(); ++i) {
      k_.emplace_back(c_.cache_.num_kv_heads, c_.cache_.head_dim);
      v_.emplace_back(c_.cache_.num_kv_heads, c_.cache_.head_dim_v);
    }
  }

  std::vector<Finding> run() {
    for (const CacheStep& step : c_.steps_) change(step);
    check_lengths();
    const KvCacheOptions& o = cache_.config();
    const bool rotates_k = *o.rotate && is_quantized(o.dtype), rotates_v = *o.rotate && *o.dtype_v == DType::i4;
    const PlainTensors k(all_rows(k_), o.dtype, o.rope ? &*o.rope : nullptr, rotates_k);
    const PlainTensors v(all_rows(v_), *o.dtype_v, nullptr, rotates_v);
    findings_.push_back({"keys of a KvCache", compare_held(cache_.dequantize_k(), k.held)});
    findings_.push_back({"values of a KvCache", compare_held(cache_.dequantize_v(), v.held)});
    AttentionCase call = plain_call(k, v);
    call.options.k_rotated = rotates_k;
    call.options.v_rotated = rotates_v;
    attend(call);
    return std::move(findings_);
  }

 private:
  /// Keys or values of one sequence, [heads, tokens, dim], as they were given to the cache.
  class TokenRows {
   public:
    TokenRows(std::int64_t heads, std::int64_t dim) : rows_(DType::f64, {heads, 0, dim}) {}

    std::int64_t count() const { return rows_.shape(1); }
    TensorView view() const { return rows_; }

    void add(const TensorView& more) {
      Tensor all(DType::f64, {rows_.shape(0), count() + more.shape[1], rows_.shape(2)});
      copy(rows_, all.mutable_view().slice(1, 0, count()));
      copy(more, all.mutable_view().slice(1, count(), all.shape(1)));
      rows_ = std::move(all);
    }
    void keep(std::int64_t count) { rows_ = Tensor::copy_of(rows_.view().slice(1, 0, count)); }

   private:
    Tensor rows_;
  };

  std::size_t sequences() const { return static_cast<std::size_t>(c_.cache_.batch); }
  static std::size_t at(std::int64_t sequence) { return static_cast<std::size_t>(sequence); }

  // ---- Changes

  void change(const CacheStep& step) {
    const std::size_t to = at(step.sequence);
    switch (step.kind) {
      case CacheStep::Kind::append_to_all:
        return append_to_all(step);
      case CacheStep::Kind::append:
        return append(step);
      case CacheStep::Kind::truncate:
        return truncate(step);
      case CacheStep::Kind::clear:
        cache_.clear(step.sequence);
        return keep(to, 0);
      case CacheStep::Kind::share_prefix:
        return share_prefix(step);
      case CacheStep::Kind::set_start:
        starts_[to] = share_of(k_[to].count(), step.share);
        return cache_.set_start(step.sequence, starts_[to]);
      case CacheStep::Kind::restore:
        cache_ = KvCache::from_state(cache_.state());
        return;
    }
  }

  void append_to_all(const CacheStep& step) {
    Random random(step.seed);
    const KvCacheOptions& o = c_.cache_;
    const DType dtype = o.dtype == DType::f64 ? DType::f64 : DType::f32;
    const Tensor k = drawn(dtype, {o.batch, o.num_kv_heads, step.count, o.head_dim}, step.scale, random);
    const Tensor v = drawn(dtype, {o.batch, o.num_kv_heads, step.count, o.head_dim_v}, step.scale, random);
    if (step.layout == Layout::bhsd)
      cache_.append(k, v);
    else
      cache_.append(Tensor::copy_of(k.view().transposed(1, 2)), v.view().transposed(1, 2), Layout::bshd);
    for (std::int64_t i = 0; i < o.batch; ++i) {
      k_[at(i)].add(k.view().select(0, i));
      v_[at(i)].add(v.view().select(0, i));
    }
  }

  void append(const CacheStep& step) {
    Random random(step.seed);
    const KvCacheOptions& o = c_.cache_;
    const DType dtype = o.dtype == DType::f64 ? DType::f64 : DType::f32;
    const Tensor k = drawn(dtype, {o.num_kv_heads, step.count, o.head_dim}, step.scale, random);
    const Tensor v = drawn(dtype, {o.num_kv_heads, step.count, o.head_dim_v}, step.scale, random);
    if (step.layout == Layout::bhsd)
      cache_.append(step.sequence, k, v);
    else
      cache_.append(step.sequence, k.view().transposed(0, 1), Tensor::copy_of(v.view().transposed(0, 1)),
                    Layout::bshd);
    k_[at(step.sequence)].add(k);
    v_[at(step.sequence)].add(v);
  }

  /// Whether a cache with a window did not refuse, because it has dropped keys that would be seen again.
  template <class Change>
  bool did(const Change& change) const {
    if (c_.cache_.window < 0) return change(), true;
    try {
      change();
    } catch (const std::invalid_argument&) {
      return false;
    }
    return true;
  }

  void truncate(const CacheStep& step) {
    const std::int64_t length = share_of(k_[at(step.sequence)].count(), step.share);
    if (did([&] { cache_.truncate(step.sequence, length); })) keep(at(step.sequence), length);
  }

  void share_prefix(const CacheStep& step) {
    const std::size_t from = at(step.from), to = at(step.sequence);
    const std::int64_t length = share_of(k_[from].count(), step.share);
    if (!did([&] { cache_.share_prefix(step.from, step.sequence, length); })) return;
    k_[to] = TokenRows(k_[from]);
    v_[to] = TokenRows(v_[from]);
    starts_[to] = starts_[from];
    keep(to, length);
  }

  void keep(std::size_t sequence, std::int64_t length) {
    k_[sequence].keep(length);
    v_[sequence].keep(length);
    starts_[sequence] = std::min(starts_[sequence], length);
  }

  // ---- What it holds

  void check_lengths() const {
    for (std::size_t i = 0; i < sequences(); ++i) {
      const auto sequence = static_cast<std::int64_t>(i);
      if (cache_.length(sequence) == k_[i].count() && cache_.start(sequence) == starts_[i]) continue;
      throw std::runtime_error("sequence " + std::to_string(i) + " of a KvCache has " +
                               std::to_string(cache_.length(sequence)) + " tokens, seen from " +
                               std::to_string(cache_.start(sequence)) + " on, not " +
                               std::to_string(k_[i].count()) + " from " + std::to_string(starts_[i]) + " on");
    }
  }

  std::int64_t longest() const {
    std::int64_t most = 0;
    for (const TokenRows& rows : k_) most = std::max(most, rows.count());
    return most;
  }

  Tensor all_rows(const std::vector<TokenRows>& of) const {
    Tensor all(DType::f64, {c_.cache_.batch, of[0].view().shape[0], longest(), of[0].view().shape[2]});
    for (std::size_t i = 0; i < of.size(); ++i)
      copy(of[i].view(), all.mutable_view().select(0, static_cast<std::int64_t>(i)).slice(1, 0, of[i].count()));
    return all;
  }

  /// What the cache still holds of each sequence.
  Comparison compare_held(const Tensor& cached, const Tensor& wanted) const {
    Tensor out(DType::f32, wanted.shape()), kept(DType::f32, wanted.shape());
    for (std::int64_t i = 0; i < c_.cache_.batch; ++i) {
      const std::int64_t first = cache_.first_kept(i), end = cache_.length(i);
      const std::int64_t before = c_.cache_.page_size > 0 ? 0 : first;  // index 0 is this position
      copy(cached.view().select(0, i).slice(1, first - before, end - before),
           out.mutable_view().select(0, i).slice(1, first, end));
      copy(wanted.view().select(0, i).slice(1, first, end), kept.mutable_view().select(0, i).slice(1, first, end));
    }
    return compare_bits(out, kept);
  }

  // ---- Attention

  AttentionCase plain_call(const PlainTensors& k, const PlainTensors& v) const {
    const KvCacheOptions& o = c_.cache_;
    AttentionCase call;
    call.options = c_.call_;
    Random random(c_.q_seed_);
    call.q = PlainTensors::plain(drawn(c_.q_type_, {o.batch, c_.heads_, c_.rows_, o.head_dim}, 1.0, random));
    call.k = k.numbers;
    call.v = v.numbers;
    call.o = ScatteredTensor(c_.o_type_, {o.batch, c_.heads_, c_.rows_, o.head_dim_v}, {0, 1, 2}, 0);
    call.lse = Tensor(c_.q_type_ == DType::f64 ? DType::f64 : DType::f32, {o.batch, c_.heads_, c_.rows_});
    call.options.lse = call.lse;
    call.scales = {k.scale, v.scale, k.multipliers, v.multipliers};
    TensorView* const views[] = {&call.options.k_scale, &call.options.v_scale, &call.options.k_multipliers,
                                 &call.options.v_multipliers};
    for (std::size_t i = 0; i < call.scales.size(); ++i)
      if (call.scales[i].rank() > 0) *views[i] = call.scales[i];
    call.kv_lengths = call.kv_starts = Tensor(DType::i64, {o.batch});
    for (std::size_t i = 0; i < sequences(); ++i) {
      call.kv_lengths.values<std::int64_t>()[i] = k_[i].count();
      call.kv_starts.values<std::int64_t>()[i] = starts_[i];
    }
    call.options.kv_lengths = call.kv_lengths;
    call.options.kv_starts = call.kv_starts;
    call.options.window_left = o.window;
    if (o.causal) call.options.causal = Causal::bottom_right;
    return call;
  }

  /// The results of the last call.
  struct Results {
    Tensor o, lse;
  };
  static Results results_of(const AttentionCase& call) { return {Tensor::copy_of(call.o.view()), call.lse}; }
  /// Also clears them, so that a call that writes nothing is noticed.
  static Results take_results(AttentionCase& call) {
    Results results = results_of(call);
    call.o.clear();
    fill(call.lse, std::numeric_limits<double>::quiet_NaN());
    return results;
  }

  void attend(AttentionCase& call) {
    CheckedCase checked(call);
    AttentionOptions of_call = c_.call_;
    of_call.lse = call.lse;
    const TensorView q = std::as_const(call.q).view(), k = std::as_const(call.k).view(),
                     v = std::as_const(call.v).view();
    attention(q, k, v, call.o.view(), call.options);
    const Results plain = take_results(call);
    attention(q, cache_, call.o.view(), of_call);
    add(call, plain, checked, "attention");
    if (c_.rows_ > 8) return;
    decode(q, k, v, call.o.view(), call.options);
    const Results plain_decode = take_results(call);
    decode(q, cache_, call.o.view(), of_call);
    add(call, plain_decode, checked, "decode");
  }

  void add(const AttentionCase& call, const Results& plain, CheckedCase& checked, const std::string& function) {
    const Results cached = results_of(call);
    const std::string of = " of " + function + "() over a KvCache";
    findings_.push_back({"bits of o" + of, compare_bits(cached.o, plain.o)});
    findings_.push_back({"bits of lse" + of, compare_bits(cached.lse, plain.lse)});
    for (Finding& finding : checked.compare_last(function)) {
      finding.result += " over a KvCache";
      findings_.push_back(std::move(finding));
    }
  }

  const CacheCase& c_;
  KvCache cache_;
  std::vector<TokenRows> k_, v_;
  std::vector<std::int64_t> starts_;
  std::vector<Finding> findings_;
};

std::vector<Finding> CacheCase::run() const { return Replay(*this).run(); }

}  // namespace saccade::cases
