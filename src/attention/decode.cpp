#include "saccade/decode.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <vector>

#include "attention/arguments.h"
#include "core/check.h"
#include "core/parallel.h"
#include "cpu/kernels.h"

namespace saccade {
namespace {

/// Rows that go together over the pieces of their keys.
struct Unit {
  cpu::DecodeRows rows;
  std::int64_t first_piece = 0, pieces = 0;
  std::size_t states = 0;  // offset of its states, in bytes
};

/// Keys after which the heads of a unit take turns, where they should: a page holds the keys of all heads, and
/// memory wants to be read in order. 0: each head's keys lie together, and are best read alone.
std::int64_t turn_of(const AttentionParams& p, const cpu::DecodePlan& plan) {
  constexpr std::int64_t kShortest = 16;
  if (p.num_kv_heads == 1) return 0;
  if (p.k.head_stride < p.k.row_stride) return kShortest;
  if (p.block_table == nullptr) return 0;
  return std::clamp((p.page_size + kShortest - 1) / kShortest * kShortest, kShortest, plan.piece);
}

/// As many heads as share the second-level cache for their scores, but none at the cost of idle threads.
std::int64_t heads_together(const AttentionParams& p, const cpu::DecodePlan& plan, int threads) {
  constexpr std::int64_t kMostRows = 64;
  const std::int64_t rows = p.seqlen_q * (p.num_heads / p.num_kv_heads);
  std::int64_t pieces = 0;
  for (std::int64_t b = 0; b < p.batch; ++b) {
    const KeyRange keys = readable_keys(p, b);
    if (keys.begin < keys.end) pieces += (keys.end - 1) / plan.piece + 1 - keys.begin / plan.piece;
  }
  std::int64_t heads = p.num_kv_heads;
  while (heads > 1 &&
         (heads * std::min(rows, cpu::kDecodeMostRows) > kMostRows || pieces * (p.num_kv_heads / heads) < threads))
    heads = (heads + 1) / 2;
  return heads;
}

std::vector<Unit> units_of(const AttentionParams& p, const cpu::DecodePlan& plan, int threads) {
  const std::int64_t turn = turn_of(p, plan);
  const std::int64_t together = turn > 0 ? heads_together(p, plan, threads) : 1;
  std::vector<Unit> units;
  std::size_t states = 0;
  for (std::int64_t b = 0; b < p.batch; ++b) {
    const KeyRange keys = readable_keys(p, b);
    const std::int64_t rows = p.rows(b) * (p.num_heads / p.num_kv_heads);
    for (std::int64_t h = 0; h < p.num_kv_heads; h += together) {
      for (std::int64_t first = 0; first < rows; first += cpu::kDecodeMostRows) {
        Unit unit{{.batch = b,
                   .kv_head = h,
                   .kv_heads = std::min(together, p.num_kv_heads - h),
                   .first = first,
                   .count = std::min(cpu::kDecodeMostRows, rows - first),
                   .turn = together > 1 ? turn : plan.piece}};
        if (keys.begin < keys.end) {
          unit.first_piece = keys.begin / plan.piece;
          unit.pieces = (keys.end - 1) / plan.piece + 1 - unit.first_piece;
        }
        unit.states = states;
        states += plan.state * static_cast<std::size_t>(unit.rows.kv_heads * unit.rows.count * unit.pieces);
        units.push_back(unit);
      }
    }
  }
  return units;
}

class Decode {
 public:
  Decode(const cpu::AttentionKernels& kernels, const AttentionParams& params, int threads)
      : kernels_(kernels),
        p_(params),
        plan_(kernels.plan_decode(params)),
        threads_(threads),
        units_(units_of(params, plan_, threads)) {
    for (const Unit& unit : units_) ends_.push_back((ends_.empty() ? 0 : ends_.back()) + unit.pieces);
  }

