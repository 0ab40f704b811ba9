#include "saccade/attention_state.h"

#include <algorithm>
#include <array>
#include <tuple>
#include <utility>
#include <vector>

#include "attention/arguments.h"
#include "attention/transforms.h"
#include "backend/backend.h"
#include "core/check.h"
#include "core/conflicts.h"
#include "core/parallel.h"
#include "saccade/runtime.h"

namespace saccade {
namespace {

constexpr std::string_view kAdd = "AttentionState::add", kFinish = "AttentionState::finish";

/// A view with the shape of o for q and v; its data is q's and is never read.
TensorView shape_of_output(const TensorView& q, const TensorView& v, DType dtype) {
  TensorView o = q;
  o.dtype = dtype;
  if (o.rank > 0 && v.rank > 0) {
    o.shape[o.rank - 1U] = v.shape[v.rank - 1U];
    o.strides[o.rank - 1U] = 1;  // a q with a head_dim of 1 may have any
  }
  return o;
}

template <class Value>
void expect_same(const char* name, const Value& now, const Value& before) {
  if (now != before) refuse(kAdd, name, " is ", now, ", but it was ", before, " in the first call");
}
void expect_same(const char* name, DType now, DType before) { expect_same(name, name_of(now), name_of(before)); }
void expect_length(const char* name, const char* dim, std::int64_t now, std::int64_t before) {
  if (now != before) refuse(kAdd, name, " has ", dim, " ", now, ", but it had ", before, " in the first call");
}
void expect_given(const char* name, bool now, bool before) {
  if (now != before)
    refuse(kAdd, name,
           now ? " was given, but not in the first call" : " was not given, but in the first call it was");
}

void check_options(const AttentionOptions& options) {
  check_options_of(AttentionCall::attention_state, kAdd, options);
  if (options.causal == Causal::bottom_right && !options.query_offset && !options.query_offsets)
    refuse(kAdd, "causal bottom_right needs query_offset: a state does not know where the keys end");
}

void check_same_operands(const AttentionParams& now, const AttentionParams& before) {
  const char* const rows = now.cu_seqlens_q != nullptr ? "cu_seqlens_q" : "q";
  expect_length(rows, "batch", now.batch, before.batch);
  expect_length("q", "num_heads", now.num_heads, before.num_heads);
  expect_length("k", "num_kv_heads", now.num_kv_heads, before.num_kv_heads);
  expect_length(rows, "seqlen_q", now.seqlen_q, before.seqlen_q);
  expect_length("q", "head_dim", now.head_dim, before.head_dim);
  expect_length("v", "head_dim_v", now.head_dim_v, before.head_dim_v);
  expect_same("q", now.q.dtype, before.q.dtype);
  expect_same("k", now.k.dtype, before.k.dtype);
  expect_same("v", now.v.dtype, before.v.dtype);
}

void check_same_options(const AttentionParams& now, const AttentionParams& before) {
  expect_same("scale", now.scale, before.scale);
  // Lists every member, so that the compiler reports a new member that is missing here.
  const auto& [softcap, alibi_slopes, mask] = static_cast<const ScoreChanges&>(before);
  expect_same("softcap", now.softcap, softcap);
  expect_given("mask", now.mask.type != MaskType::none, mask.type != MaskType::none);
  expect_given("alibi_slopes", now.alibi_slopes.data != nullptr, alibi_slopes.data != nullptr);
  if (now.score_modifier != before.score_modifier)
    refuse(kAdd, "score_modifier is another one than in the first call");
  expect_given("causal", now.causal, before.causal);
  expect_same("window_left", now.window_left, before.window_left);
  expect_same("window_right", now.window_right, before.window_right);
  expect_same("dropout_p", now.dropout_p, before.dropout_p);
  expect_same("dropout_seed", now.dropout_seed, before.dropout_seed);
  expect_same("dropout_offset", now.dropout_offset, before.dropout_offset);
  for (const auto& [name, of_now, of_before] :
       {std::tuple{"origin.batch", now.origin.batch, before.origin.batch},
        {"origin.head", now.origin.head, before.origin.head},
        {"origin.num_heads", now.origin.num_heads, before.origin.num_heads},
        {"origin.row", now.origin.row, before.origin.row}})
    expect_same(name, of_now, of_before);
}

/// The scales of the channels of v, [batch, num_kv_heads, head_dim_v]; empty: none.
std::vector<float> channels_of_v(const AttentionArguments& arguments) {
  const ChannelScales& scales = arguments.v_channels;
  const AttentionParams& p = arguments.params;
  std::vector<float> all;
  for (std::int64_t b = 0; b < p.batch && scales.rows.data; ++b)
    for (std::int64_t head = 0; head < p.num_kv_heads; ++head)
      for (std::int64_t d = 0; d < p.head_dim_v; ++d)
        all.push_back(scales.rows.row<float>(b, head, 0)[d * scales.dim_stride]);
  return all;
}

/// The same shape, of a type without scales.
TensorView without_scales(TensorView view) {
  if (is_quantized(view.dtype)) view.dtype = DType::f32;
  return view;
}

}  // namespace

class AttentionState::Rows {
 public:
  explicit Rows(std::optional<DType> output) : output_(output) {
    if (output && !is_floating(*output))
      refuse("AttentionState", "output must be f32, bf16, f16 or f64, but it is ", name_of(*output));
  }

