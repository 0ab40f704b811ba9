// The layers of a language model other than attention, and its loss: forward and backward, in f32.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "saccade/module.h"
#include "saccade/random.h"
#include "saccade/tensor.h"

#pragma GCC visibility push(default)
namespace saccade {

// All of these layers share the following, in addition to what module.h describes. Inputs are f32 (tokens i64) of
// rank 1 to kMaxRank, with any strides of the outer dimensions; each layer treats them as rows of the innermost
// dimension. A row's bits do not depend on other rows, and nothing depends on the number of threads. In training
// mode forward() keeps a copy of what backward() needs; it takes over the argument itself if that is an rvalue
// Tensor, as in forward(std::move(x)). backward() expects a dout with the shape of forward()'s result. Invalid
// arguments throw std::invalid_argument that names the class, what was expected and what was given.

/// y = x weight^T + bias: torch.nn.Linear. Parameters: `weight` [d_out, d_in], `bias` [d_out].
class Linear : public Module {
 public:
  /// Parameters of zeros, for load_state_dict. Throws std::invalid_argument for widths below 1.
  Linear(std::int64_t d_in, std::int64_t d_out, bool bias = true);
  /// Parameters as PyTorch draws them from `generator`: weight, then bias, uniform in +-1/sqrt(d_in).
  Linear(std::int64_t d_in, std::int64_t d_out, TorchGenerator& generator, bool bias = true);

  std::int64_t d_in() const { return weight_.value.shape(1); }
  std::int64_t d_out() const { return weight_.value.shape(0); }

  /// x [..., d_in] -> [..., d_out].
  Tensor forward(const TensorView& x);
  Tensor forward(Tensor&& x);
  /// dout [..., d_out] -> the gradient of x.
  Tensor backward(const TensorView& dout);

 protected:
  std::vector<Part> parts() override;

 private:
  Tensor product(const TensorView& x) const;

  Parameter weight_, bias_;
  Tensor x_;
};

/// Rows of a table, selected by index: torch.nn.Embedding. Parameter: `weight` [num_embeddings, dim].
class Embedding : public Module {
 public:
  /// A table of zeros, for load_state_dict. Throws std::invalid_argument for sizes below 1.
  Embedding(std::int64_t num_embeddings, std::int64_t dim);
  /// A table as PyTorch draws it from `generator`: normal numbers of mean 0 and standard deviation 1.
  Embedding(std::int64_t num_embeddings, std::int64_t dim, TorchGenerator& generator);

  std::int64_t num_embeddings() const { return weight_.value.shape(0); }
  std::int64_t dim() const { return weight_.value.shape(1); }

  /// tokens i64 [...] -> [..., dim], of rank kMaxRank at most. Throws std::invalid_argument for a token outside
  /// [0, num_embeddings).
  Tensor forward(const TensorView& tokens);
  /// dout [..., dim]. A token that occurs several times gets the sum of its rows, added in their order.
  void backward(const TensorView& dout);

 protected:
  std::vector<Part> parts() override;

 private:
  Parameter weight_;
  Tensor tokens_;
};

/// y = scale * (x - mean) / sqrt(variance + eps) + shift, with the mean and variance of the row; the variance is
/// divided by dim. torch.nn.LayerNorm(dim), and the published LayerNorm with its parameter names: `scale` [dim],
/// initially ones, and `shift` [dim], initially zeros.
class LayerNorm : public Module {
 public:
  /// Throws std::invalid_argument for a dim below 1, or an eps that is negative or NaN.
  explicit LayerNorm(std::int64_t dim, double eps = 1e-5);

  std::int64_t dim() const { return scale_.value.size(); }
  double eps() const { return eps_; }

  /// x [..., dim] -> the same shape.
  Tensor forward(const TensorView& x);
  /// dout [..., dim] -> the gradient of x.
  Tensor backward(const TensorView& dout);

 protected:
  std::vector<Part> parts() override;

