// The calls whose schedules are simulated.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "backend/attention_params.h"

namespace saccade::simulation {

enum class Pass { forward, backward, decode };

/// A call by its sizes.
struct Problem {
  std::string name;
  Pass pass = Pass::forward;
  std::int64_t batch = 1, heads = 8, kv_heads = 8, rows = 0, keys = 0, head_dim = 64;
  bool causal = false;
  std::vector<std::int64_t> document_ends = {};  // a packed batch: 0, and where each document ends
};

/// The problems of the table, in its order.
std::span<const Problem> problems();

/// Contiguous tensors without memory, of `dtype`. `problem` must outlive the result.
AttentionParams attention_params(const Problem& problem, DType dtype);
/// The same; dq, dk and dv are requested, and their pointers are not to be read.
BackwardParams backward_params(const Problem& problem, DType dtype);

}  // namespace saccade::simulation
