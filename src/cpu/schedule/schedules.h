// How the CPU divides a call among its threads and packs its keys: one function, in a file of its own, for each
// function of the back end.
#pragma once

#include "cpu/kernels.h"

namespace saccade::cpu {

class HeadStates;

/// Heads of few keys and dimensions, without packing or scratch memory. Returns whether it has computed all of o.
bool run_small(const KernelSet& kernels, const AttentionOperands& p);

void run_forward(const ForwardKernels& kernels, const AttentionParams& p);
/// The same, adding the keys to the states of rows instead of writing results.
void run_resume(const ForwardKernels& kernels, const AttentionParams& p, const HeadStates& states);
void run_decode(const DecodeKernels& kernels, const AttentionParams& p);
void run_decode_states(const DecodeKernels& kernels, const AttentionParams& p, const DecodeStates& states);
void run_merge_decode_states(const DecodeKernels& kernels, const AttentionParams& p, const DecodeStates& states);
void run_merge(const MergeKernels& kernels, const MergeParams& p);
void run_backward(const BackwardKernels& kernels, const BackwardParams& p);
void run_inspect(const InspectKernels& kernels, const InspectParams& p);
void run_product(const KernelSet& kernels, const ProductParams& p);

}  // namespace saccade::cpu
