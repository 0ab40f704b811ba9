#include "attention_node.h"

#include <algorithm>
#include <limits>
#include <vector>

#include "saccade/decode.h"

namespace saccade::onnxruntime {
namespace {

[[noreturn]] void refuse(const std::string& name, const std::string& wanted, const std::string& got) {
  throw std::invalid_argument(name + ": expected " + wanted + ", got " + got);
}

std::string shape_of(const TensorView& view) { return to_string(view.dims()); }

Attributes read_attributes(const Api& api, const OrtKernelInfo* info) {
  const auto integer = [&](const char* name) { return api.integer(info, name); };
  Attributes a;
  const auto causal = integer("is_causal").value_or(0), mode = integer("qk_matmul_output_mode").value_or(0);
  if (causal != 0 && causal != 1) refuse("is_causal", "0 or 1", std::to_string(causal));
  if (mode < 0 || mode > 3) refuse("qk_matmul_output_mode", "0, 1, 2 or 3", std::to_string(mode));
  a.is_causal = causal == 1;
  a.qk_matmul_output_mode = mode;
  a.left_window_size = integer("left_window_size").value_or(-1);
  a.right_window_size = integer("right_window_size").value_or(-1);
  for (const auto& [name, size] :
       {std::pair{"left_window_size", a.left_window_size}, {"right_window_size", a.right_window_size}})
    if (size < -1) refuse(name, "-1 (open) or more", std::to_string(size));
  a.q_num_heads = integer("q_num_heads");
  a.kv_num_heads = integer("kv_num_heads");
  for (const auto& [name, heads] : {std::pair{"q_num_heads", a.q_num_heads}, {"kv_num_heads", a.kv_num_heads}})
    if (heads && *heads < 1) refuse(name, "1 or more", std::to_string(*heads));
  if (const auto type = integer("softmax_precision")) {
    if (*type != kFloat && *type != kFloat16 && *type != kDouble && *type != kBfloat16)
      refuse("softmax_precision", "one of 1 (float), 10 (float16), 11 (double), 16 (bfloat16)",
             std::to_string(*type));
    a.in_double = *type == kDouble;
  }
  a.scale = api.number(info, "scale");
  a.softcap = api.number(info, "softcap").value_or(0);
  if (!(a.softcap >= 0)) refuse("softcap", "0 (off) or a positive number", std::to_string(a.softcap));
  return a;
}

bool is_mask_type(int type) {
  return type == kBool || type == kFloat || type == kFloat16 || type == kDouble || type == kBfloat16;
}

/// `array` as [batch, heads, seqlen, size], of rank 3 [batch, seqlen, heads * size].
TensorView split_heads(const TensorView& array, std::int64_t heads) {
  const std::int64_t size = array.shape[2] / heads, width = array.shape[2];
  const std::array<std::int64_t, 4> lengths = {array.shape[0], heads, array.shape[1], size},
                                    strides = {array.shape[1] * width, size, width, 1};
  return {array.data, array.dtype, lengths, strides};
}

MutableTensorView split_heads(const MutableTensorView& array, std::int64_t heads) {
  const TensorView view = split_heads(static_cast<const TensorView&>(array), heads);
  return {array.mutable_data(), view.dtype, view.dims(), {view.strides.data(), view.rank}};
}

/// The mask over all keys; those beyond its end are hidden.
Tensor spanning(const TensorView& mask, std::int64_t seqlen_k) {
  Shape shape(mask.dims().begin(), mask.dims().end());
  const std::int64_t given = shape.back();
  shape.back() = seqlen_k;
  Tensor padded(mask.dtype, shape);
  if (mask.dtype == DType::f32) std::ranges::fill(padded.values<float>(), -std::numeric_limits<float>::infinity());
  if (mask.dtype == DType::f64)
    std::ranges::fill(padded.values<double>(), -std::numeric_limits<double>::infinity());
  copy(mask, padded.mutable_view().slice(mask.rank - 1, 0, given));
  return padded;
}

/// The cache with the new keys or values behind it, written to `present`.
void append(const TensorView& past, const TensorView& added, const MutableTensorView& present) {
  const std::int64_t before = past.shape[2];
  copy(past, present.slice(2, 0, before));
  copy(added, present.slice(2, before, before + added.shape[2]));
}

}  // namespace

/// One run of a node.
struct AttentionNode::Call {
  std::array<TensorView, kInputs> inputs;
  TensorView q, k, v;  ///< [batch, heads, seqlen, size]
  AttentionOptions options;
  std::vector<Tensor> held;  ///< what the views above refer to besides inputs
  std::vector<std::int64_t> offsets;