  void run() const {
    const Workspace states(units_.back().states + bytes_of_states(units_.back(), units_.back().pieces));
    const std::size_t scratch_bytes = plan_.scratch * static_cast<std::size_t>(units_.front().rows.kv_heads);
    parallel_for(threads_for(threads_, ends_.back()), ends_.back(), scratch_bytes,
                 [&](std::int64_t item, std::byte* scratch) {
                   const auto at = static_cast<std::size_t>(std::ranges::upper_bound(ends_, item) - ends_.begin());
                   piece(units_[at], item - (at > 0 ? ends_[at - 1] : 0), false, states.data(), scratch);
                 });
    const Workspace scratch(scratch_bytes);
    for (const Unit& unit : units_) {
      if (merge(unit, states.data(), scratch.data())) continue;
      for (std::int64_t i = 0; i < unit.pieces; ++i) piece(unit, i, true, states.data(), scratch.data());
      merge(unit, states.data(), scratch.data());
    }
  }

 private:
  std::size_t bytes_of_states(const Unit& unit, std::int64_t pieces) const {
    return plan_.state * static_cast<std::size_t>(unit.rows.kv_heads * unit.rows.count * pieces);
  }
  void piece(const Unit& unit, std::int64_t index, bool careful, std::byte* states, std::byte* scratch) const {
    std::byte* const own = states + unit.states + bytes_of_states(unit, index);
    kernels_.decode_piece(p_, unit.rows, unit.first_piece + index, careful, own, scratch);
  }
  bool merge(const Unit& unit, const std::byte* states, std::byte* scratch) const {
    return kernels_.merge_pieces(p_, unit.rows, states + unit.states, unit.first_piece, unit.pieces, scratch);
  }

