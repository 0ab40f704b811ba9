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

LinearParams check(const TensorView& x, const TensorView& weight, const TensorView& y,
                   const LinearOptions& options) {
  if (!is_usual_f32(x)) check_operand("x", x);
  if (!is_usual_f32(weight)) check_operand("weight", weight);
  if (!is_usual_f32(y)) check_operand("y", y);
  if (weight.rank != 2) refuse(kName, "weight must have rank 2, but it has shape ", to_string(weight.dims()));
  LinearParams p;
  const bool in_out = options.weight_layout == WeightLayout::in_out;
  p.d_in = weight.shape[in_out ? 0 : 1];
  p.d_out = weight.shape[in_out ? 1 : 0];
  p.weight_in_stride = in_out ? weight.strides[0] : 1;
  p.weight_out_stride = in_out ? 1 : weight.strides[0];
  if (x.shape[x.rank - 1] != p.d_in)
    refuse(kName, "x has d_in ", x.shape[x.rank - 1], " (shape ", to_string(x.dims()), ") but weight takes ",
           p.d_in, " (shape ", to_string(weight.dims()), ")");
  if (y.rank != x.rank || y.shape[y.rank - 1] != p.d_out ||
      !std::equal(x.shape.begin(), x.shape.begin() + x.rank - 1, y.shape.begin()))
    refuse(kName, "y must have the shape of x with d_out ", p.d_out, " last, but x has shape ",
           to_string(x.dims()), " and y has shape ", to_string(y.dims()));
  if (options.bias) {
    check_dtype(kName, "bias", options.bias, DType::f32);
    check_shape(kName, "bias", options.bias, {p.d_out});
    check_memory(kName, "bias", options.bias);
    p.bias = options.bias.as<float>();
  }
  if (options.num_threads < 0) refuse(kName, "num_threads must be 0 or more, got ", options.num_threads);
  p.weight = static_cast<const float*>(weight.data);
  return p;
}

/// Where the outer dimensions of a view are rows at one stride, that stride; x and y then need no loop around
/// them.
bool single_stride(const TensorView& view, std::int64_t& stride) {
  stride = view.rank > 1 ? view.strides[view.rank - 2] : 0;
  for (int i = view.rank - 3; i >= 0; --i)
    if (view.shape[i] > 1 && view.strides[i] != view.strides[i + 1] * view.shape[i + 1]) return false;
  return true;
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

/// Sets the rows of x and y in `p` and runs it, once for each outermost index where they have no single stride.
void run(const cpu::KernelSet& kernels, const TensorView& x, const MutableTensorView& y, LinearParams& p,
         int requested) {
  if (!single_stride(x, p.x_stride) || !single_stride(y, p.y_stride)) {
    for (std::int64_t i = 0; i < x.shape[0]; ++i) run(kernels, x.select(0, i), y.select(0, i), p, requested);
    return;
  }
  p.rows = 1;
  for (int i = 0; i + 1 < x.rank; ++i) p.rows *= x.shape[static_cast<std::size_t>(i)];
  p.x = static_cast<const float*>(x.data);
  p.y = static_cast<float*>(y.mutable_data());
  if (p.rows == 0 || p.d_out == 0) return;
  if (kernels.is_small_linear(p)) return kernels.linear_small(p);
  run_tiled(kernels, p, requested);
}

}  // namespace

void linear(const TensorView& x, const TensorView& weight, const MutableTensorView& y,
            const LinearOptions& options) {
  LinearParams p = check(x, weight, y, options);
  run(cpu::active_kernels(), x, y, p, options.num_threads);
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
