// Reproducible random numbers: PyTorch's and NumPy's seeded generators, and dropout that depends on positions
// only.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <random>

#include "saccade/tensor.h"

#pragma GCC visibility push(default)
namespace saccade {

/// The two ways in which PyTorch builds draw a dropout mask.
enum class TorchBuild : std::uint8_t {
  /// A 53-bit uniform number for each element: macOS, ARM and every other build without MKL, and the later
  /// builds with it (checked: 2.9.1 and 2.15.0).
  generic,
  /// One number seeds an MKL stream, which draws the mask: earlier x86-64 builds with MKL (checked: 2.3.1 and
  /// 2.6.0).
  mkl,
};

/// PyTorch's CPU generator after `torch.manual_seed(seed)`: the same calls in the same order give the same
/// numbers. Tensors are f32 and filled in C order.
///
/// Every bit equals that of PyTorch on x86-64 with AVX2 or AVX-512 (compared with 2.3.1 and 2.15.0). On other
/// processors PyTorch itself rounds differently: `uniform` and all that depends on it by up to one unit in the
/// last place of the larger bound, `randn` of 16 elements or more by up to 2.2e-6 (measured with PyTorch's own
/// fallback code). docs/random.md describes what was compared and how.
///
/// Every function with a shape argument throws std::invalid_argument when element_count rejects it.
class TorchGenerator {
 public:
  /// MT19937 seeded with the low 32 bits of `seed`, as in PyTorch; write -1 as ~0ull.
  explicit TorchGenerator(std::uint64_t seed);

  /// The next output of the Mersenne Twister.
  std::uint32_t next32();

  /// Two outputs, the first one in the high half.
  std::uint64_t next64();

  /// `torch.rand(shape)`: multiples of 2^-24 in [0, 1).
  Tensor rand(const Shape& shape);

  /// `torch.empty(shape).uniform_(low, high)`: fma(u, high - low, low) in f32 with u as from rand.
  /// Throws std::invalid_argument when low > high or one of them, or their difference, is not finite.
  Tensor uniform(const Shape& shape, float low, float high);

  /// `torch.randn(shape)`: the standard normal distribution by the Box-Muller transform. Fewer than 16 elements
  /// are drawn one by one in f64; the second number of a pair is kept for the next element or call. From 16 on,
  /// uniform numbers are transformed in f32 in blocks of 16 that pair element j with j + 8; if the size is not a
  /// multiple of 16, the last 16 elements are drawn again.
  Tensor randn(const Shape& shape);

  /// `torch.empty(shape).normal_(mean, stddev)`. Throws std::invalid_argument for a negative stddev.
  Tensor normal(const Shape& shape, double mean, double stddev);

  /// `torch.nn.init.xavier_uniform_(torch.empty(shape))`: uniform in +-sqrt(6 / (fan_in + fan_out)), where
  /// fan_in is shape[1] and fan_out shape[0], each times the product of the remaining lengths.
  /// Throws std::invalid_argument for a rank below 2 and when both fans are 0.
  Tensor xavier_uniform(const Shape& shape);

  /// `torch.nn.init.xavier_normal_(torch.empty(shape))`: normal with stddev sqrt(2 / (fan_in + fan_out)).
  /// Throws std::invalid_argument for a rank below 2 and when both fans are 0.
  Tensor xavier_normal(const Shape& shape);

  /// The parameters of a new `torch.nn.Linear(d_in, d_out, bias)`.
  struct Linear {
    Tensor weight;  ///< [d_out, d_in]
    Tensor bias;    ///< [d_out], or the empty tensor of rank 0 without bias
  };

  /// `torch.nn.Linear(d_in, d_out, bias)`: weight, then bias, uniform in +-1/sqrt(d_in).
  /// Throws std::invalid_argument unless d_in and d_out are positive.
  Linear linear(std::int64_t d_in, std::int64_t d_out, bool bias = true);

  /// The elements that `torch.nn.functional.dropout` keeps of a tensor of this shape: boolean, true = keep. The
  /// caller scales the kept ones by 1 / (1 - p). `p` is the probability of dropping. As in PyTorch, p = 0 (keeps
  /// all) and p = 1 (keeps none) draw nothing. The published worked examples print masks of the generic build.
  /// Throws std::invalid_argument unless 0 <= p <= 1.
  Tensor dropout_mask(const Shape& shape, double p, TorchBuild build = TorchBuild::generic);

 private:
  float next_uniform();
  double next_normal();

  std::mt19937 engine_;
  std::optional<double> spare_normal_;
};

/// NumPy's legacy generator after `np.random.seed(seed)`, which is `np.random.RandomState(seed)`: the same calls
/// in the same order give the same numbers. (`np.random.default_rng` is a different generator.)
///
/// Every function with a shape argument throws std::invalid_argument when element_count rejects it.
class NumpyRandomState {
 public:
  explicit NumpyRandomState(std::uint32_t seed);

  /// The next output of the Mersenne Twister.
  std::uint32_t next32();

  /// `np.random.randint(high, size=shape)`: i64 in [0, high), by masked rejection.
  /// Throws std::invalid_argument unless high > 0.
  Tensor randint(std::int64_t high, const Shape& shape);

  /// `np.random.randint(low, high, size=shape)` with the default dtype int64: i64 in [low, high).
  /// Throws std::invalid_argument unless low < high.
  Tensor randint(std::int64_t low, std::int64_t high, const Shape& shape);

  /// `np.random.random_sample(shape)`, alias `np.random.rand`: f64, multiples of 2^-53 in [0, 1).
  Tensor random_sample(const Shape& shape);

  /// `np.random.standard_normal(shape)`, alias `np.random.randn`: f64, by Marsaglia's polar method; the second
  /// number of a pair is kept for the next element or call.
  Tensor standard_normal(const Shape& shape);

 private:
  std::uint64_t next64();
  double next_double();
  double next_normal();

  std::mt19937 engine_;
  std::optional<double> spare_normal_;
};

/// The counter-based generator Philox4x32-10: four random words as a pure function of counter and key.
/// (Salmon, Moraes, Dror, Shaw: Parallel random numbers: as easy as 1, 2, 3. SC 2011.)
std::array<std::uint32_t, 4> philox4x32_10(std::array<std::uint32_t, 4> counter, std::array<std::uint32_t, 2> key);

/// The seed of stream `index` derived from `seed`: the first two words of Philox4x32-10 for the counter (low half
/// of index, high half of index, 0, 0) and seed as the key.
std::uint64_t derived_seed(std::uint64_t seed, std::uint64_t index);

/// Whether attention()'s dropout keeps one weight. The result depends on the weight's position only, not on tiles,
/// threads or the direction of the pass.
///
/// `seed` and `offset` are those of the call, `batch_head` is batch * num_heads + head, `row` the query, `column`
/// the key, `p` the probability of dropping. The draw is Philox4x32-10 with
///     key     = (low half of seed, high half of seed)
///     counter = (offset, batch_head, row, (column / 64) * 16 + column % 16)
/// and its word (column / 16) % 4: one call serves columns c, c + 16, c + 32 and c + 48, so that vectors of
/// consecutive columns need no shuffles. The weight is kept iff word >= p * 2^32.
/// Throws std::invalid_argument unless 0 <= p <= 1.
bool dropout_keeps(std::uint64_t seed, std::uint32_t offset, std::uint32_t batch_head, std::uint32_t row,
                   std::uint32_t column, double p);

}  // namespace saccade
#pragma GCC visibility pop