  TensorView hold(Tensor tensor) { return held.emplace_back(std::move(tensor)); }
};

AttentionNode::AttentionNode(const Api& api, const OrtKernelInfo* info, int num_threads)
    : api_(api), attributes_(read_attributes(api, info)), num_threads_(num_threads) {
  const auto inputs = api.input_names(info), outputs = api.output_names(info);
  for (std::size_t i = 0; i < kInputs; ++i) has_input_[i] = i < inputs.size() && !inputs[i].empty();
  for (std::size_t i = 0; i < kOutputs; ++i) wants_[i] = i < outputs.size() && !outputs[i].empty();
  check_inputs(info);
}

void AttentionNode::check_inputs(const OrtKernelInfo* info) const {
  const std::array<std::pair<const char*, bool>, 4> cache = {
      {{kInputNames[kPastKey], has_input_[kPastKey]},
       {kInputNames[kPastValue], has_input_[kPastValue]},
       {kOutputNames[kPresentKey], wants_[kPresentKey]},
       {kOutputNames[kPresentValue], wants_[kPresentValue]}}};
  const auto given = std::ranges::count(cache, true, &std::pair<const char*, bool>::second);
  if (given != 0 && given != 4) {
    const auto missing = std::ranges::find(cache, false, &std::pair<const char*, bool>::second);
    throw std::invalid_argument(std::string(missing->first) +
                                ": past and present keys and values must all be given, but it is missing");
  }
  if (given != 0 && has_input_[kNonpadKvSeqlen])
    refuse("nonpad_kv_seqlen", "without past and present keys and values", "both");
  if (!has_input_[kMask]) return;
  if (const int type = api_.input_type(info, kMask); type != kUndefined && !is_mask_type(type))
    refuse("attn_mask", "bool (True = attend) or floating (added)", element_name(type));
}

TensorView AttentionNode::heads_of(const TensorView& array, Input which) const {
  const std::string name = kInputNames[which], attribute = which == kQ ? "q_num_heads" : "kv_num_heads";
  const auto& heads = which == kQ ? attributes_.q_num_heads : attributes_.kv_num_heads;
  if (array.rank == 4) {
    if (heads && *heads != array.shape[1])
      refuse(attribute, "the " + std::to_string(array.shape[1]) + " heads that " + name + " has",
             std::to_string(*heads));
    return array;
  }
  if (!heads)
    throw std::invalid_argument(attribute + ": expected, for " + name + " has rank 3 (shape " + shape_of(array) +
                                "), but not given");
  if (array.shape[2] % *heads != 0)
    throw std::invalid_argument(attribute + ": " + name + " is " + std::to_string(array.shape[2]) +
                                " wide, which is no multiple of " + std::to_string(*heads));
  return split_heads(array, *heads);
}

void AttentionNode::check_types(const Call& call) const {
  const auto& [q, k, v, mask, past_key, past_value, lengths] = call.inputs;
  for (const auto& [name, array, like, other] :
       {std::tuple{"K", &k, "Q", &q}, {"past_key", &past_key, "Q", &q}, {"past_value", &past_value, "V", &v}})
    if (*array && array->dtype != other->dtype)
      refuse(name, "the type of " + std::string(like) + ", " + std::string(name_of(other->dtype)),
             std::string(name_of(array->dtype)));
  for (const auto* array : {&k, &v})
    if (array->rank != q.rank || q.rank < 3)
      throw std::invalid_argument("Q, K and V: expected all of rank 4 or all of rank 3, got shapes " +
                                  shape_of(q) + ", " + shape_of(k) + " and " + shape_of(v));
  if (lengths && (lengths.dtype != DType::i64 || lengths.rank != 1 || lengths.shape[0] != q.shape[0]))
    refuse("nonpad_kv_seqlen", "int64 [" + std::to_string(q.shape[0]) + "]",
           std::string(name_of(lengths.dtype)) + " " + shape_of(lengths));
  for (const auto& [name, past, added] :
       {std::tuple{"past_key", &past_key, &call.k}, {"past_value", &past_value, &call.v}}) {
    if (!*past) continue;
    bool fits = past->rank == 4;
    for (const int dim : {0, 1, 3}) fits = fits && past->shape[dim] == added->shape[dim];
    if (!fits)
      refuse(name, "[batch, kv_num_heads, past_sequence_length, size] as the new one, " + shape_of(*added),
             shape_of(*past));
  }
}

void AttentionNode::fill_options(Call& call) const {
  const auto& [q, k, v, mask, past_key, past_value, lengths] = call.inputs;
  AttentionOptions& options = call.options;
  const std::int64_t seqlen_q = call.q.shape[2];
  options.causal = attributes_.is_causal ? Causal::top_left : Causal::none;
  options.window_left = attributes_.left_window_size;
  options.window_right = attributes_.right_window_size;
  options.scale = attributes_.scale;
  options.softcap = attributes_.softcap;
  options.num_threads = num_threads_;
  options.query_offset = past_key ? past_key.shape[2] : 0;
  if (lengths) {
    options.kv_lengths = lengths;
    for (std::int64_t b = 0; b < lengths.shape[0]; ++b)
      call.offsets.push_back(lengths.as<std::int64_t>()[b] - seqlen_q);
    options.query_offset.reset();
    options.query_offsets = TensorView(call.offsets.data(), {lengths.shape[0]});
  }
  if (mask) {
    options.mask = mask;
    if (mask.dtype == DType::f16 || mask.dtype == DType::bf16)
      options.mask = call.hold(Tensor::copy_of(mask, DType::f32));
    if (mask.shape[mask.rank - 1] < call.k.shape[2])
      options.mask = call.hold(spanning(options.mask, call.k.shape[2]));
  }
}

void AttentionNode::run(OrtKernelContext* context) const {
  Call call;
  for (std::size_t i = 0; i < kInputs; ++i) call.inputs[i] = api_.input(context, i, kInputNames[i]);
  const auto& [q, k, v, mask, past_key, past_value, lengths] = call.inputs;
  if (q.rank < 3 || k.rank != q.rank || v.rank != q.rank) check_types(call);
  call.q = heads_of(q, kQ);
  call.k = heads_of(k, kK);
  call.v = heads_of(v, kV);
  check_types(call);
  for (const auto& [which, past, added] :
       {std::tuple{kPresentKey, &past_key, &call.k}, {kPresentValue, &past_value, &call.v}}) {
    if (!*past) continue;
    const Shape shape = {added->shape[0], added->shape[1], past->shape[2] + added->shape[2], added->shape[3]};
    const MutableTensorView present = api_.output(context, which, added->dtype, shape);
    append(*past, *added, present);
    *added = present;
  }
  fill_options(call);
  compute(context, call);
}

void AttentionNode::compute(OrtKernelContext* context, Call& call) const {
  const DType dtype = call.q.dtype;
  const bool in_double = attributes_.in_double || dtype == DType::f64 || call.v.dtype == DType::f64;
  const Shape full = {call.q.shape[0], call.q.shape[1], call.q.shape[2], call.v.shape[3]};
  const bool as_rows = call.inputs[kQ].rank == 3;
  const MutableTensorView y =
      as_rows ? split_heads(api_.output(context, kY, dtype, {full[0], full[2], full[1] * full[3]}), full[1])
              : api_.output(context, kY, dtype, full);
  const Shape square = {full[0], full[1], full[2], call.k.shape[2]};
  const MutableTensorView scores =
      wants_[kQkMatmulOutput] ? api_.output(context, kQkMatmulOutput, dtype, square) : MutableTensorView();
  const DType precise = in_double ? DType::f64 : DType::f32;
  Tensor wide_y, wide_scores;
  if (in_double)
    for (TensorView* view : {&call.q, &call.k, &call.v})
      if (view->dtype != DType::f64) *view = call.hold(Tensor::copy_of(*view, DType::f64));
  if (in_double && dtype != DType::f64) wide_y = Tensor(DType::f64, full);
  if (scores && dtype != precise) wide_scores = Tensor(precise, square);
  if (scores) {
    call.options.scores = dtype == precise ? scores : wide_scores.mutable_view();
    call.options.score_stage = static_cast<ScoreStage>(attributes_.qk_matmul_output_mode);
  }
  const MutableTensorView o = wide_y.rank() > 0 ? wide_y.mutable_view() : y;
  if (is_decode_faster(full[2], call.k.shape[2], full[1] / std::max<std::int64_t>(call.k.shape[1], 1)))
    decode(call.q, call.k, call.v, o, call.options);
  else
    attention(call.q, call.k, call.v, o, call.options);
  if (wide_y.rank() > 0) copy(wide_y, y);
  if (wide_scores.rank() > 0) copy(wide_scores, scores);
}

}  // namespace saccade::onnxruntime
