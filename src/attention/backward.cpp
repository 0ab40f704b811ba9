#include "saccade/backward.h"

#include <algorithm>
#include <array>
#include <atomic>
#include <cstring>
#include <exception>
#include <span>
#include <vector>

#include "attention/arguments.h"
#include "attention/axes.h"
#include "core/check.h"
#include "core/parallel.h"
#include "cpu/kernels.h"

namespace saccade {
namespace {

constexpr std::string_view kName = "attention_backward";

std::int64_t blocks_of(std::int64_t n, std::int64_t size) { return (n + size - 1) / size; }

// ---- Arguments -----------------------------------------------------------------------------------------------

/// A view with the axes of q, k, v or o.
template <class Void, class View>
HeadedMatrix<Void> matrix_of(std::string_view name, const View& view, std::string_view like_name,
                             std::span<const std::int64_t> like, DType dtype_of_q,
                             const AttentionOptions& options) {
  if (!std::ranges::equal(view.dims(), like))
    refuse(kName, name, " must have the shape of ", like_name, ", ", to_string(like), ", but it has shape ",
           to_string(view.dims()));
  const bool is_arithmetic = view.dtype == DType::f32 || view.dtype == DType::bf16 || view.dtype == DType::f16;
  if (dtype_of_q == DType::f64 ? view.dtype != DType::f64 : !is_arithmetic)
    refuse(kName, name, " must be ", dtype_of_q == DType::f64 ? "f64" : "f32, bf16 or f16", ", but it is ",
           name_of(view.dtype));
  check_memory(kName, name, view);
  const View ordered = as_bhld(view, options.cu_seqlens_q ? Layout::blhd : options.layout);
  return {static_cast<Void*>(const_cast<void*>(view.data)), view.dtype, ordered.strides[0], ordered.strides[1],
          ordered.strides[2]};
}

/// Gradients of something else: `like` is what they belong to.
void check_gradient(std::string_view name, const MutableTensorView& view, std::string_view like_name,
                    const TensorView& like, DType dtype) {
  if (!like) refuse(kName, name, " was given without ", like_name);
  check_dtype(kName, name, view, dtype);
  if (!std::ranges::equal(view.dims(), like.dims()))
    refuse(kName, name, " must have the shape of ", like_name, ", ", to_string(like.dims()), ", but it has shape ",
           to_string(view.dims()));
  if (view.data == nullptr && view.size() > 0) refuse(kName, name, " has no data (null pointer)");
}

AttentionOptions without_outputs(AttentionOptions options, const TensorView& lse) {
  options.lse = MutableTensorView(const_cast<void*>(lse.data), lse.dtype, lse.dims(),
                                  std::span(lse.strides).first(lse.rank));
  options.weights = {};
  options.scores = {};
  return options;
}

class Arguments {
 public:
  Arguments(const TensorView& q, const TensorView& k, const TensorView& v, const AttentionOutcome& outcome,
            const AttentionGradients& gradients, const AttentionOptions& options)
      : forward_(q, k, v, writable(outcome.o), without_outputs(options, outcome.lse), kName) {
    if (options.block_table) refuse(kName, "block_table was given: pages have no gradients");
    if (!outcome.lse) refuse(kName, "lse must be given: attention() writes it");
    params.attention = forward_.params;
    const auto& o = outcome.o;
    params.o = matrix_of<const void>("o", o, "o", o.dims(), q.dtype, options);
    params.dout = matrix_of<const void>("dout", outcome.dout, "o", o.dims(), q.dtype, options);
    params.dq = matrix_of<void>("dq", gradients.dq, "q", q.dims(), q.dtype, options);
    params.dk = matrix_of<void>("dk", gradients.dk, "k", k.dims(), q.dtype, options);
    params.dv = matrix_of<void>("dv", gradients.dv, "v", v.dims(), q.dtype, options);
    params.score_modifier_backward = options.score_modifier_backward;
    const DType dtype = q.dtype == DType::f64 ? DType::f64 : DType::f32;
    if (gradients.dsinks) check_gradient("dsinks", gradients.dsinks, "sinks", options.sinks, dtype);
    if (gradients.dalibi_slopes)
      check_gradient("dalibi_slopes", gradients.dalibi_slopes, "alibi_slopes", options.alibi_slopes, dtype);
    params.wants_dslopes = static_cast<bool>(gradients.dalibi_slopes);
    if (gradients.dmask) add_mask(gradients.dmask, options, dtype);
  }

  BackwardParams params;

