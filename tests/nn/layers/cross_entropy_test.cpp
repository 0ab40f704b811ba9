// cross_entropy() of layers.h against naive code, on every instruction set of the machine.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <functional>
#include <limits>

#include "nn/layer_checks.h"
#include "saccade/layers.h"
#include "support/numbers.h"
#include "support/tensors.h"

namespace saccade::test {
namespace {

constexpr float kInf = std::numeric_limits<float>::infinity(), kNan = std::numeric_limits<float>::quiet_NaN();

class CrossEntropyOnIsa : public EachIsaAndThreads {};
SACCADE_FOR_EACH_ISA(CrossEntropyOnIsa);

/// Every third row is ignored.
Tensor targets_for(std::int64_t rows, std::int64_t num_classes) {
  Tensor targets(DType::i64, {rows});
  for (std::int64_t r = 0; r < rows; ++r)
    targets.at<std::int64_t>(r) = r % 3 == 2 ? -100 : (r * r + 1) % num_classes;
  return targets;
}

Tensors cross_entropy_of(const Tensor& logits, const Tensor& targets, int num_threads = 0) {
  Tensors result{{"losses", Tensor(DType::f32, targets.shape())}, {"dlogits", Tensor(DType::f32, logits.shape())}};
  const double mean =
      cross_entropy(logits, targets,
                    {.losses = result.at("losses"), .dlogits = result.at("dlogits"), .num_threads = num_threads});
  result["mean"] = Tensor::of<double>({mean});
  return result;
}

TEST_P(CrossEntropyOnIsa, LossesTheirMeanAndItsGradient) {
  for (const std::int64_t num_classes : {1, 3, 17, 64, 100, 257}) {
    for (const std::int64_t rows : {1, 7, 130}) {
      for (const float scale : {0.1f, 3.0f, 30.0f}) {
        SCOPED_TRACE(to_string(Shape{rows, num_classes}) + " times " + std::to_string(scale));
        Tensor logits = random_tensor({rows, num_classes}, 1);
        for (float& x : logits.values<float>()) x = x * scale + 50.0f;
        const Tensor targets = targets_for(rows, num_classes);
        const Tensors in{{"logits", logits}};
        expect_like_by_hand(cross_entropy_of(logits, targets), cross_entropy_by_hand<double>(in, targets, -100),
                            cross_entropy_by_hand<float>(in, targets, -100));
      }
    }
  }
}

TEST_P(CrossEntropyOnIsa, IsTheSameHoweverDivided) {
  const Tensor logits = random_tensor({700, 257}, 1), targets = targets_for(700, 257);
  const Tensors all = cross_entropy_of(logits, targets, 1);
  for (const int threads : {2, 3, 5})
    for (const auto& [name, tensor] : cross_entropy_of(logits, targets, threads))
      EXPECT_TRUE(same_bits(tensor, all.at(name))) << name;
  const Tensors some = cross_entropy_of(Tensor::copy_of(logits.view().slice(0, 331, 500)),
                                        Tensor::copy_of(targets.view().slice(0, 331, 500)));
  EXPECT_TRUE(same_bits(some.at("losses"), Tensor::copy_of(all.at("losses").view().slice(0, 331, 500))));
  EXPECT_EQ(cross_entropy(logits, targets), all.at("mean").at<double>(0));
}

TEST_P(CrossEntropyOnIsa, MayWriteItsGradientOverTheLogits) {
  Tensor logits = random_tensor({4, 5, 19}, 1);
  const Tensor targets = targets_for(20, 19).reshaped({4, 5});
  const Tensors expected = cross_entropy_of(logits, targets);
  EXPECT_EQ(cross_entropy(logits, targets, {.dlogits = logits}), expected.at("mean").at<double>(0));
  EXPECT_TRUE(same_bits(logits, expected.at("dlogits")));
  const Tensor again = random_tensor({4, 5, 19}, 1);
  const Tensor turned = Tensor::copy_of(again.view().transposed(0, 1));
  EXPECT_EQ(cross_entropy(turned.view().transposed(0, 1), targets), expected.at("mean").at<double>(0));
}

TEST_P(CrossEntropyOnIsa, WhatIsIgnoredReachesNothing) {
  const Tensor logits = Tensor::of<float>({{1, 2, 3}, {kNan, kInf, 0}, {0, -kInf, 0}});
  const Tensor targets = Tensor::of<std::int64_t>({2, 7, 0});
  Tensor losses(DType::f32, {3}), dlogits(DType::f32, {3, 3});
  const double mean = cross_entropy(logits, targets, {.ignore_index = 7, .losses = losses, .dlogits = dlogits});
  EXPECT_TRUE(std::isfinite(mean));
  EXPECT_EQ(losses.at<float>(1), 0.0f);
  for (std::int64_t c = 0; c < 3; ++c) EXPECT_EQ(dlogits.at<float>(1, c), 0.0f);
  EXPECT_EQ(dlogits.at<float>(2, 1), 0.0f);
  EXPECT_TRUE(std::isnan(cross_entropy(logits, Tensor::of<std::int64_t>({7, 7, 7}), {.ignore_index = 7})));
}

TEST_P(CrossEntropyOnIsa, NanAndInfinityAreSeen) {
  EXPECT_TRUE(std::isnan(cross_entropy(Tensor::of<float>({{1, kNan, 3}}), Tensor::of<std::int64_t>({0}))));
  EXPECT_TRUE(std::isnan(cross_entropy(Tensor::of<float>({{kInf, 1}}), Tensor::of<std::int64_t>({0}))));
  EXPECT_TRUE(std::isnan(cross_entropy(Tensor::of<float>({{-kInf, -kInf}}), Tensor::of<std::int64_t>({0}))));
  EXPECT_EQ(cross_entropy(Tensor::of<float>({{1, -kInf}}), Tensor::of<std::int64_t>({1})), kInf);
}

TEST(CrossEntropy, GradientByDifferences) {
  const Tensors in{{"logits", random_tensor({7, 17}, 1)}};
  const Tensor targets = targets_for(7, 17);
  const auto loss = [&](const Tensors& at) {
    return cross_entropy_by_hand<double>(at, targets, -100).values.at("mean").at<double>(0);
  };
  const Tensors differences{{"dlogits", by_differences(loss, in_precision<double>(in), "logits")}};
  expect_like_by_hand(differences, cross_entropy_by_hand<double>(in, targets, -100),
                      cross_entropy_by_hand<float>(in, targets, -100));
}

TEST(CrossEntropy, RefusesWhatDoesNotFitAndSaysWhy) {
  const Tensor logits = random_tensor({2, 3}, 1), targets = Tensor::of<std::int64_t>({0, 2});
  const auto refusal_of = [](const TensorView& x, const TensorView& y, const CrossEntropyOptions& options = {}) {
    return refusal([&] { cross_entropy(x, y, options); });
  };
  EXPECT_EQ(refusal_of(logits, targets), "");
  EXPECT_EQ(refusal_of(logits, Tensor::of<std::int64_t>({0, 3})),
            "[cross_entropy] targets must be in [0, 3) or -100, but one is 3");
  EXPECT_EQ(refusal_of(logits, Tensor::of<std::int64_t>({0, -1})),
            "[cross_entropy] targets must be in [0, 3) or -100, but one is -1");
  EXPECT_EQ(refusal_of(logits, Tensor::of<std::int64_t>({0})),
            "[cross_entropy] targets must have the outer dimensions of logits, but logits have shape [2, 3] and "
            "targets [1]");
  EXPECT_EQ(refusal_of(logits, Tensor(DType::i32, {2})), "[cross_entropy] targets must be i64, but it is i32");
  EXPECT_EQ(refusal_of(random_tensor({3}, 1), targets),
            "[cross_entropy] logits must be [..., num_classes] of rank 2 or more, but they have shape [3]");
  Tensor three(DType::f32, {3}), square(DType::f32, {2, 2});
  EXPECT_EQ(refusal_of(logits, targets, {.losses = three}),
            "[cross_entropy] losses must have the shape of targets, [2], but it has shape [3]");
  EXPECT_EQ(refusal_of(logits, targets, {.dlogits = square}),
            "[cross_entropy] dlogits must have the shape of logits, [2, 3], but it has shape [2, 2]");
  EXPECT_EQ(refusal_of(logits, targets, {.num_threads = -1}),
            "[cross_entropy] num_threads must be 0 or more, got -1");
}

}  // namespace
}  // namespace saccade::test
