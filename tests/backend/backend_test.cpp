// Which back end a call uses, and what a new one has to do: a third one, written here, passes the same checks as
// those of the build.
#include "saccade/backend.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <cmath>
#include <functional>
#include <limits>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "backend/registry.h"
#include "cases/conformance.h"
#include "cases/random_case.h"
#include "saccade/backward.h"
#include "saccade/decode.h"
#include "saccade/linear.h"
#include "saccade/packed_linear.h"
#include "support/environment.h"
#include "support/refusal.h"
#include "support/tensors.h"

namespace saccade::test {
namespace {

using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::Field;
using ::testing::HasSubstr;

void expect_refusal(const std::string& message, const std::function<void()>& call) {
  EXPECT_EQ(refusal(call), message);
}

/// The active back end passes the conformance suite on a random problem.
void expect_conformance(std::uint64_t seed) {
  cases::AttentionCase drawn = cases::draw_case(seed);
  cases::CheckedCase checked(drawn);
  const std::vector<cases::Finding> findings = cases::run_conformance(drawn, checked, seed);
  EXPECT_FALSE(findings.empty()) << "seed " << seed;
  for (const cases::Finding& finding : findings)
    EXPECT_TRUE(finding.comparison.holds) << "seed " << seed << ", " << finding.result;
}

// ---- A third back end ------------------------------------------------------------------------------------------

/// Plain f32 attention by the formula, and nothing else.
class ToyBackend final : public Backend {
 public:
  std::string_view name() const override { return "toy"; }
  std::string_view description() const override { return "plain attention of f32 by the formula"; }

  bool supports(Operation operation, const AttentionParams& p) const override {
    const bool plain = !p.changes_every_score() && !p.causal && p.window_left < 0 && p.window_right < 0 &&
                       !p.kv_lengths && !p.kv_starts && !p.cu_seqlens_q && !p.block_table && !p.has_sink() &&
                       p.block_mask.type == MaskType::none && p.dropout_p == 0.0 && !p.saves_scores();
    const bool is_f32 =
        p.q.dtype == DType::f32 && p.k.dtype == DType::f32 && p.v.dtype == DType::f32 && p.o.dtype == DType::f32;
    return operation == Operation::attention && plain && is_f32;
  }
  bool supports(const MergeParams&) const override { return false; }
  bool supports(const BackwardParams&) const override { return false; }
  bool supports(const InspectParams&) const override { return false; }
  bool supports(const ProductParams&) const override { return false; }

  bool reads(Device) const override { return !keeps_memory; }

  void attention(const AttentionParams& p) const override {
    ++calls;
    for (std::int64_t b = 0; b < p.batch; ++b)
      for (std::int64_t h = 0; h < p.num_heads; ++h)
        for (std::int64_t i = 0; i < p.seqlen_q; ++i) attend(p, b, h, i);
  }

  // Never called: supports() says so.
  std::unique_ptr<ForwardState> attention_state(const AttentionParams&) const override { throw unsupported(); }
  void decode(const AttentionParams&) const override { throw unsupported(); }
  void decode_states(const AttentionParams&, const DecodeStates&) const override { throw unsupported(); }
  void merge_decode_states(const AttentionParams&, const DecodeStates&) const override { throw unsupported(); }
  void merge(const MergeParams&) const override { throw unsupported(); }
  void attention_backward(const BackwardParams&) const override { throw unsupported(); }
  void inspect(const InspectParams&) const override { throw unsupported(); }
  void product(const ProductParams&) const override { throw unsupported(); }
  std::unique_ptr<PackedProduct> pack_product(const ProductParams&) const override { throw unsupported(); }

  mutable std::atomic<int> calls = 0;
  bool keeps_memory = false;  // like a device whose memory the CPU cannot read

 private:
  static std::logic_error unsupported() {
    return std::logic_error("the toy was asked for what it does not support");
  }