 private:
  static MutableTensorView writable(const TensorView& view) {
    return MutableTensorView(const_cast<void*>(view.data), view.dtype, view.dims(),
                             std::span(view.strides).first(view.rank));
  }

  void add_mask(const MutableTensorView& dmask, const AttentionOptions& options, DType dtype) {
    check_gradient("dmask", dmask, "mask", options.mask, dtype);
    if (options.mask.dtype == DType::boolean) refuse(kName, "dmask was given but mask is bool");
    std::int64_t* const strides[4] = {&params.dmask.batch_stride, &params.dmask.head_stride,
                                      &params.dmask.row_stride, &params.dmask.column_stride};
    for (int i = 0; i < dmask.rank; ++i) *strides[4 - dmask.rank + i] = dmask.shape[i] == 1 ? 0 : dmask.strides[i];
    params.dmask_data = dmask.mutable_data();
  }

  AttentionArguments forward_;
};

// ---- Turns ---------------------------------------------------------------------------------------------------

/// Whose turn it is to add to something: sums are made in a fixed order, whatever thread has what to add.
class Turns {
 public:
  explicit Turns(std::int64_t count) : now_(static_cast<std::size_t>(count)) {}

  void wait(std::int64_t index, std::int64_t turn) {
    std::atomic<std::int64_t>& now = now_[static_cast<std::size_t>(index)];
    for (std::int64_t other; (other = now.load(std::memory_order_acquire)) != turn;) now.wait(other);
  }
  void pass(std::int64_t index) {
    std::atomic<std::int64_t>& now = now_[static_cast<std::size_t>(index)];
    now.fetch_add(1, std::memory_order_acq_rel);
    now.notify_all();
  }

 private:
  std::vector<std::atomic<std::int64_t>> now_;
};

// ---- Schedule ------------------------------------------------------------------------------------------------

/// Gradients of rows on their way take so many bytes at a time, or as many as one kv head needs.
constexpr std::size_t kDqBytes = std::size_t{24} << 20;

/// A number everywhere.
void fill(const MutableTensorView& view, double number) {
  const std::array<std::int64_t, kMaxRank> strides{};
  copy(TensorView(&number, DType::f64, view.dims(), std::span(strides).first(view.rank)), view);
}

/// Who adds to the gradients of a mask that is repeated over heads, rows or keys: of those that add to the same
/// place the one whose block of keys, and then head, and then block of rows comes first.
class MaskOrder {
 public:
  MaskOrder(const BackwardParams& b, std::int64_t query_blocks, std::int64_t key_blocks)
      : p_(b.attention),
        group_(p_.num_heads / p_.num_kv_heads),
        query_blocks_(query_blocks),
        key_blocks_(key_blocks),
        heads_share_((p_.batch > 1 && b.dmask.batch_stride == 0) ||
                     (p_.num_heads > 1 && b.dmask.head_stride == 0)),
        rows_share_(query_blocks > 1 && b.dmask.row_stride == 0),
        keys_share_(key_blocks > 1 && b.dmask.column_stride == 0),
        is_wanted_(b.dmask_data != nullptr) {}

  /// Otherwise each block of keys has what it adds to for itself.
  bool is_needed() const { return is_wanted_ && (heads_share_ || keys_share_); }

  std::int64_t places() const {
    if (!is_needed()) return 0;
    return (heads_share_ ? 1 : p_.batch * p_.num_heads) * (keys_share_ ? 1 : key_blocks_) *
           (rows_share_ ? 1 : query_blocks_);
  }
  std::int64_t place(const cpu::KeyBlock& keys, std::int64_t head, std::int64_t block) const {
    const std::int64_t row = heads_share_ ? 0 : keys.batch * p_.num_heads + head;
    return (row * (keys_share_ ? 1 : key_blocks_) + (keys_share_ ? 0 : keys.block)) *
               (rows_share_ ? 1 : query_blocks_) +
           (rows_share_ ? 0 : block);
  }
  std::int64_t turn(const cpu::KeyBlock& keys, std::int64_t head, std::int64_t block) const {
    std::int64_t turn = heads_share_ ? keys.batch * p_.num_kv_heads + keys.kv_head : 0;
    if (keys_share_) turn = turn * key_blocks_ + keys.block;
    if (heads_share_) turn = turn * group_ + head % group_;
    return rows_share_ ? turn * query_blocks_ + block : turn;
  }

