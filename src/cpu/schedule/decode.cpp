#include <algorithm>
#include <atomic>
#include <cmath>
#include <cstring>
#include <limits>
#include <utility>
#include <vector>

#include "core/parallel.h"
#include "core/progress.h"
#include "cpu/policy/threads.h"
#include "cpu/schedule/schedules.h"

namespace saccade::cpu {
namespace {

// On Windows the x87 unit of threads other than the first computes long double with the 53 bits of double.
#ifdef _WIN32
constexpr bool kHasWiderNumbers = false;
#else
constexpr bool kHasWiderNumbers = std::numeric_limits<long double>::digits > std::numeric_limits<double>::digits;
#endif

/// a b - product, exactly, where product is a b, rounded (Dekker, A floating-point technique, 1971).
[[maybe_unused]] double error_of_product(double a, double b, double product) {
  const auto upper_half = [](double x) {
    const double shifted = 134217729.0 * x;  // 2^27 + 1
    return shifted - (shifted - x);
  };
  const double a1 = upper_half(a), b1 = upper_half(b), a2 = a - a1, b2 = b - b1;
  return a2 * b2 - (((product - a1 * b1) - a2 * b1) - a1 * b2);
}

/// own * natural as the sum of two numbers.
template <class T>
std::pair<T, T> in_natural_units(T own, double natural) {
  if constexpr (kHasWiderNumbers) {
    const auto m = static_cast<long double>(own) * static_cast<long double>(natural);
    const auto high = static_cast<T>(m);
    return {high, std::isfinite(high) ? static_cast<T>(m - static_cast<long double>(high)) : T(0)};
  } else {
    const double product = static_cast<double>(own) * natural;
    const auto high = static_cast<T>(product);
    if (!std::isfinite(high)) return {high, T(0)};
    const double rest = product - static_cast<double>(high);
    return {high, static_cast<T>(rest + error_of_product(own, natural, product))};
  }
}

/// (high + low) / natural: the number that in_natural_units() was given.
template <class T>
T in_own_units(T high, T low, double natural) {
  if constexpr (kHasWiderNumbers) {
    const auto m = static_cast<long double>(high) + static_cast<long double>(low);
    return static_cast<T>(m / static_cast<long double>(natural));
  } else {
    const double quotient = static_cast<double>(high) / natural, product = quotient * natural;
    if (!std::isfinite(quotient)) return static_cast<T>(quotient);
    const double rest = (static_cast<double>(high) - product) - error_of_product(quotient, natural, product);
    return static_cast<T>(quotient + (rest + static_cast<double>(low)) / natural);
  }
}

/// Rows that are processed together over the splits of their keys.
struct DecodeUnit {
  DecodeRows rows;
  std::int64_t first_split = 0, splits = 0;
  std::size_t states = 0;  // offset of its states, in bytes
};

/// The number of keys after which the heads of a unit alternate: a page holds the keys of all heads, and memory is
/// fastest to read in order. 0: each head's keys are contiguous, and best read head by head.
std::int64_t step_of(const AttentionParams& p, const DecodePlan& plan) {
  if (p.num_kv_heads == 1) return 0;
  if (p.k.head_stride < p.k.row_stride) return plan.step;
  if (p.block_table == nullptr) return 0;
  return std::clamp((p.page_size + plan.step - 1) / plan.step * plan.step, plan.step, plan.split);
}

/// The splits of every sequence's keys.
std::int64_t splits_of(const AttentionParams& p, const DecodePlan& plan) {
  std::int64_t splits = 0;
  for (std::int64_t b = 0; b < p.batch; ++b) {
    const KeyRange keys = readable_keys(p, b);
    if (keys.begin < keys.end) splits += (keys.end - 1) / plan.split + 1 - keys.begin / plan.split;
  }
  return splits;
}

/// The kernels' plan, with fewer rows together if threads would otherwise be idle.
DecodePlan plan_of(const DecodeKernels& kernels, const AttentionParams& p, int threads) {
  constexpr std::int64_t kFewestRows = 16;
  DecodePlan plan = kernels.plan(p);
  const std::int64_t rows = p.seqlen_q * (p.num_heads / p.num_kv_heads);
  while (plan.rows > kFewestRows &&
         splits_of(p, plan) * p.num_kv_heads * ((rows + plan.rows - 1) / plan.rows) < threads)
    plan.rows /= 2;
  return plan;
}

/// As many heads as have scores that fit into the second-level cache, without leaving threads idle.
std::int64_t heads_together(const AttentionParams& p, const DecodePlan& plan, int threads) {
  constexpr std::int64_t kMaxRows = 64;
  const std::int64_t rows = p.seqlen_q * (p.num_heads / p.num_kv_heads);
  const std::int64_t splits = splits_of(p, plan);
  std::int64_t heads = p.num_kv_heads;
  while (heads > 1 &&
         (heads * std::min(rows, plan.rows) > kMaxRows || splits * (p.num_kv_heads / heads) < threads))
    heads = (heads + 1) / 2;
  return heads;
}

std::vector<DecodeUnit> units_of(const AttentionParams& p, const DecodePlan& plan, int threads) {
  constexpr std::int64_t kKeysBetweenPolls = 512;
  const std::int64_t step = step_of(p, plan);
  const std::int64_t together = step > 0 ? heads_together(p, plan, threads) : 1;
  const std::int64_t turn_alone = progress_hook ? kKeysBetweenPolls : plan.split;
  std::vector<DecodeUnit> units;
  std::size_t states = 0;
  for (std::int64_t b = 0; b < p.batch; ++b) {
    const KeyRange keys = readable_keys(p, b);
    const std::int64_t rows = p.rows(b) * (p.num_heads / p.num_kv_heads);
    for (std::int64_t h = 0; h < p.num_kv_heads; h += together) {
      for (std::int64_t first = 0; first < rows; first += plan.rows) {
        DecodeUnit unit{{.batch = b,
                         .kv_head = h,
                         .kv_heads = std::min(together, p.num_kv_heads - h),
                         .first = first,
                         .count = std::min(plan.rows, rows - first),
                         .step = together > 1 ? step : turn_alone}};
        if (keys.begin < keys.end) {
          unit.first_split = keys.begin / plan.split;
          unit.splits = (keys.end - 1) / plan.split + 1 - unit.first_split;
        }
        unit.states = states;
        states += plan.state * static_cast<std::size_t>(unit.rows.kv_heads * unit.rows.count * unit.splits);
        units.push_back(unit);
      }
    }
  }
  return units;
}

class DecodeSchedule {
 public:
  DecodeSchedule(const DecodeKernels& kernels, const AttentionParams& params)
      : kernels_(kernels),
        p_(params),
        threads_(decode_threads(params)),
        plan_(plan_of(kernels, params, threads_)),
        units_(units_of(params, plan_, threads_)) {
    for (const DecodeUnit& unit : units_) ends_.push_back((ends_.empty() ? 0 : ends_.back()) + unit.splits);
  }

