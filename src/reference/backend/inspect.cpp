#include <algorithm>
#include <cmath>
#include <numeric>
#include <vector>

#include "core/progress.h"
#include "reference/backend/call.h"
#include "reference/backend/functions.h"

namespace saccade::reference {
namespace {

/// The statistics of a head that are sums over its rows.
template <class T>
struct HeadSums {
  std::vector<T> received;          // [seqlen_k]
  std::vector<T> cells;             // [pool_rows, pool_keys]: sums, or largest weights
  std::vector<std::int64_t> sizes;  // weights in each cell
  T distance = 0;
  std::int64_t rows_with_weight = 0;
};

template <class T>
class InspectPass {
 public:
  explicit InspectPass(const InspectParams& params) : i_(params), p_(params.attention), call_(p_) {}

  void run() {
    const DotProduct products = usual_dot_product(p_.head_dim);
    HeadSums<T> sums;
    for_each_row<T>(call_, [&](RowOfAttention<T>& row, std::int64_t b, std::int64_t head, std::int64_t i) {
      poll_progress();
      if (i == 0) sums = new_sums();
      const std::int64_t at = p_.first_row(b) + i;
      if (i_.lse.data)
        row.attend(products, static_cast<T>(number_at(i_.lse, b, head, at)));
      else
        row.attend(products);
      if (p_.lse.data) store(static_cast<double>(row.lse), p_.lse, b, head, at);
      weights_.assign(row.probabilities.begin(), row.probabilities.begin() + p_.keys(b));
      store_statistics_of_row(b, head, i, sums);
      add_to_cells(b, i, sums);
      if (i + 1 == p_.rows(b)) store_sums(b, head, sums);
    });
  }

 private:
  HeadSums<T> new_sums() const {
    HeadSums<T> sums;
    sums.received.resize(static_cast<std::size_t>(p_.seqlen_k));
    sums.cells.resize(static_cast<std::size_t>(i_.pool_rows * i_.pool_keys));
    sums.sizes.resize(sums.cells.size());
    return sums;
  }

  void store_statistics_of_row(std::int64_t b, std::int64_t head, std::int64_t i, HeadSums<T>& sums) {
    const std::int64_t at = p_.first_row(b) + i, position = position_of_first_row(p_, b) + i;
    T entropy = 0, distance = 0, largest = 0;
    for (std::size_t j = 0; j < weights_.size(); ++j) {
      const T w = weights_[j];
      if (w != 0) entropy -= w * std::log(w);
      distance += w * static_cast<T>(std::abs(position - static_cast<std::int64_t>(j)));
      largest = std::isnan(w) || w > largest ? w : largest;
      sums.received[j] += w;
    }
    const bool is_nan = std::isnan(entropy);
    if (is_nan) largest = entropy;
    sums.distance += distance;
    sums.rows_with_weight += rounded(largest, i_.mean_distance.dtype) != 0;
    if (i_.entropy.data) store(static_cast<double>(entropy), i_.entropy, b, head, at);
    if (i_.max_weight.data) store(static_cast<double>(largest), i_.max_weight, b, head, at);
    if (i_.distance.data) store(static_cast<double>(distance), i_.distance, b, head, at);
    if (i_.top_k > 0) store_top(b, head, at, is_nan);
    const std::int64_t* const found = std::lower_bound(i_.rows, i_.rows + i_.row_count, at);
    if (found != i_.rows + i_.row_count && *found == at)
      store_row(weights_, i_.row_weights, b, head, i_.row_places[found - i_.rows]);
  }

  /// Weights tie if they are equal as stored.
  void store_top(std::int64_t b, std::int64_t head, std::int64_t at, bool is_nan) const {
    std::vector<std::int64_t> keys(weights_.size());
    std::iota(keys.begin(), keys.end(), std::int64_t{0});
    const auto weight = [this](std::int64_t key) {
      return rounded(weights_[static_cast<std::size_t>(key)], i_.top_weights.dtype);
    };
    if (!is_nan) std::ranges::stable_sort(keys, std::ranges::greater{}, weight);
    for (std::int64_t n = 0; n < i_.top_k; ++n) {
      const bool exists =
          !is_nan && n < static_cast<std::int64_t>(keys.size()) && weight(keys[static_cast<std::size_t>(n)]) > 0;
      const std::int64_t key = exists ? keys[static_cast<std::size_t>(n)] : -1;
      const T found = is_nan ? std::numeric_limits<T>::quiet_NaN() : exists ? weight(key) : T(0);
      store(static_cast<double>(found), i_.top_weights, b, head, at, n);
      if (i_.top_keys.dtype == DType::i32)
        i_.top_keys.row<std::int32_t>(b, head, at)[n] = static_cast<std::int32_t>(key);
      else
        i_.top_keys.row<std::int64_t>(b, head, at)[n] = key;
    }
  }

  void add_to_cells(std::int64_t b, std::int64_t i, HeadSums<T>& sums) const {
    if (sums.cells.empty()) return;
    const std::int64_t row = i * i_.pool_rows / p_.rows(b);
    for (std::size_t j = 0; j < weights_.size(); ++j) {
      const std::int64_t key = static_cast<std::int64_t>(j) * i_.pool_keys / p_.keys(b);
      const auto cell = static_cast<std::size_t>(row * i_.pool_keys + key);
      const T w = weights_[j];
      if (!i_.pool_max)
        sums.cells[cell] += w;
      else if (std::isnan(w) || w > sums.cells[cell])
        sums.cells[cell] = w;
      ++sums.sizes[cell];
    }
  }

  void store_sums(std::int64_t b, std::int64_t head, const HeadSums<T>& sums) const {
    for (std::int64_t j = 0; j < p_.keys(b) && i_.received.data; ++j)
      store(static_cast<double>(sums.received[static_cast<std::size_t>(j)]), i_.received, b, head,
            p_.first_key(b) + j);
    if (i_.mean_distance.data) {
      const T mean = sums.rows_with_weight > 0 ? sums.distance / static_cast<T>(sums.rows_with_weight) : T(0);
      store(static_cast<double>(mean), i_.mean_distance, b, head, 0);
    }
    for (std::size_t cell = 0; cell < sums.cells.size(); ++cell) {
      const T size = static_cast<T>(i_.pool_max || sums.sizes[cell] == 0 ? 1 : sums.sizes[cell]);
      store(static_cast<double>(sums.cells[cell] / size), i_.pooled, b, head, 0, static_cast<std::int64_t>(cell));
    }
  }

  const InspectParams& i_;
  const AttentionParams& p_;
  Call call_;
  std::vector<T> weights_;  // of the current row
};

}  // namespace

void run_inspect(const InspectParams& p) {
  in_precision_of(p.attention.q.dtype, [&](auto number) { InspectPass<decltype(number)>(p).run(); });
}

}  // namespace saccade::reference
