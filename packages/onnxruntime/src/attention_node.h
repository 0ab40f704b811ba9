// A node Attention of ONNX (opsets 23 to 25).
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>

#include "runtime.h"
#include "saccade/attention.h"

namespace saccade::onnxruntime {

enum Input : std::size_t { kQ, kK, kV, kMask, kPastKey, kPastValue, kNonpadKvSeqlen, kInputs };
enum Output : std::size_t { kY, kPresentKey, kPresentValue, kQkMatmulOutput, kOutputs };

inline constexpr std::array<const char*, kInputs> kInputNames = {
    "Q", "K", "V", "attn_mask", "past_key", "past_value", "nonpad_kv_seqlen"};
inline constexpr std::array<const char*, kOutputs> kOutputNames = {"Y", "present_key", "present_value",
                                                                   "qk_matmul_output"};

/// The attributes with the operator's defaults.
struct Attributes {
  bool is_causal = false;
  std::optional<std::int64_t> q_num_heads, kv_num_heads;
  std::int64_t left_window_size = -1, right_window_size = -1;
  std::int64_t qk_matmul_output_mode = 0;
  std::optional<double> scale;
  double softcap = 0;
  bool in_double = false;  ///< softmax_precision is DOUBLE; lower ones are computed in f32 too
};

/// A node of a session: checked once, when the session is made, and run any number of times, from any thread.
///
/// It follows the operator's text in onnx 1.23 in every opset: softcap comes before the mask, is_causal counts
/// from the end of the cache, and rows that see no key are 0. Sums and softmax are computed in f32, or in f64 if
/// an input or softmax_precision is; Y and qk_matmul_output are rounded once to the type of Q.
class AttentionNode {
 public:
  /// Throws std::invalid_argument for attributes, inputs and outputs that do not go together; names them.
  AttentionNode(const Api& api, const OrtKernelInfo* info, int num_threads);

  /// Computes the outputs. Throws std::invalid_argument for inputs that do not fit; names them.
  void run(OrtKernelContext* context) const;

 private:
  struct Call;

  void check_inputs(const OrtKernelInfo* info) const;
  TensorView heads_of(const TensorView& array, Input which) const;
  void check_types(const Call& call) const;
  void fill_options(Call& call) const;
  void compute(OrtKernelContext* context, Call& call) const;

  Api api_;
  Attributes attributes_;
  std::array<bool, kInputs> has_input_{};
  std::array<bool, kOutputs> wants_{};
  int num_threads_;
};

}  // namespace saccade::onnxruntime
