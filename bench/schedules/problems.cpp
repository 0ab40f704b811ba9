#include "problems.h"

#include <cmath>
#include <cstddef>

namespace saccade::simulation {
namespace {

/// 16 documents of 64 to 3,904 tokens, the longest in the middle.
std::vector<std::int64_t> unequal_documents() {
  const std::vector<std::int64_t> lengths{512,  128, 1024, 64,   2048, 256,  900, 3904,
                                          1500, 96,  700,  1200, 320,  2500, 180, 1052};
  std::vector<std::int64_t> ends{0};
  for (const std::int64_t length : lengths) ends.push_back(ends.back() + length);
  return ends;
}

template <class Void>
StridedHeads<Void> matrix(std::int64_t heads, std::int64_t rows, std::int64_t width, DType dtype) {
  return {nullptr, dtype, heads * rows * width, rows * width, width};
}

}  // namespace

std::span<const Problem> problems() {
  static const std::vector<Problem> all{
      {.name = "forward, 1 head, S 16384", .heads = 1, .kv_heads = 1, .rows = 16384, .keys = 16384},
      {.name = "forward, 8 heads, S 4096", .rows = 4096, .keys = 4096},
      {.name = "forward, 8 heads, S 4096, causal", .rows = 4096, .keys = 4096, .causal = true},
      {.name = "forward, 32 heads over 8, S 1024, causal",
       .heads = 32,
       .rows = 1024,
       .keys = 1024,
       .causal = true},
      {.name = "forward, batch 64, 12 heads, S 128",
       .batch = 64,
       .heads = 12,
       .kv_heads = 12,
       .rows = 128,
       .keys = 128},
      {.name = "forward, 16 documents of 64 to 3904 tokens, 8 heads, causal",
       .batch = 16,
       .rows = 3904,
       .keys = 3904,
       .causal = true,
       .document_ends = unequal_documents()},
      {.name = "backward, 1 head, S 4096",
       .pass = Pass::backward,
       .heads = 1,
       .kv_heads = 1,
       .rows = 4096,
       .keys = 4096},
      {.name = "backward, 8 heads, S 4096", .pass = Pass::backward, .rows = 4096, .keys = 4096},
      {.name = "backward, 8 heads, S 4096, causal",
       .pass = Pass::backward,
       .rows = 4096,
       .keys = 4096,
       .causal = true},
      {.name = "backward, batch 64, 12 heads, S 128",
       .pass = Pass::backward,
       .batch = 64,
       .heads = 12,
       .kv_heads = 12,
       .rows = 128,
       .keys = 128},
      {.name = "decode, 1 token, 32768 keys, 32 heads over 8",
       .pass = Pass::decode,
       .heads = 32,
       .rows = 1,
       .keys = 32768,
       .head_dim = 128},
      {.name = "decode, batch 16, 1 token each, 4096 keys, 32 heads over 8",
       .pass = Pass::decode,
       .batch = 16,
       .heads = 32,
       .rows = 1,
       .keys = 4096,
       .head_dim = 128},
  };
  return all;
}

AttentionParams attention_params(const Problem& problem, DType dtype) {
  const auto& c = problem;
  AttentionParams p{};
  p.batch = c.batch, p.num_heads = c.heads, p.num_kv_heads = c.kv_heads;
  p.seqlen_q = c.rows, p.seqlen_k = c.keys;
  p.head_dim = p.head_dim_v = c.head_dim;
  p.q = matrix<const void>(c.heads, c.rows, c.head_dim, dtype);
  p.k = p.v = matrix<const void>(c.kv_heads, c.keys, c.head_dim, dtype);
  p.o = matrix<void>(c.heads, c.rows, c.head_dim, dtype);
  p.scale = 1.0 / std::sqrt(static_cast<double>(c.head_dim));
  p.causal = c.causal;
  if (!c.document_ends.empty()) p.cu_seqlens_q = p.cu_seqlens_k = c.document_ends.data();
  return p;
}

BackwardParams backward_params(const Problem& problem, DType dtype) {
  static std::byte requested;
  BackwardParams b{};
  b.attention = attention_params(problem, dtype);
  b.o = b.dout = matrix<const void>(problem.heads, problem.rows, problem.head_dim, dtype);
  b.lse = matrix<const void>(problem.heads, problem.rows, 1, DType::f32);
  b.dq = matrix<void>(problem.heads, problem.rows, problem.head_dim, dtype);
  b.dk = b.dv = matrix<void>(problem.kv_heads, problem.keys, problem.head_dim, dtype);
  b.dq.data = b.dk.data = b.dv.data = &requested;
  return b;
}

}  // namespace saccade::simulation
