#include "saccade/linear.h"

#include "check.h"
#include "cpu/kernels.h"
#include "parallel.h"

namespace saccade {
namespace {

constexpr std::string_view kName = "linear";

/// Rows of one unit of work: enough that packing its panel of the weight costs little.
constexpr std::int64_t kBlockRows = 384;

[[gnu::cold, gnu::noinline]] void check_operand(std::string_view name, const TensorView& view) {
  if (view.rank == 0) refuse(kName, name, " must have at least one dimension");
  check_dtype(kName, name, view, DType::f32);
  check_memory(kName, name, view);
}

/// Whether two views of one rank are alike but for the innermost length.
bool same_outer_lengths(const TensorView& x, const TensorView& y) {
  bool same = true;
  for (int i = 0; i + 1 < x.rank; ++i) same &= x.shape[i] == y.shape[i];
  return same;
}

void check(const TensorView& x, const TensorView& weight, const TensorView& y, const LinearOptions& options) {
  if (!is_usual_f32(x)) check_operand("x", x);
  if (!is_usual_f32(weight)) check_operand("weight", weight);
  if (!is_usual_f32(y)) check_operand("y", y);
  if (weight.rank != 2) refuse(kName, "weight must have rank 2, but it has shape ", to_string(weight.dims()));
  const bool in_out = options.weight_layout == WeightLayout::in_out;
  const std::int64_t d_in = weight.shape[in_out ? 0 : 1], d_out = weight.shape[in_out ? 1 : 0];
  if (x.shape[x.rank - 1] != d_in)
    refuse(kName, "x has d_in ", x.shape[x.rank - 1], " (shape ", to_string(x.dims()), ") but weight takes ", d_in,
           " (shape ", to_string(weight.dims()), ")");
  if (y.rank != x.rank || y.shape[y.rank - 1] != d_out || !same_outer_lengths(x, y))
    refuse(kName, "y must have the shape of x with d_out ", d_out, " last, but x has shape ", to_string(x.dims()),
           " and y has shape ", to_string(y.dims()));
  if (options.bias) {
    check_dtype(kName, "bias", options.bias, DType::f32);
    check_shape(kName, "bias", options.bias, {d_out});
    check_memory(kName, "bias", options.bias);
  }
  if (options.num_threads < 0) refuse(kName, "num_threads must be 0 or more, got ", options.num_threads);
}

/// Whether the outer dimensions of a view are rows at one stride; x and y then need no loop around them.
bool has_single_stride(const TensorView& view) {
  for (int i = view.rank - 3; i >= 0; --i)
    if (view.shape[i] > 1 && view.strides[i] != view.strides[i + 1] * view.shape[i + 1]) return false;
  return true;
}

std::int64_t row_stride(const TensorView& view) { return view.rank > 1 ? view.strides[view.rank - 2] : 0; }

/// x and y: of a single stride.
LinearParams params_of(const TensorView& x, const TensorView& weight, const MutableTensorView& y,
                       const LinearOptions& options) {
  const bool in_out = options.weight_layout == WeightLayout::in_out;
  std::int64_t rows = 1;
  for (int i = 0; i + 1 < x.rank; ++i) rows *= x.shape[i];
  return {.rows = rows,
          .d_in = weight.shape[in_out ? 0 : 1],
          .d_out = weight.shape[in_out ? 1 : 0],
          .x = static_cast<const float*>(x.data),
          .x_stride = row_stride(x),
          .weight = static_cast<const float*>(weight.data),
          .weight_in_stride = in_out ? weight.strides[0] : 1,
          .weight_out_stride = in_out ? 1 : weight.strides[0],
          .bias = options.bias ? static_cast<const float*>(options.bias.data) : nullptr,
          .y = static_cast<float*>(y.mutable_data()),
          .y_stride = row_stride(y)};
}

void run_tiled(const cpu::KernelSet& kernels, const LinearParams& p, int requested) {
  const std::int64_t panels = (p.d_out + kernels.linear_block_columns - 1) / kernels.linear_block_columns;
  const std::int64_t blocks = (p.rows + kBlockRows - 1) / kBlockRows;
  const std::size_t scratch =
      static_cast<std::size_t>(p.d_in) * static_cast<std::size_t>(kernels.linear_block_columns) * sizeof(float);
  // Below some 10 microseconds of work a second thread costs more than it does.
  const bool worth_threads = p.rows * p.d_in * p.d_out > (std::int64_t{1} << 19);
  parallel_for(worth_threads ? threads_for(requested, panels * blocks) : 1, panels * blocks, scratch,
               [&](std::int64_t item, std::byte* panel) {
                 const std::int64_t row = item / panels * kBlockRows;
                 kernels.linear(p, row, std::min(p.rows, row + kBlockRows),
                                item % panels * kernels.linear_block_columns, reinterpret_cast<float*>(panel));
               });
}

}  // namespace

void linear(const TensorView& x, const TensorView& weight, const MutableTensorView& y,
            const LinearOptions& options) {
  check(x, weight, y, options);
  if (!has_single_stride(x) || !has_single_stride(y)) {
    for (std::int64_t i = 0; i < x.shape[0]; ++i) linear(x.select(0, i), weight, y.select(0, i), options);
    return;
  }
  const LinearParams p = params_of(x, weight, y, options);
  if (p.rows == 0 || p.d_out == 0) return;
  const cpu::KernelSet& kernels = cpu::active_kernels();
  if (kernels.is_small_linear(p)) return kernels.linear_small(p);
  run_tiled(kernels, p, options.num_threads);
}

Tensor linear(const TensorView& x, const TensorView& weight, const LinearOptions& options) {
  if (x.rank == 0 || weight.rank != 2)
    refuse(kName, "x must have at least one dimension and weight two, but they have shapes ", to_string(x.dims()),
           " and ", to_string(weight.dims()));
  Shape shape(x.dims().begin(), x.dims().end());
  shape.back() = weight.shape[options.weight_layout == WeightLayout::in_out ? 1 : 0];
  Tensor y(DType::f32, shape);
  linear(x, weight, y, options);
  return y;
}

}  // namespace saccade
