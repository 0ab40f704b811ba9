// The sizes for the tests of every kernel. They are awkward on purpose: one, primes, one less and one more than a
// vector, a tile or a block, and sizes of real models.
#pragma once

#include <array>
#include <cstdint>
#include <ostream>

namespace saccade::test {

inline constexpr std::array<std::int64_t, 13> kSeqlens{1, 2, 3, 7, 16, 17, 63, 64, 65, 97, 129, 257, 1023};

inline constexpr std::array<std::int64_t, 14> kHeadDims{1, 3, 8, 31, 40, 59, 64, 72, 80, 96, 111, 128, 192, 256};

/// The sizes of one call of attention().
struct AttentionShape {
  std::int64_t batch, num_heads, num_kv_heads;
  std::int64_t seqlen_q, seqlen_k;
  std::int64_t head_dim, head_dim_v;

  friend std::ostream& operator<<(std::ostream& out, const AttentionShape& shape) {
    return out << "batch " << shape.batch << ", heads " << shape.num_heads << "/" << shape.num_kv_heads
               << ", seqlen " << shape.seqlen_q << "x" << shape.seqlen_k << ", head_dim " << shape.head_dim << "/"
               << shape.head_dim_v;
  }
};

/// One shape for each kind of awkwardness: heads that share keys, head_dim_v different from head_dim, more or
/// fewer queries than keys, a single query or key, and no elements.
inline constexpr std::array<AttentionShape, 24> kAttentionShapes{{
    {1, 1, 1, 1, 1, 1, 1},       {1, 1, 1, 6, 6, 3, 4},        {1, 1, 1, 1, 3, 3, 3},
    {2, 3, 3, 2, 1, 8, 8},       {1, 2, 1, 7, 7, 31, 31},      {2, 4, 2, 17, 17, 40, 40},
    {1, 8, 2, 3, 129, 64, 64},   {1, 6, 3, 16, 63, 59, 31},    {1, 1, 1, 64, 64, 64, 64},
    {1, 2, 2, 65, 65, 64, 72},   {1, 2, 2, 63, 97, 72, 64},    {1, 2, 2, 97, 63, 80, 80},
    {1, 1, 1, 129, 257, 96, 1},  {1, 1, 1, 257, 129, 1, 96},   {1, 2, 1, 113, 203, 111, 111},
    {1, 1, 1, 239, 1, 128, 128}, {1, 1, 1, 1, 1023, 128, 128}, {1, 4, 1, 2, 257, 128, 64},
    {1, 1, 1, 799, 3, 192, 128}, {1, 1, 1, 65, 65, 256, 256},  {0, 2, 2, 3, 3, 8, 8},
    {2, 0, 0, 3, 3, 8, 8},       {2, 2, 2, 0, 3, 8, 8},        {2, 2, 2, 3, 0, 8, 8},
}};

}  // namespace saccade::test
