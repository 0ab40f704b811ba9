// Rotary position embedding: queries and keys are rotated by angles that grow with their position.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "saccade/attention.h"
#include "saccade/tensor.h"

#pragma GCC visibility push(default)
namespace saccade {

namespace detail {
struct RopeTable;
}

/// Which two numbers of a vector form pair i, which rotates with one frequency.
enum class RopePairs : std::uint8_t {
  half,         ///< numbers i and i + rotary_dim / 2: GPT-NeoX, and Llama's weights in Hugging Face's format
  interleaved,  ///< numbers 2 i and 2 i + 1: the paper, GPT-J, and Llama's weights in Meta's format
};

/// Options of a Rope; fill it with designated initializers.
struct RopeOptions {
  /// Pair i rotates by base^(-2 i / rotary_dim) radians per position.
  double base = 10000.0;
  /// Positions are divided by it (position interpolation, arXiv:2306.15595).
  double scaling_factor = 1.0;
  /// How many numbers of a vector are rotated, counted from the first; even. The others do not change. 0: all.
  std::int64_t rotary_dim = 0;
  RopePairs pairs = RopePairs::half;  ///< which two numbers rotate together
  /// Radians per position of each pair, rotary_dim / 2 numbers, used instead of those from base: for YaRN or Llama
  /// 3.1, for example.
  std::vector<double> frequencies{};
};

/// A rotary position embedding (RoFormer, arXiv:2104.09864) for vectors of one length: (a, b), the pair i of the
/// vector at position p, becomes (a cos t - b sin t, b cos t + a sin t) with t = p * frequency i / scaling_factor.
/// The dot product of a rotated query and a rotated key then depends on the difference of their positions only.
///
/// Make one per model and keep it: it holds a table (512 KiB at 128 numbers) from which the sines and cosines of
/// any position follow by one complex product, exact to some 1e-16 (1 + |t|). Copies share the table. It never
/// changes, so threads may share it.
class Rope {
 public:
  /// For vectors of `dim` numbers. Throws std::invalid_argument when dim is not positive, rotary_dim is odd or not
  /// within 0 to dim, base or scaling_factor is not positive and finite, or frequencies are not finite or not
  /// rotary_dim / 2.
  explicit Rope(std::int64_t dim, const RopeOptions& options = {});

  std::int64_t dim() const { return dim_; }

  /// Options that make an equal embedding: rotary_dim, pairs and frequencies, already divided by scaling_factor.
  RopeOptions options() const;

  /// Writes x, rotated, to y: token i of every batch entry and head has position start + i. Shapes: both [batch,
  /// heads, seqlen, dim] (`layout` bshd: [batch, seqlen, heads, dim]); rank 3 has no batch, rank 2 neither batch
  /// nor heads. y may be x; otherwise they must not overlap. Any strides.
  ///
  /// Element types: any floating ones. Rotates in f32 (in f64 where x is f64) and rounds once, to y's type. A
  /// vector's bits depend only on the vector and its position. Uses num_threads() threads where there is enough
  /// work.
  ///
  /// Throws std::invalid_argument when shapes or types do not fit, or a position is beyond 2^40.
  void rotate(const TensorView& x, const MutableTensorView& y, std::int64_t start = 0,
              Layout layout = Layout::bhsd) const;

  /// The same with `positions`, that of each token: i32 or i64, [seqlen] or [batch, seqlen].
  void rotate(const TensorView& x, const MutableTensorView& y, const TensorView& positions,
              Layout layout = Layout::bhsd) const;

 private:
  std::int64_t dim_;
  std::shared_ptr<const detail::RopeTable> table_;
};

}  // namespace saccade
#pragma GCC visibility pop