  void add(const TensorView& q, const TensorView& k, const TensorView& v, const AttentionOptions& options) {
    check_complete(kAdd);
    check_options(options);
    const DType output = output_.value_or(q.dtype);
    const AttentionOperands operands =
        check_operands(q, k, v, shape_of_output(q, v, output), nullptr, options, kAdd);
    const ThreadLimit limit(options.num_threads);
    const BackendScope scope(options.backend);
    AttentionArguments arguments(operands, q, k, v, options, kAdd, Outputs::ignored);
    AttentionParams& p = arguments.params;
    p.sinks = {};
    if (!has_begun_)
      begin(q, k, v, arguments, options);
    else
      check_same(q, arguments, options);
    is_complete_ = false;  // if a score modifier throws
    if (p.has_rows())
      with_transforms(
          arguments, [&](const AttentionParams& transformed) { state_->add(transformed); }, true, queries_);
    is_complete_ = true;
  }

  void finish(const MutableTensorView& o, const AttentionOptions& options) {
    check_complete(kFinish);
    if (!has_begun_) refuse(kFinish, "no keys have been added: call add() first");
    if (o.dtype != first_.o.dtype)
      refuse(kFinish, "o must be ", name_of(first_.o.dtype), ", the type that the state was made for, but it is ",
             name_of(o.dtype));
    AttentionOptions of_call{.scale = first_.scale,
                             .cu_seqlens_q = cu_seqlens_q_,
                             .cu_seqlens_k = cu_seqlens_k_,
                             .sinks = options.sinks,
                             .lse = options.lse,
                             .layout = layout_,
                             .num_threads = options.num_threads};
    if (!is_packed_) of_call.cu_seqlens_q = of_call.cu_seqlens_k = {};
    const AttentionOperands operands = check_operands(q_, k_, v_, o, o.mutable_data(), of_call, kFinish);
    const ThreadLimit limit(options.num_threads);
    const BackendScope scope(options.backend);
    AttentionArguments arguments(operands, q_, k_, v_, of_call, kFinish);
    AttentionParams& p = arguments.params;
    static_cast<ScoreChanges&>(p) = first_;
    p.score_modifier = first_.score_modifier;
    p.dropout_p = first_.dropout_p;
    restore_transforms(arguments);
    if (p.has_rows())
      with_transforms(
          arguments, [&](const AttentionParams& transformed) { state_->finish(transformed); }, false, queries_);
  }

  std::size_t bytes() const { return state_ ? state_->bytes() : 0; }

 private:
  void check_complete(std::string_view function) const {
    if (!is_complete_) refuse(function, "the state is incomplete, for an earlier call of add() failed");
  }

  void begin(const TensorView& q, const TensorView& k, const TensorView& v, const AttentionArguments& arguments,
             const AttentionOptions& options) {
    const AttentionParams& p = arguments.params;
    queries_ = changes_q(arguments, Bf16Queries::kept) ? Bf16Queries::widened : Bf16Queries::kept;
    if (p.has_rows())
      with_transforms(
          arguments,
          [&](const AttentionParams& transformed) { state_ = active_backend().attention_state(transformed); },
          false, queries_);
    k_rotated_ = arguments.k_rotated, v_rotated_ = arguments.v_rotated;
    v_channels_ = channels_of_v(arguments);
    is_packed_ = bool(options.cu_seqlens_q);
    if (is_packed_) {
      cu_seqlens_q_ = Tensor::copy_of(options.cu_seqlens_q);
      cu_seqlens_k_ = Tensor::copy_of(options.cu_seqlens_k);
    }
    isa_ = active_isa();
    layout_ = options.layout;
    first_ = p;
    q_ = q, k_ = without_scales(k), v_ = without_scales(v);
    has_begun_ = true;
  }