 private:
  Parameter scale_, shift_;
  double eps_;
  Tensor normalised_;           ///< (x - mean) / sqrt(variance + eps)
  std::vector<float> inverse_;  ///< 1 / sqrt(variance + eps) of each row
};

/// y = 0.5 x (1 + tanh(sqrt(2/pi) (x + 0.044715 x^3))): torch.nn.GELU(approximate="tanh"), and the published GELU.
/// No parameters. (Hendrycks and Gimpel: Gaussian error linear units. arXiv:1606.08415.)
class Gelu : public Module {
 public:
  Gelu();

  /// x of any shape -> the same shape.
  Tensor forward(const TensorView& x);
  Tensor forward(Tensor&& x);
  /// dout in that shape -> the gradient of x.
  Tensor backward(const TensorView& dout);

 protected:
  std::vector<Part> parts() override;

 private:
  Tensor x_;
};

/// In training mode drops each element with probability p and multiplies the others by 1 / (1 - p):
/// torch.nn.Dropout with different draws. Column c of row r is kept iff dropout_keeps(seed, call, 0, r, c, p) of
/// random.h is true, where `call` is the number of earlier training calls. In evaluation mode, and for p = 0, the
/// output is a copy. Dropped elements are 0, even where they were NaN.
class Dropout : public Module {
 public:
  /// The seed comes from the operating system. Throws std::invalid_argument unless 0 <= p <= 1.
  explicit Dropout(double p);

  double p() const { return p_; }

  /// Sets the seed, and resets the number of calls to 0.
  void seed_dropout(std::uint64_t seed) override;

  /// x [..., dim] -> the same shape.
  Tensor forward(const TensorView& x);
  /// dout [..., dim] -> the gradient of x. Draws the same mask again.
  Tensor backward(const TensorView& dout);

 protected:
  std::vector<Part> parts() override;

 private:
  Tensor dropped(const TensorView& x) const;

  double p_;
  std::optional<std::uint64_t> seed_;
  std::uint32_t calls_ = 0;
  Shape shape_;  ///< the shape that backward() expects; empty before the first forward()
};

/// Linear(dim, hidden), Gelu, Linear(hidden, dim), row by row: the published FeedForward with its parameter names:
/// `layers.0.weight` [hidden, dim], `layers.0.bias`, `layers.2.weight` [dim, hidden], `layers.2.bias`.
class FeedForward : public Module {
 public:
  /// Parameters of zeros, for load_state_dict. Throws std::invalid_argument for widths below 1.
  FeedForward(std::int64_t dim, std::int64_t hidden);
  /// Parameters as PyTorch draws them from `generator`, layer by layer.
  FeedForward(std::int64_t dim, std::int64_t hidden, TorchGenerator& generator);

  std::int64_t dim() const { return first_.d_in(); }
  std::int64_t hidden() const { return first_.d_out(); }

  /// x [..., dim] -> the same shape.
  Tensor forward(const TensorView& x);
  Tensor forward(Tensor&& x);
  /// dout [..., dim] -> the gradient of x.
  Tensor backward(const TensorView& dout);

 protected:
  std::vector<Part> parts() override;

 private:
  Linear first_;
  Gelu gelu_;
  Linear second_;
};

struct CrossEntropyOptions {
  /// Rows with this target are ignored: their loss and their gradient are 0.
  std::int64_t ignore_index = -100;
  /// Optional result: -log softmax(logits)[target] of each row; f32, the shape of targets.
  MutableTensorView losses{};
  /// Optional result: the gradient of the mean, (softmax(logits) - one_hot(target)) / rows that count; f32, the
  /// shape of logits. May be logits itself.
  MutableTensorView dlogits{};
  /// Threads of this call; 0: num_threads() of runtime.h. Results do not depend on it.
  int num_threads = 0;
};

/// The mean of -log softmax(logits)[target] over the rows that count, summed in f64 in their order:
/// torch.nn.functional.cross_entropy. If no row counts the mean is NaN, as in PyTorch, and the gradient is 0.
///
/// logits: f32 [..., num_classes], rank 2 or more; targets: i64 [...]. Throws std::invalid_argument when shapes or
/// types do not fit, and for a target that is neither in [0, num_classes) nor ignore_index.
double cross_entropy(const TensorView& logits, const TensorView& targets, const CrossEntropyOptions& options = {});

}  // namespace saccade
#pragma GCC visibility pop