  static void attend(const AttentionParams& p, std::int64_t b, std::int64_t h, std::int64_t i) {
    const std::int64_t kv_head = h / (p.num_heads / p.num_kv_heads);
    const float* const q = p.q.row<float>(b, h, i);
    std::vector<double> weights(static_cast<std::size_t>(p.seqlen_k));
    double largest = -std::numeric_limits<double>::infinity(), sum = 0.0;
    for (std::int64_t j = 0; j < p.seqlen_k; ++j) {
      double& score = weights[static_cast<std::size_t>(j)];
      for (std::int64_t d = 0; d < p.head_dim; ++d)
        score += static_cast<double>(q[d]) * p.k.row<float>(b, kv_head, j)[d];
      score *= p.scale;
      largest = std::max(largest, score);
    }
    for (double& weight : weights) sum += weight = std::exp(weight - largest);
    for (std::int64_t d = 0; d < p.head_dim_v; ++d) {
      double o = 0.0;
      for (std::int64_t j = 0; j < p.seqlen_k; ++j)
        o += weights[static_cast<std::size_t>(j)] * p.v.row<float>(b, kv_head, j)[d];
      p.o.row<float>(b, h, i)[d] = static_cast<float>(p.seqlen_k > 0 ? o / sum : 0.0);
    }
    if (p.lse.data) *p.lse.row<float>(b, h, i) = static_cast<float>(largest + std::log(sum));
  }
};

class WithToy : public ::testing::Test {
 protected:
  ToyBackend toy_;
  BackendRegistration registration_{toy_};
};

TEST_F(WithToy, ComputesWhatItSupports) {
  const Tensor q = random_tensor({2, 4, 5, 16}, 1), k = random_tensor({2, 2, 7, 16}, 2);
  const Tensor of_toy = attention(q, k, k, {.backend = "toy"});
  EXPECT_EQ(toy_.calls, 1);
  EXPECT_EQ(of_toy.shape(), q.shape());
  attention(q, k, k, {.backend = "cpu"});
  EXPECT_EQ(toy_.calls, 1);
}

TEST_F(WithToy, RefusesTheRestUnlessTheListGoesOn) {
  const Tensor q = random_tensor({4, 5, 16}, 1);
  expect_refusal("[SACCADE_BACKEND] toy does not support this call; with ',cpu' behind it the CPU computes it",
                 [&] { attention(q, q, q, {.causal = Causal::top_left, .backend = "toy"}); });
  const Tensor with_cpu = attention(q, q, q, {.causal = Causal::top_left, .backend = "toy,cpu"});
  EXPECT_EQ(toy_.calls, 0);
  EXPECT_TRUE(same_bits(with_cpu, attention(q, q, q, {.causal = Causal::top_left})));
  const Tensor with_reference = attention(q, q, q, {.causal = Causal::top_left, .backend = "toy,reference"});
  EXPECT_TRUE(same_bits(with_reference, attention(q, q, q, {.causal = Causal::top_left, .backend = "reference"})));
  const BackendScope scope("toy");
  const Tensor x = random_tensor({3, 4}, 2);
  expect_refusal("[SACCADE_BACKEND] toy does not support this call; with ',cpu' behind it the CPU computes it",
                 [&] {
                   linear(x, random_tensor({5, 4}, 3));
                 });
}

TEST_F(WithToy, IsAskedBeforeItsMemoryIsRead) {
  const Tensor q = random_tensor({1, 2, 5, 16}, 1);
  const std::int64_t lengths[] = {3};
  const AttentionOptions options{.kv_lengths = TensorView(lengths, {1}), .backend = "toy,cpu"};
  attention(q, q, q, options);
  toy_.keeps_memory = true;
  expect_refusal(
      "[attention] kv_lengths must be in memory that the CPU may read, but back end toy,cpu keeps it on its "
      "device",
      [&] { attention(q, q, q, options); });
  attention(q, q, q, {.backend = "toy"});  // nothing is read before the back end is called
}

TEST_F(WithToy, IsAcceptedByTheConformanceSuite) {
  const BackendScope scope("toy,cpu");
  for (std::uint64_t seed = 1; seed <= fewer_if_slow(150); ++seed) expect_conformance(seed);
  EXPECT_GT(toy_.calls, 0);
}

TEST_F(WithToy, IsListedWhileItIsRegistered) {
  EXPECT_THAT(available_backends(), Contains(Field(&BackendInfo::name, "toy")));
  ToyBackend second;
  expect_refusal("[BackendRegistration] there is a back end 'toy' already",
                 [&] { BackendRegistration again(second); });
}

TEST(BackendRegistration, LeavesOtherListsWhenItEnds) {
  set_active_backend("reference,cpu");
  {
    const ToyBackend toy;
    const BackendRegistration registration(toy);
    EXPECT_EQ(BackendChoice("toy,cpu").names(), "toy,cpu");
  }
  EXPECT_EQ(active_backend_name(), "reference,cpu");
  const Tensor q = random_tensor({2, 3, 8}, 1);
  EXPECT_TRUE(same_bits(attention(q, q, q), attention(q, q, q, {.backend = "reference"})));
  EXPECT_THROW(BackendChoice("toy,cpu"), std::invalid_argument);
  set_active_backend("cpu");
}

// ---- The reference ---------------------------------------------------------------------------------------------

TEST(ReferenceBackend, AgreesWithTheReferenceOnRandomProblems) {
  const BackendScope scope("reference");
  const ProblemRange problems = problems_of_test(1, fewer_if_slow(100));
  for (std::uint64_t seed = problems.begin; seed < problems.end; ++seed) expect_conformance(seed);
}

TEST(ReferenceBackend, AgreesWithTheReferenceOnProblemsThatFailed) {
  const BackendScope scope("reference");
  expect_conformance(994000055);
}

TEST(ReferenceBackend, DiffersFromTheCpuInTheLastBits) {
  const Tensor q = random_tensor({8, 64, 64}, 1);
  const Tensor on_cpu = attention(q, q, q), exact = attention(q, q, q, {.backend = "reference"});
  EXPECT_FALSE(same_bits(on_cpu, exact));  // otherwise the reference did not compute it
}

/// Adds 1 to every score of an even key, and says what type the tiles have.
void add_to_even_keys(void* types, const ScoreTile& tile) {
  static_cast<std::vector<DType>*>(types)->push_back(tile.dtype);
  if (tile.dtype != DType::f32) return;
  for (std::int64_t i = 0; i < tile.rows; ++i)
    for (std::int64_t j = 0; j < tile.keys; ++j)
      tile.row<float>(i)[j] += (tile.first_key + j) % 2 == 0 ? 1.0F : 0.0F;
}

TEST(ReferenceBackend, GivesScoreModifiersTilesOfTheTypeThatTheyArePromised) {
  std::vector<DType> types;
  // Whole numbers, so that no score is rounded when it becomes a float.
  const Tensor q = Tensor::of<float>({{1, 2}, {0, 1}, {2, -1}}), wide = Tensor::copy_of(q, DType::f64);
  AttentionOptions options{
      .scale = 1.0, .score_modifier = add_to_even_keys, .score_context = &types, .backend = "reference"};
  const Tensor mask = Tensor::of<float>({{1, 0, 1}});
  EXPECT_TRUE(same_bits(attention(q, q, q, options),
                        attention(q, q, q, {.scale = 1.0, .mask = mask, .backend = "reference"})));
  EXPECT_THAT(types, ::testing::Each(DType::f32));
  types.clear();
  attention(wide, wide, wide, options);
  EXPECT_THAT(types, ::testing::Each(DType::f64));
  EXPECT_FALSE(types.empty());
}

TEST(ReferenceBackend, AppliesEveryActivation) {
  const auto sigmoid = [](double x) { return 1 / (1 + std::exp(-x)); };
  const auto normal = [](double x) { return 0.5 * std::erfc(-x / std::sqrt(2.0)); };
  const std::pair<Activation, std::function<double(double)>> kActivations[] = {
      {Activation::none, [](double x) { return x; }},
      {Activation::relu, [](double x) { return x > 0 ? x : 0; }},
      {Activation::gelu, [&](double x) { return x * normal(x); }},
      {Activation::gelu_tanh,
       [](double x) {
         return 0.5 * x * (1 + std::tanh(std::sqrt(2 / std::acos(-1.0)) * (x + 0.044715 * x * x * x)));
       }},
      {Activation::quick_gelu, [&](double x) { return x * sigmoid(1.702 * x); }},
      {Activation::silu, [&](double x) { return x * sigmoid(x); }},
      {Activation::tanh, [](double x) { return std::tanh(x); }}};
  const BackendScope scope("reference");
  const Tensor x = random_tensor({64, 1}, 1), one = Tensor::of<float>({{1.0F}});
  for (const auto& [activation, formula] : kActivations) {
    const Tensor y = PackedLinear(one, {.activation = activation}).forward(x);
    for (std::int64_t i = 0; i < 64; ++i)
      EXPECT_FLOAT_EQ(y.at<float>(i, 0), static_cast<float>(formula(x.at<float>(i, 0))))
          << static_cast<int>(activation) << " of " << x.at<float>(i, 0);
  }
}

// ---- The choice ------------------------------------------------------------------------------------------------

TEST(BackendChoice, KnowsItsNames) {
  EXPECT_THAT(available_backends(),
              ElementsAre(Field(&BackendInfo::name, "cpu"), Field(&BackendInfo::name, "reference")));
  EXPECT_FALSE(BackendChoice());
  EXPECT_FALSE(BackendChoice(""));
  EXPECT_EQ(BackendChoice("reference,cpu").names(), "reference,cpu");
  EXPECT_EQ(BackendChoice("cpu").names(), "cpu");
  for (const char* wrong : {"gpu", "cpu,", ",cpu", "reference, cpu", "CPU"})
    expect_refusal(
        std::string(
            "[BackendChoice] names: expected one of cpu, reference, or several with a comma between them, got '") +
            wrong + "'",
        [&] { BackendChoice{wrong}; });
}

TEST(BackendChoice, OfAScopeEndsWithIt) {
  EXPECT_EQ(active_backend_name(), "cpu");
  {
    const BackendScope outer("reference");
    EXPECT_EQ(active_backend_name(), "reference");
    {
      const BackendScope inner("cpu"), nothing{BackendChoice()};
      EXPECT_EQ(active_backend_name(), "cpu");
    }
    EXPECT_EQ(active_backend_name(), "reference");
    std::thread([] { EXPECT_EQ(active_backend_name(), "cpu"); }).join();
  }
  EXPECT_EQ(active_backend_name(), "cpu");
}

TEST(BackendChoice, OfTheProcessIsBelowThatOfAScope) {
  set_active_backend("reference");
  EXPECT_EQ(active_backend_name(), "reference");
  {
    const BackendScope scope("cpu");
    EXPECT_EQ(active_backend_name(), "cpu");
    set_active_backend("cpu");
  }
  EXPECT_EQ(active_backend_name(), "cpu");
  EXPECT_THROW(set_active_backend("nowhere"), std::invalid_argument);
  EXPECT_EQ(active_backend_name(), "cpu");
}

TEST(BackendChoice, ReachesEveryFunctionWithOptions) {
  const Tensor q = random_tensor({2, 3, 8}, 1), k = random_tensor({2, 300, 8}, 2);
  const auto differs = [&](const auto& compute) {
    return !same_bits(compute(AttentionOptions{}), compute(AttentionOptions{.backend = "reference"}));
  };
  EXPECT_TRUE(differs([&](const AttentionOptions& options) { return attention(q, k, k, options); }));
  EXPECT_TRUE(differs([&](const AttentionOptions& options) { return decode(q, k, k, options); }));
  EXPECT_TRUE(differs([&](const AttentionOptions& options) { return decode_states(q, k, k, options); }));
}

}  // namespace
}  // namespace saccade::test