  /// What finish() must know of quantized keys and values, without their scales.
  void restore_transforms(AttentionArguments& arguments) const {
    AttentionParams& p = arguments.params;
    p.k.dtype = first_.k.dtype, p.v.dtype = first_.v.dtype;
    arguments.k_rotated = k_rotated_, arguments.v_rotated = v_rotated_;
    if (v_channels_.empty()) return;
    const std::int64_t dim = p.head_dim_v;
    arguments.v_channels = {.rows = {v_channels_.data(), DType::f32, p.num_kv_heads * dim, dim, 0},
                            .dim_stride = 1};
  }

  void check_same(const TensorView& q, const AttentionArguments& arguments,
                  const AttentionOptions& options) const {
    const AttentionParams& p = arguments.params;
    if (const Isa isa = active_isa(); isa != isa_)
      refuse(kAdd, "the instruction set is ", name_of(isa), ", but it was ", name_of(isa_), " in the first call");
    if (q.rank != q_.rank)
      refuse(kAdd, "q has shape ", to_string(q.dims()), ", but it had ", to_string(q_.dims()),
             " in the first call");
    if (options.layout != layout_) refuse(kAdd, "layout is another one than in the first call");
    expect_given("cu_seqlens_q", bool(options.cu_seqlens_q), is_packed_);
    check_same_operands(p, first_);
    for (std::int64_t b = 0; b <= p.batch && is_packed_; ++b)
      if (p.cu_seqlens_q[b] != static_cast<std::int64_t>(value_at(cu_seqlens_q_, std::array{b})))
        refuse(kAdd, "cu_seqlens_q[", b, "] is ", p.cu_seqlens_q[b],
               ", which is another one than in the first call");
    check_same_options(p, first_);
    expect_given("k_rotated", arguments.k_rotated, k_rotated_);
    expect_given("v_rotated", arguments.v_rotated, v_rotated_);
    const auto equal = [](float a, float b) {
      return std::bit_cast<std::uint32_t>(a) == std::bit_cast<std::uint32_t>(b);
    };
    if (p.q.dtype == DType::bf16 && queries_ == Bf16Queries::kept && changes_q(arguments, queries_))
      refuse(kAdd, "k_scale has scales of channels, but it had none in the first call; q is bf16");
    if (!std::ranges::equal(channels_of_v(arguments), v_channels_, equal))
      refuse(kAdd, "v_scale has other scales of channels than in the first call");
  }

  std::optional<DType> output_;
  bool has_begun_ = false, is_complete_ = true;
  // The parameters of the first call; nothing is read through their pointers and views.
  AttentionParams first_{};
  TensorView q_, k_, v_;
  Tensor cu_seqlens_q_, cu_seqlens_k_;
  bool is_packed_ = false, k_rotated_ = false, v_rotated_ = false;
  std::vector<float> v_channels_;  // [batch, num_kv_heads, head_dim_v]; empty: none
  Layout layout_ = Layout::bhsd;
  Bf16Queries queries_ = Bf16Queries::kept;  // kernels get queries of one type in all calls
  Isa isa_ = Isa::scalar;
  std::unique_ptr<ForwardState> state_;  // nullptr: there are no rows
};

AttentionState::AttentionState(std::optional<DType> output) : rows_(std::make_unique<Rows>(output)) {}
AttentionState::~AttentionState() = default;
AttentionState::AttentionState(AttentionState&&) noexcept = default;
AttentionState& AttentionState::operator=(AttentionState&&) noexcept = default;

void AttentionState::add(const TensorView& q, const TensorView& k, const TensorView& v,
                         const AttentionOptions& options) {
  if (!rows_) refuse(kAdd, "this state was moved from");
  rows_->add(q, k, v, options);
}

void AttentionState::finish(const MutableTensorView& o, const AttentionOptions& options) {
  if (!rows_) refuse(kFinish, "this state was moved from");
  rows_->finish(o, options);
}

std::size_t AttentionState::bytes() const { return rows_ ? rows_->bytes() : 0; }

}  // namespace saccade
