// Rotary position embedding: queries and keys turned by angles that grow with their position.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "saccade/attention.h"
#include "saccade/tensor.h"

namespace saccade {

namespace detail {
struct RopeTable;
}

/// Which two of a vector's numbers are pair i, which one frequency turns.
enum class RopePairs : std::uint8_t {
  half,         ///< numbers i and i + rotary_dim / 2: GPT-NeoX, and Llama's weights as Hugging Face has them
  interleaved,  ///< numbers 2 i and 2 i + 1: the paper, GPT-J, and Llama's weights as Meta has them
};

/// Which rotary embedding; fill it with designated initialisers.
struct RopeOptions {
  /// Pair i turns by base^(-2 i / rotary_dim) radians a position.
  double base = 10000.0;
  /// Positions are divided by it (position interpolation, arXiv:2306.15595).
  double scaling_factor = 1.0;
  /// How many of a vector's numbers, counted from the first, are turned: even; the others stay. 0: all.
  std::int64_t rotary_dim = 0;
  RopePairs pairs = RopePairs::half;
  /// Radians a position of each pair, rotary_dim / 2 of them, instead of those that follow from base: what YaRN
  /// or Llama 3.1 make of them.
  std::vector<double> frequencies{};
};

/// A rotary position embedding (RoFormer, arXiv:2104.09864) for vectors of one length: (a, b), the pair i of the
/// vector at position p, becomes (a cos t - b sin t, b cos t + a sin t) with t = p * frequency i / scaling_factor.
/// The dot product of a rotated query and a rotated key then depends on the difference of their positions only.
///
/// Make one for a model and keep it: it holds a table (512 KiB at 128 numbers) from which the sines and cosines of
/// any position follow by one complex product, exact to some 1e-16 (1 + |t|). Copies share the table. Never
/// changes, so that threads may share it.
class Rope {
 public:
  /// For vectors of `dim` numbers. Throws std::invalid_argument when dim is not positive, rotary_dim is odd or not
  /// within 0 to dim, base or scaling_factor is not positive and finite, or frequencies are not finite or not
  /// rotary_dim / 2.
  explicit Rope(std::int64_t dim, const RopeOptions& options = {});

  std::int64_t dim() const { return dim_; }

  /// Writes x, rotated, to y: token i of every batch entry and head stands at position start + i. Shapes: both
  /// [batch, heads, seqlen, dim] (Layout::blhd: [batch, seqlen, heads, dim]); rank 3 has no batch, rank 2 neither
  /// batch nor heads. y may be x; otherwise they must not overlap. Any strides.
  ///
  /// Element types: any floating ones. Numbers are turned in f32 (where x is f64: in f64) and rounded once, to y's
  /// type. A vector's bits depend on it and its position only. Uses num_threads() threads where it is worth it.
  ///
  /// Throws std::invalid_argument when shapes or types do not fit, or a position is beyond 2^40.
  void rotate(const TensorView& x, const MutableTensorView& y, std::int64_t start = 0,
              Layout layout = Layout::bhld) const;

  /// The same with the position of each token: i32 or i64, [seqlen] or [batch, seqlen].
  void rotate(const TensorView& x, const MutableTensorView& y, const TensorView& positions,
              Layout layout = Layout::bhld) const;

 private:
  std::int64_t dim_;
  std::shared_ptr<const detail::RopeTable> table_;
};

}  // namespace saccade
