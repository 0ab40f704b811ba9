#include <algorithm>
#include <cmath>
#include <vector>

#include "backend/layer_kernels.h"
#include "core/check.h"
#include "core/parallel.h"
#include "nn/layers/rows.h"
#include "saccade/layers.h"

namespace saccade {
namespace {

constexpr std::string_view kCrossEntropy = "cross_entropy";

void check_result(std::string_view what, const MutableTensorView& result, std::string_view like,
                  const TensorView& wanted) {
  check_dtype(kCrossEntropy, what, result, DType::f32);
  if (!std::ranges::equal(result.dims(), wanted.dims()))
    refuse(kCrossEntropy, what, " must have the shape of ", like, ", ", to_string(wanted.dims()),
           ", but it has shape ", to_string(result.dims()));
  if (!result.is_contiguous() || (result.data == nullptr && result.size() > 0))
    refuse(kCrossEntropy, what, " must be contiguous memory");
}

void check(const TensorView& logits, const TensorView& targets, const CrossEntropyOptions& options) {
  if (logits.rank < 2)
    refuse(kCrossEntropy, "logits must be [..., num_classes] of rank 2 or more, but they have shape ",
           to_string(logits.dims()));
  check_dtype(kCrossEntropy, "logits", logits, DType::f32);
  check_dtype(kCrossEntropy, "targets", targets, DType::i64);
  if (!std::ranges::equal(targets.dims(), logits.dims().first(logits.rank - 1u)))
    refuse(kCrossEntropy, "targets must have the outer dimensions of logits, but logits have shape ",
           to_string(logits.dims()), " and targets ", to_string(targets.dims()));
  if ((logits.data == nullptr && logits.size() > 0) || (targets.data == nullptr && targets.size() > 0))
    refuse(kCrossEntropy, "logits and targets must have data, but there is a null pointer");
  if (options.losses) check_result("losses", options.losses, "targets", targets);
  if (options.dlogits) check_result("dlogits", options.dlogits, "logits", logits);
  if (options.num_threads < 0) refuse(kCrossEntropy, "num_threads must be 0 or more, got ", options.num_threads);
}

/// The number of rows that count.
std::int64_t count_targets(std::span<const std::int64_t> targets, std::int64_t num_classes, std::int64_t ignore) {
  std::int64_t count = 0;
  for (const std::int64_t target : targets) {
    if (target == ignore) continue;
    if (target < 0 || target >= num_classes)
      refuse(kCrossEntropy, "targets must be in [0, ", num_classes, ") or ", ignore, ", but one is ", target);
    ++count;
  }
  return count;
}

/// The loss of one row; writes the gradient, times `factor`, where dlogits is not nullptr.
double loss_of_row(const LayerKernels& kernels, const float* logits, std::int64_t num_classes, std::int64_t target,
                   double factor, float* dlogits) {
  const double logit = logits[target];
  const SoftmaxSum softmax = kernels.softmax_sum(logits, dlogits, num_classes);
  if (dlogits) {
    kernels.multiply(static_cast<float>(factor / double{softmax.sum}), dlogits, num_classes);
    dlogits[target] -= static_cast<float>(factor);
  }
  return std::log(double{softmax.sum}) + (double{softmax.maximum} - logit);
}

}  // namespace

double cross_entropy(const TensorView& logits, const TensorView& targets, const CrossEntropyOptions& options) {
  check(logits, targets, options);
  const Rows from(logits);
  const Tensor numbers = Tensor::copy_of(targets);
  const std::int64_t num_classes = from.columns(), ignore = options.ignore_index;
  const auto target = numbers.values<std::int64_t>();
  const std::int64_t count = count_targets(target, num_classes, ignore);

  const LayerKernels& kernels = layer_kernels();
  std::vector<double> losses(target.size());
  float* const dlogits = options.dlogits ? options.dlogits.as<float>() : nullptr;
  const auto body = [&](std::int64_t row, std::int64_t row_end) {
    for (; row < row_end; ++row) {
      const auto i = static_cast<std::size_t>(row);
      float* const gradient = dlogits ? dlogits + row * num_classes : nullptr;
      if (target[i] != ignore) {
        losses[i] = loss_of_row(kernels, from.data() + row * num_classes, num_classes, target[i],
                                1.0 / static_cast<double>(count), gradient);
      } else if (gradient) {
        std::fill_n(gradient, num_classes, 0.0f);
      }
    }
  };
  const ThreadLimit limit(options.num_threads);
  for_blocks(from.rows(), num_classes, body);

  double sum = 0.0;
  for (const double loss : losses) sum += loss;
  if (options.losses)
    std::ranges::transform(losses, options.losses.as<float>(),
                           [](double loss) { return static_cast<float>(loss); });
  return sum / static_cast<double>(count);
}

}  // namespace saccade