  void run() const {
    const Workspace states(units_.back().states + bytes_of_states(units_.back(), units_.back().splits));
    const auto merge = [&](const DecodeUnit& unit, std::byte* scratch) {
      kernels_.merge(p_, unit.rows, states.data() + unit.states, unit.first_split, unit.splits, scratch);
    };
    // The thread that ends the last split of a unit merges them: no other thread has to wait for that.
    std::vector<std::atomic<std::int64_t>> ended(units_.size());
    run_splits(states.data(), [&](std::size_t unit, std::byte* scratch) {
      if (ended[unit].fetch_add(1, std::memory_order_acq_rel) + 1 == units_[unit].splits)
        merge(units_[unit], scratch);
    });
    if (std::ranges::find(units_, 0, &DecodeUnit::splits) == units_.end()) return;
    parallel_for(1, count(), plan_.scratch, [&](std::int64_t item, std::byte* scratch) {
      if (const DecodeUnit& unit = units_[static_cast<std::size_t>(item)]; unit.splits == 0) merge(unit, scratch);
    });
  }

  /// Writes the states of all splits, including those that no row sees.
  void write_states(const DecodeStates& to) const {
    const Workspace states(units_.back().states + bytes_of_states(units_.back(), units_.back().splits));
    run_splits(states.data(), [](std::size_t, std::byte*) {});
    const std::size_t o = static_cast<std::size_t>(p_.head_dim_v) * plan_.number;
    const auto write = [&](const DecodeUnit& unit, std::int64_t split, const auto& from_row) {
      for (std::int64_t i = 0; i < unit.rows.kv_heads * unit.rows.count; ++i)
        from_row(i, row_of(to, unit, split, i));
    };
    parallel_for(threads_for(count(), threads_), count(), 0, [&](std::int64_t item, std::byte*) {
      const DecodeUnit& unit = units_[static_cast<std::size_t>(item)];
      for (std::int64_t split = 0; split < to.splits; ++split, poll_progress()) {
        const std::int64_t index = split - unit.first_split;
        if (index < 0 || index >= unit.splits) {
          write(unit, split, [&](std::int64_t, std::byte* row) { write_empty(row, o); });
          continue;
        }
        const std::byte* const own = states.data() + unit.states + bytes_of_states(unit, index);
        write(unit, split, [&](std::int64_t i, std::byte* row) {
          const std::byte* const state = own + static_cast<std::size_t>(i) * plan_.state;
          std::memcpy(row, state, o);
          in_number_type([&](auto number) { write_statistics(number, state + plan_.statistics, row + o); });
        });
      }
    });
  }