 private:
  const AttentionParams& p_;
  std::int64_t group_, query_blocks_, key_blocks_;
  bool heads_share_, rows_share_, keys_share_, is_wanted_;
};

/// Blocks of keys, kv head by kv head: threads take heads, or the blocks of one, in ascending order, so that whom
/// a block waits for is at work already.
class Schedule {
 public:
  Schedule(const cpu::AttentionKernels& kernels, const BackwardParams& params, const AttentionGradients& gradients,
           int threads)
      : kernels_(kernels),
        b_(params),
        gradients_(gradients),
        threads_(threads),
        plan_(kernels.plan_backward(params)),
        group_(p_.num_heads / p_.num_kv_heads),
        most_query_blocks_(blocks_of(p_.seqlen_q, plan_.block_q)),
        most_key_blocks_(blocks_of(p_.seqlen_k, plan_.block_k)),
        mask_order_(params, most_query_blocks_, most_key_blocks_),
        dq_turns_(p_.batch * p_.num_heads * most_query_blocks_),
        mask_turns_(mask_order_.places()),
        statistics_(static_cast<std::size_t>(p_.batch * p_.num_heads * most_query_blocks_) * plan_.statistics),
        is_finite_(static_cast<std::size_t>(p_.batch * p_.num_kv_heads)),
        dslopes_(params.wants_dslopes ? static_cast<std::size_t>(p_.batch * p_.num_heads * most_key_blocks_) : 0) {
    for (std::atomic<bool>& finite : is_finite_) finite = true;
  }

  void run() {
    if (gradients_.dmask) fill(gradients_.dmask, 0.0);
    find_statistics();
    const std::int64_t kv_heads = p_.batch * p_.num_kv_heads;
    const std::size_t dq_of_kv_head = static_cast<std::size_t>(group_ * most_query_blocks_) * plan_.dq;
    const std::int64_t together = std::clamp<std::int64_t>(
        static_cast<std::int64_t>(kDqBytes / std::max<std::size_t>(dq_of_kv_head, 1)), 1, kv_heads);
    const Workspace dq(static_cast<std::size_t>(together) * dq_of_kv_head);
    for (std::int64_t first = 0; first < kv_heads; first += together) {
      const std::int64_t heads = std::min(together, kv_heads - first);
      const int threads = threads_for(threads_, heads * most_key_blocks_);
      // Who has a head to himself waits for nobody. What is left over is shared, so that all end at one time.
      const std::int64_t alone = mask_order_.is_needed() ? 0 : heads / threads * threads;
      const auto add = [&](std::int64_t at, std::int64_t block, std::byte* scratch) {
        const std::int64_t unit = first + at;
        add_block({unit / p_.num_kv_heads, unit % p_.num_kv_heads, block}, scratch,
                  dq.data() + static_cast<std::size_t>(at) * dq_of_kv_head);
      };
      const std::int64_t items = alone + (heads - alone) * most_key_blocks_;
      parallel_for(threads, items, plan_.scratch, [&](std::int64_t item, std::byte* scratch) {
        if (item >= alone)
          return add(alone + (item - alone) / most_key_blocks_, (item - alone) % most_key_blocks_, scratch);
        for (std::int64_t block = 0; block < most_key_blocks_; ++block) add(item, block, scratch);
      });
    }
    for (std::int64_t unit = 0; unit < kv_heads; ++unit)
      if (!is_finite_[static_cast<std::size_t>(unit)]) compute_carefully(unit, dq.data());
    if (gradients_.dalibi_slopes) write_dslopes();
  }

 private:
  std::int64_t key_blocks(std::int64_t batch) const { return blocks_of(p_.keys(batch), plan_.block_k); }
  std::int64_t query_blocks(std::int64_t batch) const { return blocks_of(p_.rows(batch), plan_.block_q); }
  /// A block of rows counted through all heads.
  std::int64_t number(std::int64_t batch, std::int64_t head, std::int64_t block) const {
    return (batch * p_.num_heads + head) * most_query_blocks_ + block;
  }
  cpu::QueryRows rows_of(std::int64_t batch, std::int64_t head, std::int64_t block) const {
    return {batch, head, block * plan_.block_q, plan_.block_q};
  }
  std::byte* statistics_of(std::int64_t number) const {
    return statistics_.data() + static_cast<std::size_t>(number) * plan_.statistics;
  }

  /// The key blocks that some row of a block of rows may see by its position.
  KeyRange seen(std::int64_t batch, std::int64_t block) const {
    if (block >= query_blocks(batch)) return {};
    const std::int64_t row = block * plan_.block_q;
    const KeyRange keys = Visibility(p_, batch).visible(row, std::min(plan_.block_q, p_.rows(batch) - row));
    if (keys.begin >= keys.end) return {};
    return {keys.begin / plan_.block_k, blocks_of(keys.end, plan_.block_k)};
  }

