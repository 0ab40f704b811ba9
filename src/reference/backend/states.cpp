// Results over some of the keys, and their merges:
//
//     lse = log(sum of exp(lse_i))        o = sum of exp(lse_i - lse) o_i
#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

#include "reference/backend/call.h"
#include "reference/backend/functions.h"
#include "saccade/decode.h"

namespace saccade::reference {
namespace {

constexpr double kNoKeys = -std::numeric_limits<double>::infinity();

/// A row after some of its keys: its o, and the logarithm of its softmax's denominator.
struct PartialRow {
  std::vector<double> o;
  double lse = kNoKeys;

  /// Adds the row's result over other keys.
  void merge(const PartialRow& other) {
    if (other.lse == kNoKeys) return;
    if (std::isnan(lse) || std::isnan(other.lse)) {
      lse = std::numeric_limits<double>::quiet_NaN();
      o.assign(o.size(), lse);
      return;
    }
    if (lse == kNoKeys) {
      *this = other;
      return;
    }
    const double top = std::max(lse, other.lse);
    const double sum = top + std::log(std::exp(lse - top) + std::exp(other.lse - top));
    const double kept = std::exp(lse - sum), added = std::exp(other.lse - sum);
    for (std::size_t d = 0; d < o.size(); ++d) o[d] = kept * o[d] + added * other.o[d];
    lse = sum;
  }

  /// The sink adds to the denominator only.
  void add_sink(double sink) {
    if (sink == kNoKeys) return;
    merge({std::vector<double>(o.size()), sink});
  }
};

template <class T>
PartialRow partial(const RowOfAttention<T>& row) {
  return {{row.o.begin(), row.o.end()}, static_cast<double>(row.lse)};
}

/// Calls body(row of the state, batch, head, i) for all rows over the keys of a call, without its sinks.
template <class Body>
void for_each_partial_row(const AttentionParams& params, const Body& body) {
  AttentionParams p = params;
  p.sinks = {};
  attend_each_row(p, [&body](const auto& row, std::int64_t b, std::int64_t head, std::int64_t i) {
    body(partial(row), b, head, i);
  });
}

class ReferenceState final : public ForwardState {
 public:
  explicit ReferenceState(const AttentionParams& p) {
    std::int64_t rows = 0;
    for (std::int64_t b = 0; b < p.batch; ++b) rows += p.num_heads * p.rows(b);
    rows_.assign(static_cast<std::size_t>(rows),
                 {std::vector<double>(static_cast<std::size_t>(p.head_dim_v)), kNoKeys});
  }

  void add(const AttentionParams& p) override {
    std::size_t next = 0;
    for_each_partial_row(
        p, [&](const PartialRow& row, std::int64_t, std::int64_t, std::int64_t) { rows_[next++].merge(row); });
  }

  void finish(const AttentionParams& p) override {
    std::size_t next = 0;
    for (std::int64_t b = 0; b < p.batch; ++b) {
      for (std::int64_t head = 0; head < p.num_heads; ++head) {
        for (std::int64_t i = 0; i < p.rows(b); ++i) {
          PartialRow row = rows_[next++];
          row.add_sink(p.sink(head));
          store_row(row.o, p.o, b, head, p.first_row(b) + i);
          if (p.lse.data) store(row.lse, p.lse, b, head, p.first_row(b) + i);
        }
      }
    }
  }

  std::size_t bytes() const override {
    return rows_.size() * (sizeof(PartialRow) + (rows_.empty() ? 0 : rows_.front().o.size() * sizeof(double)));
  }