  const cpu::AttentionKernels& kernels_;
  const AttentionParams& p_;
  cpu::DecodePlan plan_;
  int threads_;
  std::vector<Unit> units_;
  std::vector<std::int64_t> ends_;  // of each unit's pieces, counted through all
};

/// Below some 20 microseconds of reading a second thread costs more than it does.
bool is_worth_threads(const AttentionParams& p) {
  double numbers = 0.0;
  for (std::int64_t b = 0; b < p.batch; ++b) {
    const KeyRange keys = readable_keys(p, b);
    numbers += static_cast<double>(std::max<std::int64_t>(keys.end - keys.begin, 0));
  }
  return numbers * static_cast<double>(p.num_kv_heads) * static_cast<double>(p.head_dim + p.head_dim_v) > 1 << 18;
}

}  // namespace

void decode(const TensorView& q, const TensorView& k, const TensorView& v, const MutableTensorView& o,
            const AttentionOptions& options) {
  const AttentionArguments arguments(q, k, v, o, options, "decode");
  const AttentionParams& p = arguments.params;
  if (p.batch == 0 || p.num_heads == 0 || p.seqlen_q == 0) return;
  const cpu::AttentionKernels& kernels = cpu::active_kernels().attention(p);
  Decode(kernels, p, is_worth_threads(p) ? threads_for(options.num_threads, std::int64_t{1} << 30) : 1).run();
}

Tensor decode(const TensorView& q, const TensorView& k, const TensorView& v, const AttentionOptions& options) {
  Tensor o = output_like("decode", q, v);
  decode(q, k, v, o, options);
  return o;
}

namespace {

/// lse as [batch, heads, seqlen] and o as [batch, heads, seqlen, dim], whatever rank and layout they have.
TensorView in_bhl(const TensorView& view, int missing) {
  TensorView out;
  out.data = view.data;
  out.dtype = view.dtype;
  out.rank = static_cast<std::uint8_t>(view.rank + missing);
  for (int i = 0; i < out.rank; ++i) {
    out.shape[static_cast<std::size_t>(i)] = i < missing ? 1 : view.shape[static_cast<std::size_t>(i - missing)];
    out.strides[static_cast<std::size_t>(i)] =
        i < missing ? 0 : view.strides[static_cast<std::size_t>(i - missing)];
  }
  return out;
}

void check_states(const TensorView& o_a, const TensorView& lse_a, const TensorView& o_b, const TensorView& lse_b,
                  const TensorView& o, const TensorView& lse, Layout layout) {
  constexpr std::string_view kName = "merge_states";
  if (o.rank < 2 || o.rank > 4)
    refuse(kName, "o must have rank 2, 3 or 4, but it has shape ", to_string(o.dims()));
  Shape rows(o.dims().begin(), o.dims().end() - 1);
  if (layout == Layout::blhd && o.rank > 2) std::swap(rows[rows.size() - 1], rows[rows.size() - 2]);
  const auto check = [&](std::string_view name, const TensorView& view, std::span<const std::int64_t> shape) {
    if (!is_floating(view.dtype))
      refuse(kName, name, " must be a floating-point tensor, but it is ", name_of(view.dtype));
    if (!std::ranges::equal(view.dims(), shape))
      refuse(kName, name, " must have shape ", to_string(shape), ", but it has shape ", to_string(view.dims()));
    if (view.data == nullptr && view.size() > 0) refuse(kName, name, " has no data (null pointer)");
  };
  for (const auto& [name, view] : {std::pair{"o_a", &o_a}, {"o_b", &o_b}, {"o", &o}}) check(name, *view, o.dims());
  for (const auto& [name, view] : {std::pair{"lse_a", &lse_a}, {"lse_b", &lse_b}, {"lse", &lse}}) {
    check(name, *view, rows);
    if (view->dtype != DType::f32 && view->dtype != DType::f64)
      refuse(kName, name, " must be f32 or f64, but it is ", name_of(view->dtype));
  }
}

/// A row of any type as doubles.
void read_row(const TensorView& view, std::vector<double>& row) {
  copy(view, MutableTensorView(row.data(), DType::f64, view.dims()));
}

}  // namespace

void merge_states(const TensorView& o_a, const TensorView& lse_a, const TensorView& o_b, const TensorView& lse_b,
                  const MutableTensorView& o, const MutableTensorView& lse, Layout layout) {
  check_states(o_a, lse_a, o_b, lse_b, o, lse, layout);
  const auto bhld = [&](TensorView view) {
    if (layout == Layout::blhd && view.rank > 2) view = view.transposed(-3, -2);
    return in_bhl(view, 4 - view.rank);
  };
  const auto rows_of = [](const TensorView& view) { return in_bhl(view, 3 - view.rank); };
  const TensorView a = bhld(o_a), b = bhld(o_b), out = bhld(o);
  const TensorView m_a = rows_of(lse_a), m_b = rows_of(lse_b), m = rows_of(lse);
  std::vector<double> row_a(static_cast<std::size_t>(out.shape[3])), row_b(row_a.size());
  const auto writable = [](const TensorView& view) {
    return MutableTensorView(const_cast<void*>(view.data), view.dtype, view.dims(),
                             std::span(view.strides).first(view.rank));
  };
  for (std::int64_t batch = 0; batch < out.shape[0]; ++batch) {
    for (std::int64_t head = 0; head < out.shape[1]; ++head) {
      for (std::int64_t i = 0; i < out.shape[2]; ++i) {
        const auto at = [&](const TensorView& view) { return view.select(0, batch).select(0, head).select(0, i); };
        const double x = value_at(m_a, std::array{batch, head, i}), y = value_at(m_b, std::array{batch, head, i});
        const double top = std::max(x, y);
        const bool empty = top == -std::numeric_limits<double>::infinity();
        double total = empty ? top : top + std::log(std::exp(x - top) + std::exp(y - top));
        read_row(at(a), row_a);
        read_row(at(b), row_b);
        const double weight_a = x == -INFINITY ? 0.0 : std::exp(x - total);
        const double weight_b = y == -INFINITY ? 0.0 : std::exp(y - total);
        for (std::size_t d = 0; d < row_a.size(); ++d) {
          const double from_a = weight_a == 0.0 && x == -INFINITY ? 0.0 : weight_a * row_a[d];
          const double from_b = weight_b == 0.0 && y == -INFINITY ? 0.0 : weight_b * row_b[d];
          row_a[d] = from_a + from_b;
        }
        copy(TensorView(row_a.data(), DType::f64, std::array{out.shape[3]}), writable(at(out)));
        copy(TensorView(&total, DType::f64, std::span<const std::int64_t>{}), writable(at(m)));
      }
    }
  }
}

}  // namespace saccade
