// The functions of the reference back end: a file for each, as the CPU has a schedule for each.
#pragma once

#include <memory>

#include "backend/backend.h"

namespace saccade::reference {

void run_attention(const AttentionParams& p);
std::unique_ptr<ForwardState> new_attention_state(const AttentionParams& p);
void run_decode_states(const AttentionParams& p, const DecodeStates& states);
void run_merge_decode_states(const AttentionParams& p, const DecodeStates& states);
void run_merge(const MergeParams& p);
void run_backward(const BackwardParams& p);
void run_inspect(const InspectParams& p);
void run_product(const ProductParams& p);
std::unique_ptr<PackedProduct> new_packed_product(const ProductParams& p);

}  // namespace saccade::reference