 private:
  std::vector<PartialRow> rows_;  // batch entry by batch entry, head by head
};

/// Where the state of a row after a split begins, as DecodeStates describes it.
std::int64_t place_of(const AttentionParams& p, std::int64_t split, std::int64_t b, std::int64_t head,
                      std::int64_t i) {
  return (((split * p.batch + b) * p.num_heads + head) * p.seqlen_q + i) * DecodeStates::row_size(p.head_dim_v);
}

template <class T>
void write_states(const AttentionParams& p, const DecodeStates& states) {
  const double growth = 1 / (1 - p.dropout_p);  // applied when states are merged
  std::vector<std::int64_t> starts, lengths, offsets;
  for (std::int64_t split = 0; split < states.splits; ++split) {
    const std::int64_t begin = split * kDecodeSplitKeys, end = begin + kDecodeSplitKeys;
    AttentionParams part = p;
    starts.clear(), lengths.clear(), offsets.clear();
    for (std::int64_t b = 0; b < p.batch; ++b) {
      starts.push_back(std::max(p.kv_start(b), begin));
      lengths.push_back(std::min(p.kv_length(b), end));
      offsets.push_back(position_of_first_row(p, b));
    }
    part.kv_starts = starts.data();
    part.kv_lengths = lengths.data();
    part.query_offsets = offsets.data();
    for_each_partial_row(part, [&](const PartialRow& row, std::int64_t b, std::int64_t head, std::int64_t i) {
      T* to = static_cast<T*>(states.data) + place_of(p, split, b, head, i);
      for (const double number : row.o) *to++ = static_cast<T>(number / growth);
      const bool sees = row.lse != kNoKeys;
      to[0] = sees ? static_cast<T>(row.lse) : std::numeric_limits<T>::lowest();
      to[1] = sees ? static_cast<T>(row.lse - static_cast<double>(to[0])) : T(0);
      to[2] = sees ? T(1) : T(0);
    });
  }
}

template <class T>
void merge_states(const AttentionParams& p, const DecodeStates& states) {
  const double growth = 1 / (1 - p.dropout_p);
  for (std::int64_t b = 0; b < p.batch; ++b) {
    for (std::int64_t head = 0; head < p.num_heads; ++head) {
      for (std::int64_t i = 0; i < p.seqlen_q; ++i) {
        PartialRow row{std::vector<double>(static_cast<std::size_t>(p.head_dim_v)), kNoKeys};
        for (std::int64_t split = 0; split < states.splits; ++split) {
          const T* from = static_cast<const T*>(states.data) + place_of(p, split, b, head, i);
          const T* const numbers = from + p.head_dim_v;
          const double l = numbers[2];
          if (l == 0) continue;
          PartialRow part{{from, numbers}, static_cast<double>(numbers[0]) + numbers[1] + std::log(l)};
          for (double& number : part.o) number *= growth / l;
          row.merge(part);
        }
        row.add_sink(p.sink(head));
        store_row(row.o, p.o, b, head, i);
        if (p.lse.data) store(row.lse, p.lse, b, head, i);
      }
    }
  }
}

}  // namespace

std::unique_ptr<ForwardState> new_attention_state(const AttentionParams& p) {
  return std::make_unique<ReferenceState>(p);
}

void run_decode_states(const AttentionParams& p, const DecodeStates& states) {
  p.q.dtype == DType::f64 ? write_states<double>(p, states) : write_states<float>(p, states);
}

void run_merge_decode_states(const AttentionParams& p, const DecodeStates& states) {
  p.q.dtype == DType::f64 ? merge_states<double>(p, states) : merge_states<float>(p, states);
}

void run_merge(const MergeParams& p) {
  for (std::int64_t b = 0; b < p.batch; ++b) {
    for (std::int64_t head = 0; head < p.heads; ++head) {
      for (std::int64_t i = 0; i < p.rows; ++i) {
        PartialRow row{std::vector<double>(static_cast<std::size_t>(p.dim)), kNoKeys};
        for (std::int64_t n = 0; n < p.count; ++n) {
          PartialRow part{row.o, p.parts[n].lse.at(b, head, i)};
          for (std::int64_t d = 0; d < p.dim; ++d)
            part.o[static_cast<std::size_t>(d)] = number_at(p.parts[n].o, b, head, i, d);
          row.merge(part);
        }
        if (p.o.data) store_row(row.o, p.o, b, head, i);
        if (p.lse.data) store(row.lse, p.lse, b, head, i);
      }
    }
  }
}

}  // namespace saccade::reference