  /// Also what there is to say of rows that see nothing.
  void find_statistics() {
    std::vector<double> dsinks(static_cast<std::size_t>(p_.batch * p_.num_heads * most_query_blocks_));
    const auto count = static_cast<std::int64_t>(dsinks.size());
    parallel_for(threads_for(threads_, count), count, 0, [&](std::int64_t item, std::byte*) {
      const std::int64_t head = item / most_query_blocks_, block = item % most_query_blocks_;
      const std::int64_t batch = head / p_.num_heads;
      if (block >= query_blocks(batch)) return;
      const cpu::QueryRows rows = rows_of(batch, head % p_.num_heads, block);
      dsinks[static_cast<std::size_t>(item)] = kernels_.backward_statistics(b_, rows, statistics_of(item));
      const KeyRange blocks = seen(batch, block);
      if (blocks.begin == blocks.end) kernels_.backward_write(b_, rows, nullptr);
    });
    if (!gradients_.dsinks) return;
    for (std::int64_t head = 0; head < p_.num_heads; ++head) {
      double sum = 0.0;
      for (std::int64_t batch = 0; batch < p_.batch; ++batch) {
        for (std::int64_t block = 0; block < most_query_blocks_; ++block)
          sum += dsinks[static_cast<std::size_t>(number(batch, head, block))];
      }
      fill(gradients_.dsinks.select(0, head), sum);
    }
  }

  /// One block of keys of a kv head; dq: of its rows.
  void add_block(const cpu::KeyBlock& keys, std::byte* scratch, std::byte* dq) {
    const bool exists = keys.block < key_blocks(keys.batch);
    if (!exists && !mask_order_.is_needed()) return;
    std::exception_ptr error;  // a score modifier's: others still wait for this block's turns to pass
    const auto attempt = [&error](const auto& f) {
      if (error) return;
      try {
        f();
      } catch (...) {
        error = std::current_exception();
      }
    };
    bool finite = true;
    if (exists) kernels_.backward_begin(b_, keys, scratch);
    for (std::int64_t i = 0; i < group_; ++i) {
      const std::int64_t head = keys.kv_head * group_ + i;
      double dslope = 0.0;
      for (std::int64_t block = 0; block < most_query_blocks_; ++block) {
        const KeyRange blocks = seen(keys.batch, block);
        const bool meet = exists && blocks.begin <= keys.block && keys.block < blocks.end;
        if (!meet && !mask_order_.is_needed()) continue;
        const cpu::QueryRows rows = rows_of(keys.batch, head, block);
        const std::int64_t index = number(keys.batch, head, block);
        bool any = false;
        if (meet)
          attempt([&] { any = kernels_.backward_logits(b_, keys, rows, statistics_of(index), scratch, dslope); });
        if (b_.dmask_data) add_to_mask(keys, rows, block, any, scratch);
        if (!meet) continue;
        if (any) attempt([&] { kernels_.backward_keys(b_, keys, rows, false, scratch); });
        std::byte* const own = dq + static_cast<std::size_t>(i * most_query_blocks_ + block) * plan_.dq;
        dq_turns_.wait(index, keys.block - blocks.begin);
        if (keys.block == blocks.begin) std::memset(own, 0, plan_.dq);
        if (any && !error) kernels_.backward_rows(b_, keys, rows, false, scratch, own);
        if (keys.block + 1 == blocks.end) finite &= kernels_.backward_write(b_, rows, own);
        dq_turns_.pass(index);
      }
      if (!dslopes_.empty())
        dslopes_[static_cast<std::size_t>((keys.batch * p_.num_heads + head) * most_key_blocks_ + keys.block)] =
            dslope;
    }
    if (exists) finite &= kernels_.backward_end(b_, keys, scratch);
    if (!finite) is_finite_[static_cast<std::size_t>(keys.batch * p_.num_kv_heads + keys.kv_head)] = false;
    if (error) std::rethrow_exception(error);
  }

  void add_to_mask(const cpu::KeyBlock& keys, const cpu::QueryRows& rows, std::int64_t block, bool any,
                   std::byte* scratch) {
    const std::int64_t place = mask_order_.place(keys, rows.head, block);
    if (mask_order_.is_needed()) mask_turns_.wait(place, mask_order_.turn(keys, rows.head, block));
    if (any) kernels_.backward_mask(b_, keys, rows, scratch);
    if (mask_order_.is_needed()) mask_turns_.pass(place);
  }

