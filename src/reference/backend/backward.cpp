#include <vector>

#include "core/progress.h"
#include "reference/backend/call.h"
#include "reference/backend/functions.h"

namespace saccade::reference {
namespace {

/// Sums for all rows of k or v, head by head.
template <class T>
class KeySums {
 public:
  KeySums(const AttentionParams& p, std::int64_t dim)
      : entries_(p.cu_seqlens_k ? 1 : p.batch),
        heads_(p.num_kv_heads),
        keys_(p.cu_seqlens_k ? p.cu_seqlens_k[p.batch] : p.seqlen_k),
        dim_(dim),
        sums_(static_cast<std::size_t>(entries_ * heads_ * keys_ * dim)) {}

  T* row(std::int64_t entry, std::int64_t head, std::int64_t key) {
    return sums_.data() + ((entry * heads_ + head) * keys_ + key) * dim_;
  }

  void store_in(const StridedHeads<void>& to) {
    for (std::int64_t b = 0; b < entries_; ++b)
      for (std::int64_t head = 0; head < heads_; ++head)
        for (std::int64_t j = 0; j < keys_; ++j)
          store_row(std::span<const T>(row(b, head, j), static_cast<std::size_t>(dim_)), to, b, head, j);
  }

 private:
  std::int64_t entries_, heads_, keys_, dim_;
  std::vector<T> sums_;
};

/// What all rows add to the gradients. reference.h has the formulas (attention_backward()).
template <class T>
class BackwardPass {
 public:
  explicit BackwardPass(const BackwardParams& params)
      : b_(params),
        p_(params.attention),
        call_(p_),
        dk_(p_, p_.head_dim),
        dv_(p_, p_.head_dim_v),
        dsinks_(static_cast<std::size_t>(p_.num_heads)),
        dslopes_(static_cast<std::size_t>(p_.batch * p_.num_heads)) {
    call_.options.score_modifier_backward = params.score_modifier_backward;
  }

  void run() {
    const DotProduct products = usual_dot_product(p_.head_dim);
    for_each_row<T>(call_, [&](RowOfAttention<T>& row, std::int64_t b, std::int64_t head, std::int64_t i) {
      poll_progress();
      const std::int64_t at = p_.first_row(b) + i;
      row.attend(products, static_cast<T>(number_at(b_.lse, b, head, at)));
      const std::vector<T> dout = numbers_of(b_.dout, b, head, at), o = numbers_of(b_.o, b, head, at);
      row.differentiate(dout, b_.dlse.data ? static_cast<T>(number_at(b_.dlse, b, head, at)) : T(0), o);
      if (b_.wants_rows()) store_dq(row, b, head, at);
      if (b_.wants_keys()) add_to_keys(row, dout, head);
      if (b_.dmask_data) add_to_mask(row, b, head, i);
      dsinks_[static_cast<std::size_t>(head)] += row.dsink;
      dslopes_[static_cast<std::size_t>(b * p_.num_heads + head)] += row.dslope;
    });
    if (b_.wants_keys()) dk_.store_in(b_.dk), dv_.store_in(b_.dv);
    store_head_sums();
  }

 private:
  std::vector<T> numbers_of(const StridedHeads<const void>& from, std::int64_t b, std::int64_t head,
                            std::int64_t at) const {
    std::vector<T> numbers(static_cast<std::size_t>(p_.head_dim_v));
    for (std::size_t d = 0; d < numbers.size(); ++d)
      numbers[d] = static_cast<T>(number_at(from, b, head, at, static_cast<std::int64_t>(d)));
    return numbers;
  }

  /// The column of row.keys() that holds the sequence's key of that number.
  static std::size_t column(const Sequence& sequence, std::int64_t key) {
    return static_cast<std::size_t>(key - sequence.begin_key);
  }

  void store_dq(const RowOfAttention<T>& row, std::int64_t b, std::int64_t head, std::int64_t at) const {
    const Sequence& sequence = row.sequence();
    std::vector<T> dq(static_cast<std::size_t>(p_.head_dim));
    for (std::int64_t j = sequence.begin_key; j < sequence.end_key; ++j) {
      if (!row.has_part(static_cast<std::size_t>(j))) continue;
      const T factor = row.dscores[static_cast<std::size_t>(j)] * static_cast<T>(p_.scale);
      for (std::size_t d = 0; d < dq.size(); ++d) dq[d] += factor * row.keys().row(d)[column(sequence, j)];
    }
    store_row(dq, b_.dq, b, head, at);
  }

  void add_to_keys(const RowOfAttention<T>& row, const std::vector<T>& dout, std::int64_t head) {
    const Sequence& sequence = row.sequence();
    const std::int64_t kv_head = head / (p_.num_heads / p_.num_kv_heads);
    for (std::int64_t j = sequence.begin_key; j < sequence.end_key; ++j) {
      const auto key = static_cast<std::size_t>(j);
      if (!row.has_part(key)) continue;
      const T factor = row.dscores[key] * static_cast<T>(p_.scale);
      T* const dk = dk_.row(sequence.index_in_k, kv_head, sequence.first_key + j);
      T* const dv = dv_.row(sequence.index_in_k, kv_head, sequence.first_key + j);
      for (std::size_t d = 0; d < row.query().size(); ++d) dk[d] += factor * row.query()[d];
      for (std::size_t d = 0; d < dout.size(); ++d) dv[d] += row.weights[key] * dout[d];
    }
  }

  void add_to_mask(const RowOfAttention<T>& row, std::int64_t b, std::int64_t head, std::int64_t i) const {
    for (std::size_t j = 0; j < row.dlogits.size(); ++j) {
      if (!row.has_part(j)) continue;
      const std::int64_t at = b_.dmask.row(b, head, i) + static_cast<std::int64_t>(j) * b_.dmask.column_stride;
      if (p_.q.dtype == DType::f64)
        static_cast<double*>(b_.dmask_data)[at] += static_cast<double>(row.dlogits[j]);
      else
        static_cast<float*>(b_.dmask_data)[at] += static_cast<float>(row.dlogits[j]);
    }
  }

  void store_head_sums() const {
    for (std::int64_t head = 0; head < p_.num_heads; ++head) {
      if (b_.dsink.data) store(static_cast<double>(dsinks_[static_cast<std::size_t>(head)]), b_.dsink, 0, head, 0);
      T over_entries = 0;
      for (std::int64_t b = 0; b < p_.batch && b_.dslopes.data; ++b) {
        const T sum = dslopes_[static_cast<std::size_t>(b * p_.num_heads + head)];
        over_entries += sum;
        if (b_.dslopes_of_entries) store(static_cast<double>(sum), b_.dslopes, b, head, 0);
      }
      if (b_.dslopes.data && !b_.dslopes_of_entries)
        store(static_cast<double>(over_entries), b_.dslopes, 0, head, 0);
    }
  }

  const BackwardParams& b_;
  const AttentionParams& p_;
  Call call_;
  KeySums<T> dk_, dv_;
  std::vector<T> dsinks_, dslopes_;
};

}  // namespace

void run_backward(const BackwardParams& p) {
  in_precision_of(p.attention.q.dtype, [&](auto number) { BackwardPass<decltype(number)>(p).run(); });
}

}  // namespace saccade::reference