  void merge_states(const DecodeStates& from) const {
    const std::size_t o = static_cast<std::size_t>(p_.head_dim_v) * plan_.number;
    std::size_t most = 0;
    for (const DecodeUnit& unit : units_) most = std::max(most, bytes_of_states(unit, from.splits));
    parallel_for(
        threads_for(count(), threads_), count(), plan_.scratch + most, [&](std::int64_t item, std::byte* scratch) {
          const DecodeUnit& unit = units_[static_cast<std::size_t>(item)];
          std::byte* const own = scratch + plan_.scratch;
          for (std::int64_t split = 0; split < from.splits; ++split, poll_progress())
            for (std::int64_t i = 0; i < unit.rows.kv_heads * unit.rows.count; ++i) {
              const std::byte* const row = row_of(from, unit, split, i);
              std::byte* const state =
                  own + bytes_of_states(unit, split) + static_cast<std::size_t>(i) * plan_.state;
              std::memcpy(state, row, o);
              std::memset(state + o, 0, plan_.statistics - o);
              in_number_type([&](auto number) { read_statistics(number, row + o, state + plan_.statistics); });
            }
          kernels_.merge(p_, unit.rows, own, 0, from.splits, scratch);
        });
  }

 private:
  std::size_t bytes_of_states(const DecodeUnit& unit, std::int64_t splits) const {
    return plan_.state * static_cast<std::size_t>(unit.rows.kv_heads * unit.rows.count * splits);
  }
  std::int64_t count() const { return static_cast<std::int64_t>(units_.size()); }

  /// Calls ended(unit, scratch) after each split of a unit.
  template <class F>
  void run_splits(std::byte* states, const F& ended) const {
    const std::size_t scratch_bytes = plan_.scratch * static_cast<std::size_t>(units_.front().rows.kv_heads);
    parallel_for_in_place(threads_for(ends_.back(), threads_), ends_.back(), scratch_bytes,
                          [&](std::int64_t item, std::byte* scratch) {
                            const auto at =
                                static_cast<std::size_t>(std::ranges::upper_bound(ends_, item) - ends_.begin());
                            const DecodeUnit& unit = units_[at];
                            const std::int64_t index = item - (at > 0 ? ends_[at - 1] : 0);
                            kernels_.split(p_, unit.rows, unit.first_split + index,
                                           states + unit.states + bytes_of_states(unit, index), scratch);
                            ended(at, scratch);
                          });
  }

  /// The caller's memory of row i of a unit after a split.
  std::byte* row_of(const DecodeStates& states, const DecodeUnit& unit, std::int64_t split, std::int64_t i) const {
    const std::int64_t tokens = p_.rows(unit.rows.batch), row = unit.rows.first + i % unit.rows.count;
    const std::int64_t group = p_.num_heads / p_.num_kv_heads;
    const std::int64_t head = (unit.rows.kv_head + i / unit.rows.count) * group + row / tokens;
    const std::int64_t index =
        ((split * p_.batch + unit.rows.batch) * p_.num_heads + head) * p_.seqlen_q + row % tokens;
    return static_cast<std::byte*>(states.data) +
           static_cast<std::size_t>(index * DecodeStates::row_size(p_.head_dim_v)) * plan_.number;
  }

  /// Calls f(number) with a number of the element type of states.
  template <class F>
  void in_number_type(const F& f) const {
    plan_.number == sizeof(double) ? f(0.0) : f(0.0F);
  }

  /// The state of a row that sees no key.
  void write_empty(std::byte* row, std::size_t o) const {
    std::memset(row, 0, o);
    in_number_type([&](auto number) {
      const decltype(number) statistics[] = {std::numeric_limits<decltype(number)>::lowest(), 0, 0};
      std::memcpy(row + o, statistics, sizeof statistics);
    });
  }

  /// Converts the kernels' m and l to those of DecodeStates. m in natural units is the sum of two numbers, so that
  /// dividing by the unit gives the same m again, and decode() in two steps has the bits of one.
  template <class T>
  void write_statistics(T, const std::byte* state, std::byte* row) const {
    T own[2];
    std::memcpy(own, state, sizeof own);
    const std::pair<T, T> m = in_natural_units(own[0], plan_.natural);
    const T numbers[] = {m.first, m.second, own[1]};
    const T nothing[] = {std::numeric_limits<T>::lowest(), 0, 0};
    std::memcpy(row, own[1] == 0 ? nothing : numbers, sizeof numbers);
  }
  template <class T>
  void read_statistics(T, const std::byte* row, std::byte* state) const {
    T given[3];
    std::memcpy(given, row, sizeof given);
    const T own[] = {
        given[2] == 0 ? std::numeric_limits<T>::lowest() : in_own_units(given[0], given[1], plan_.natural),
        given[2]};
    std::memcpy(state, own, sizeof own);
  }

  const DecodeKernels& kernels_;
  const AttentionParams& p_;
  int threads_;
  DecodePlan plan_;
  std::vector<DecodeUnit> units_;
  std::vector<std::int64_t> ends_;  // the end of each unit's splits, counted over all units
};

}  // namespace

void run_decode(const DecodeKernels& kernels, const AttentionParams& p) { DecodeSchedule(kernels, p).run(); }
void run_decode_states(const DecodeKernels& kernels, const AttentionParams& p, const DecodeStates& states) {
  DecodeSchedule(kernels, p).write_states(states);
}
void run_merge_decode_states(const DecodeKernels& kernels, const AttentionParams& p, const DecodeStates& states) {
  DecodeSchedule(kernels, p).merge_states(states);
}

}  // namespace saccade::cpu
