// inspect() compared with statistics of the reference's weights.
#pragma once

#include <saccade/inspect.h>
#include <saccade/reference.h>

#include <cstdint>
#include <optional>
#include <vector>

#include "cases/attention_case.h"
#include "cases/inspect_statistics.h"

namespace saccade::cases {

/// Makes a drawn problem one of inspect(), which has no values: no weights and scores are requested, and keys
/// stand in for values in the reference's call.
void make_inspection(AttentionCase& c);

/// All statistics, with sizes and rows drawn from a seed.
InspectOptions draw_inspection(const AttentionCase& c, std::uint64_t seed);

/// A call of inspect() and the reference's results for it, computed once for any number of checks.
class CheckedInspection {
 public:
  /// The tensors must outlive this object, and `wanted` is copied.
  CheckedInspection(const TensorView& q, const TensorView& k, const InspectOptions& wanted,
                    const AttentionOptions& options);
  CheckedInspection(const CheckedInspection&) = delete;
  CheckedInspection& operator=(const CheckedInspection&) = delete;

  /// Calls inspect() on the active instruction set, and compares every result. Throws std::runtime_error if the
  /// top keys of a row are not in order.
  std::vector<Finding> run();

 private:
  /// The statistics of weights, exactly and in the kernels' type, and of the bounds of the weights.
  template <class Naive>
  struct All {
    Statistics<long double> exact;
    Statistics<Naive> naive;
    Statistics<long double> bound;
  };

  template <class Naive>
  std::vector<Finding> compare(const Inspection& found, const All<Naive>& statistics) const;
  template <class Naive>
  Finding compare_top_keys(const Inspection& found, const All<Naive>& statistics) const;
  template <class Naive>
  std::vector<Finding> compare_with(const Inspection& found, std::optional<All<Naive>>& statistics) const;

  TensorView q_, k_;
  InspectOptions wanted_;
  AttentionOptions options_;
  reference::AttentionResult exact_, naive_;
  Tensor bound_;  // of the weights
  Sequences sequences_;
  std::optional<All<float>> in_f32_;
  std::optional<All<double>> in_f64_;
};

}  // namespace saccade::cases
