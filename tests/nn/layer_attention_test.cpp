#include "saccade/layer_attention.h"

#include <gmock/gmock.h>

#include <optional>
#include <vector>

#include "saccade/attention.h"
#include "saccade/attention_modules.h"
#include "saccade/random.h"
#include "support/refusal.h"

namespace saccade::test {
namespace {

using ::testing::HasSubstr;

/// Layer 1 of 4 query heads that share 2 key heads, over 3 tokens.
struct Layer {
  Tensor q, k, v, o;

  Layer() {
    TorchGenerator random(5);
    q = random.randn({3, 4, 2}), k = random.randn({3, 2, 2}), v = random.randn({3, 2, 2});
    o = attention(q, k, v, {.layout = Layout::bshd});
  }
  LayerAttention view() { return {.layer = 1, .q = q, .k = k, .v = v, .o = o.mutable_view()}; }
};

std::vector<float> head_of(const Tensor& o, std::int64_t head) {
  const Tensor copy = Tensor::copy_of(o.view().select(1, head));
  return {copy.values<float>().begin(), copy.values<float>().end()};
}

TEST(EditHeads, ChangesTheHeadsThatAreNamedAndNoOthers) {
  Layer layer;
  const Tensor before = layer.o;
  const HeadEdit edits[] = {
      {.place = {1, 2}}, {.place = {1, 0}, .replaced_by = Ablation::mean}, {.place = {0, 1}}};
  edit_heads(layer.view(), edits);
  EXPECT_THAT(head_of(layer.o, 2), ::testing::Each(0.0f));
  EXPECT_EQ(head_of(layer.o, 1), head_of(before, 1));
  EXPECT_EQ(head_of(layer.o, 3), head_of(before, 3));
  for (const std::int64_t d : {0, 1}) {
    const float mean = (before.at<float>(0, 0, d) + before.at<float>(1, 0, d) + before.at<float>(2, 0, d)) / 3;
    for (const std::int64_t i : {0, 1, 2}) EXPECT_NEAR(layer.o.at<float>(i, 0, d), mean, 1e-6) << i << d;
  }
}

TEST(EditHeads, WeightsTakeTheValuesOfTheirKeyHead) {
  Layer layer;
  const Tensor weights = Tensor::of<float>({{1, 0, 0}, {0.5, 0.5, 0}, {0, 0, 2}});
  const HeadEdit edits[] = {{.place = {1, 3}, .weights = weights}};
  edit_heads(layer.view(), edits);
  for (const std::int64_t d : {0, 1}) {
    const auto v = [&](std::int64_t j) { return layer.v.at<float>(j, 1, d); };  // heads 2 and 3 read key head 1
    EXPECT_FLOAT_EQ(layer.o.at<float>(0, 3, d), v(0));
    EXPECT_FLOAT_EQ(layer.o.at<float>(1, 3, d), 0.5f * v(0) + 0.5f * v(1));
    EXPECT_FLOAT_EQ(layer.o.at<float>(2, 3, d), 2 * v(2));
  }
}

TEST(EditHeads, SayWhichAttentionTheyAreOf) {
  const auto changes = [](AttentionKind kind, std::optional<AttentionKind> named) {
    Layer layer;
    LayerAttention view = layer.view();
    view.kind = kind;
    const Tensor before = layer.o;
    const HeadEdit edits[] = {{.place = {1, 2}, .kind = named}};
    edit_heads(view, edits);
    return head_of(layer.o, 2) != head_of(before, 2);
  };
  constexpr AttentionKind kKinds[] = {AttentionKind::encoder, AttentionKind::decoder, AttentionKind::cross};
  for (const AttentionKind kind : kKinds) {
    for (const AttentionKind named : kKinds) EXPECT_EQ(changes(kind, named), kind == named);
    EXPECT_EQ(changes(kind, std::nullopt), kind != AttentionKind::cross);
  }
}

TEST(EditHeads, TakesTheMeanOverEachOfSeveralTexts) {
  Layer layer;
  const Tensor begins = Tensor::of<std::int32_t>({0, 1, 3}), before = layer.o;
  LayerAttention view = layer.view();
  view.options.cu_seqlens_q = view.options.cu_seqlens_k = begins;
  const HeadEdit edits[] = {{.place = {1, 3}, .replaced_by = Ablation::mean}};
  edit_heads(view, edits);
  for (const std::int64_t d : {0, 1}) {
    EXPECT_EQ(layer.o.at<float>(0, 3, d), before.at<float>(0, 3, d));
    for (const std::int64_t i : {1, 2})
      EXPECT_NEAR(layer.o.at<float>(i, 3, d), (before.at<float>(1, 3, d) + before.at<float>(2, 3, d)) / 2, 1e-6);
  }
}

TEST(EditHeads, RefusesWhatTheLayerDoesNotHave) {
  Layer layer;
  const auto refused = [&](const HeadEdit& edit) {
    return refusal([&] { edit_heads(layer.view(), {&edit, 1}); });
  };
  EXPECT_EQ(refused({.place = {1, 4}}), "[edit_heads] head must be below 4, the heads of layer 1, but it is 4");
  EXPECT_THAT(refused({.place = {1, -1}}), HasSubstr("but it is -1"));
  const Tensor narrow(DType::f32, {3, 2}), doubles(DType::f64, {3, 3});
  EXPECT_THAT(refused({.place = {1, 0}, .weights = narrow}), HasSubstr("weights must have shape [3, 3]"));
  EXPECT_THAT(refused({.place = {1, 0}, .weights = doubles}), HasSubstr("weights must be f32"));
}

TEST(OnAttention, SeesAndChangesTheAttentionOfAModule) {
  TorchGenerator generator(123), random(7);
  MultiHeadAttention module({.d_in = 4, .d_out = 6, .num_heads = 3, .causal = true}, generator);
  module.eval();
  const Tensor x = random.randn({5, 4}), plain = module.forward(x).output;
  int calls = 0;
  const ModuleOutput same = module.forward(
      x, {.on_attention = [&](const LayerAttention& layer) {
        ++calls;
        EXPECT_EQ(layer.kind, AttentionKind::decoder);
        EXPECT_EQ(Shape(layer.q.dims().begin(), layer.q.dims().end()), (Shape{5, 3, 2}));
        const Tensor again = attention(layer.q, layer.k, layer.v, layer.options), o = Tensor::copy_of(layer.o);
        EXPECT_TRUE(std::ranges::equal(again.values<float>(), o.values<float>()));
        // Head 1's share of the output is its o times its slice of out_proj.
        const TensorView weight = layer.output_weight.select(0, 1);
        EXPECT_EQ(weight.shape[0], 2);
        EXPECT_EQ(weight.shape[1], 6);
        const Tensor out = module.state_dict().at("out_proj.weight");
        EXPECT_EQ(Tensor::copy_of(weight).at<float>(1, 4), out.at<float>(4, 3));
      }});
  EXPECT_EQ(calls, 1);
  EXPECT_TRUE(std::ranges::equal(same.output.values<float>(), plain.values<float>()));

  // Without head 1: as if out_proj had zeros for it.
  const HeadEdit edits[] = {{.place = {0, 1}}};
  const Tensor edited =
      module.forward(x, {.on_attention = [&](const LayerAttention& layer) { edit_heads(layer, edits); }}).output;
  StateDict state = module.state_dict();
  for (std::int64_t row = 0; row < 6; ++row)
    for (const std::int64_t column : {2, 3}) state.at("out_proj.weight").at<float>(row, column) = 0.0f;
  module.load_state_dict(state);
  const Tensor zeroed = module.forward(x).output;
  for (std::int64_t i = 0; i < 30; ++i)
    EXPECT_NEAR(edited.values<float>()[static_cast<std::size_t>(i)],
                zeroed.values<float>()[static_cast<std::size_t>(i)], 1e-6);
  EXPECT_FALSE(std::ranges::equal(edited.values<float>(), plain.values<float>()));
}

TEST(OnAttention, SaysWhichAttentionAModuleComputes) {
  TorchGenerator generator(123), random(7);
  const Tensor x = random.randn({5, 4}), other = random.randn({3, 4}), copy = x;
  for (const bool causal : {false, true}) {
    MultiHeadAttention module({.d_in = 4, .d_out = 4, .num_heads = 2, .causal = causal}, generator);
    module.eval();
    AttentionKind kind{};
    const OnAttention look = [&](const LayerAttention& layer) { kind = layer.kind; };
    const AttentionKind self = causal ? AttentionKind::decoder : AttentionKind::encoder;
    module.forward(x, {.on_attention = look});
    EXPECT_EQ(kind, self);
    module.forward(x, x, x, {.on_attention = look});
    EXPECT_EQ(kind, self);
    module.forward(x, {.causal = true, .on_attention = look});
    EXPECT_EQ(kind, AttentionKind::decoder);
    module.forward(x, other, other, {.on_attention = look});
    EXPECT_EQ(kind, AttentionKind::cross);
    module.forward(x, copy, x, {.on_attention = look});
    EXPECT_EQ(kind, AttentionKind::cross);
  }
}

TEST(OnAttention, IsForOneSequenceInEvaluation) {
  TorchGenerator generator(1), random(2);
  MultiHeadAttention module({.d_in = 4, .d_out = 4, .num_heads = 2}, generator);
  const auto refused = [&](const Shape& shape) {
    const Tensor x = random.randn(shape);
    return refusal([&] { module.forward(x, {.on_attention = [](const LayerAttention&) {}}); });
  };
  EXPECT_THAT(refused({3, 4}), HasSubstr("on_attention is not for training mode"));
  module.eval();
  EXPECT_THAT(refused({2, 3, 4}), HasSubstr("on_attention is for one sequence, but the batch has 2"));
  MultiHeadAttention appended({.d_in = 4, .d_out = 4, .num_heads = 2, .add_zero_attn = true}, generator);
  appended.eval();
  const Tensor x = random.randn({3, 4});
  EXPECT_THAT(refusal([&] { appended.forward(x, {.on_attention = [](const LayerAttention&) {}}); }),
              HasSubstr("not for modules with appended keys"));
}

}  // namespace
}  // namespace saccade::test