  /// A kv head again, when something was not finite: a weight of 0 may have met a hidden NaN.
  void compute_carefully(std::int64_t unit, std::byte* dq) {
    const Workspace scratch(plan_.scratch);
    const std::int64_t batch = unit / p_.num_kv_heads, kv_head = unit % p_.num_kv_heads;
    std::memset(dq, 0, static_cast<std::size_t>(group_ * most_query_blocks_) * plan_.dq);
    const auto own = [&](std::int64_t i, std::int64_t block) {
      return dq + static_cast<std::size_t>(i * most_query_blocks_ + block) * plan_.dq;
    };
    for (std::int64_t key_block = 0; key_block < key_blocks(batch); ++key_block) {
      const cpu::KeyBlock keys{batch, kv_head, key_block};
      kernels_.backward_begin(b_, keys, scratch.data());
      for (std::int64_t i = 0; i < group_; ++i) {
        for (std::int64_t block = 0; block < query_blocks(batch); ++block) {
          const KeyRange blocks = seen(batch, block);
          if (key_block < blocks.begin || key_block >= blocks.end) continue;
          const cpu::QueryRows rows = rows_of(batch, kv_head * group_ + i, block);
          double dslope = 0.0;
          if (!kernels_.backward_logits(b_, keys, rows, statistics_of(number(batch, rows.head, block)),
                                        scratch.data(), dslope))
            continue;
          kernels_.backward_keys(b_, keys, rows, true, scratch.data());
          kernels_.backward_rows(b_, keys, rows, true, scratch.data(), own(i, block));
        }
      }
      kernels_.backward_end(b_, keys, scratch.data());
    }
    for (std::int64_t i = 0; i < group_; ++i) {
      for (std::int64_t block = 0; block < query_blocks(batch); ++block)
        kernels_.backward_write(b_, rows_of(batch, kv_head * group_ + i, block), own(i, block));
    }
  }

  void write_dslopes() const {
    const MutableTensorView& to = gradients_.dalibi_slopes;
    for (std::int64_t head = 0; head < p_.num_heads; ++head) {
      double sum = 0.0;
      for (std::int64_t batch = 0; batch < p_.batch; ++batch) {
        if (to.rank == 2) sum = 0.0;
        for (std::int64_t block = 0; block < most_key_blocks_; ++block)
          sum += dslopes_[static_cast<std::size_t>((batch * p_.num_heads + head) * most_key_blocks_ + block)];
        if (to.rank == 2) fill(to.select(0, batch).select(0, head), sum);
      }
      if (to.rank == 1) fill(to.select(0, head), sum);
    }
  }

  const cpu::AttentionKernels& kernels_;
  const BackwardParams& b_;
  const AttentionParams& p_ = b_.attention;
  const AttentionGradients& gradients_;
  int threads_;
  cpu::BackwardPlan plan_;
  std::int64_t group_, most_query_blocks_, most_key_blocks_;
  MaskOrder mask_order_;
  Turns dq_turns_;  // of each block of rows: its blocks of keys
  Turns mask_turns_;
  Workspace statistics_;
  std::vector<std::atomic<bool>> is_finite_;  // of each kv head
  std::vector<double> dslopes_;               // of each head and block of keys
};

}  // namespace

void attention_backward(const TensorView& q, const TensorView& k, const TensorView& v,
                        const AttentionOutcome& outcome, const AttentionGradients& gradients,
                        const AttentionOptions& options) {
  const Arguments arguments(q, k, v, outcome, gradients, options);
  const AttentionParams& p = arguments.params.attention;
  const bool is_empty = p.batch == 0 || p.num_heads == 0 || p.seqlen_q == 0 || p.seqlen_k == 0;
  if (is_empty) {
    for (const MutableTensorView* gradient : {&gradients.dq, &gradients.dk, &gradients.dv, &gradients.dmask,
                                              &gradients.dsinks, &gradients.dalibi_slopes}) {
      if (*gradient) fill(*gradient, 0.0);
    }
    return;
  }
  const double work = static_cast<double>(p.batch * p.num_heads) * static_cast<double>(p.seqlen_q) *
                      static_cast<double>(p.seqlen_k) * static_cast<double>(p.head_dim + p.head_dim_v);
  Schedule(cpu::active_kernels().backward(arguments.params.attention), arguments.params, gradients,
           work > 1 << 20 ? options.num_threads : 1)
      .run();
}

}  // namespace saccade
