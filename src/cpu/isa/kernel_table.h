// Collects the kernels of one instruction set into its KernelSet.
#pragma once

#include "cpu/attention/small.h"
#include "cpu/elementwise/activations.h"
#include "cpu/elementwise/convert.h"
#include "cpu/elementwise/layers.h"
#include "cpu/elementwise/optim.h"
#include "cpu/elementwise/quantize.h"
#include "cpu/gemm/packed_product.h"
#include "cpu/isa/attention_table.h"
#include "cpu/isa/limits.h"

namespace saccade::cpu::SACCADE_ISA_NAMESPACE {

constexpr KernelSet kernel_table(Isa isa, const AttentionKernels& f64, const PairKernels* pairs = nullptr,
                                 const AmxKernels* amx = nullptr, const ByteKernels* bytes = nullptr,
                                 const DecodeKernels* float8 = nullptr) {
  return {.isa = isa,
          .f32 = attention_table(),
          .f64 = &f64,
          .pairs = pairs,
          .amx = amx,
          .bytes = bytes,
          .float8 = float8,
          .forward_small = forward_small,
          .product = {.block = product,
                      .rows = kTileRows,
                      .columns = kProductColumns,
                      .scratch = kProductScratch,
                      .panel = kTileColumns},
          .packed_product = {.pack = pack_product,
                             .unpack = unpack_product,
                             .block = packed_product,
                             .rows = kPackedRows,
                             .scratch = kProductScratch},
          .product_small = product_small,
          .small_product_columns = kWidth,
          .layers = {.layer_norm = layer_norm,
                     .layer_norm_backward = layer_norm_backward,
                     .rms_norm = rms_norm,
                     .dropout = dropout,
                     .activate = activate,
                     .gelu_backward = gelu_backward,
                     .add_to = add_to,
                     .multiply = multiply,
                     .softmax_sum = softmax_sum,
                     .adamw = adamw,
                     .sgd = sgd},
          .conversions = {.narrow_to_bf16 = narrow_all<bfloat16>,
                          .narrow_to_f16 = narrow_all<float16>,
                          .widen_bf16 = widen_all<bfloat16>,
                          .widen_f16 = widen_all<float16>},
          .quantize = {.i8 = quantize_i8,
                       .i4 = quantize_i4,
                       .f8e4m3 = quantize_f8e4m3,
                       .read = read_quantized,
                       .hadamard = hadamard_row},
          .multiply_add_chains = multiply_add_chains,
          .chain_flops = kChainFlops,
          .read_all = read_all};
}

}  // namespace saccade::cpu::SACCADE_ISA_NAMESPACE
