// The generators against PyTorch, NumPy, the Random123 library and the published worked examples.
#include "saccade/random.h"

#include <gmock/gmock.h>

#include <array>
#include <bit>
#include <clocale>
#include <cmath>
#include <cstdint>
#include <limits>
#include <set>
#include <span>
#include <stdexcept>
#include <string>
#include <type_traits>
#include <vector>

#include "data/random_goldens.h"
#include "data/random_goldens_mkl.h"
#include "saccade/reference.h"
#include "support/published.h"

namespace saccade::test {
namespace {

using ::testing::Each;
using ::testing::ElementsAre;
using ::testing::ElementsAreArray;
using ::testing::HasSubstr;
using ::testing::ThrowsMessage;

constexpr std::uint64_t kSeed = 0x0123456789abcdefu;

template <class T>
using BitsOf = std::conditional_t<sizeof(T) == 1, std::uint8_t,
                                  std::conditional_t<sizeof(T) == 4, std::uint32_t, std::uint64_t>>;

/// FNV-1a over the elements, each as its bits in an unsigned integer, as in make_random_goldens.py.
template <class T>
std::uint64_t digest_of(const Tensor& tensor) {
  std::uint64_t digest = 0xcbf29ce484222325u;
  for (const T& value : tensor.values<T>()) digest = (digest ^ std::bit_cast<BitsOf<T>>(value)) * 0x100000001b3u;
  return digest;
}

template <class T>
std::vector<T> list_of(const Tensor& tensor) {
  const std::span<const T> values = tensor.values<T>();
  return {values.begin(), values.end()};
}

std::int64_t count_true(const Tensor& mask) {
  std::int64_t count = 0;
  for (const bool kept : mask.values<bool>()) count += kept ? 1 : 0;
  return count;
}

/// Whether a count of `n` draws with the given probability is within five standard deviations of its mean.
bool plausible(std::int64_t count, std::int64_t n, double probability) {
  const double mean = static_cast<double>(n) * probability;
  return std::abs(static_cast<double>(count) - mean) <= 5.0 * std::sqrt(mean * (1.0 - probability));
}

template <class Call>
void expect_refused(Call call, const std::string& message) {
  EXPECT_THAT(call, ThrowsMessage<std::invalid_argument>(HasSubstr(message)));
}

std::string described(const RandomGolden& golden) {
  std::string text = std::string(golden.call) + " seed " + std::to_string(golden.seed) + " shape " +
                     to_string(golden.shape) + " arguments";
  for (const double argument : golden.arguments) text += " " + std::to_string(argument);
  return text;
}

// ---- PyTorch ---------------------------------------------------------------------------------------------------

std::uint64_t digest_of_call(const RandomGolden& golden) {
  TorchGenerator generator(golden.seed);
  const std::string call = golden.call;
  const std::vector<double>& arguments = golden.arguments;
  const Shape& shape = golden.shape;
  if (call == "rand") return digest_of<float>(generator.rand(shape));
  if (call == "randn") return digest_of<float>(generator.randn(shape));
  if (call == "uniform") {
    return digest_of<float>(
        generator.uniform(shape, static_cast<float>(arguments[0]), static_cast<float>(arguments[1])));
  }
  if (call == "normal") return digest_of<float>(generator.normal(shape, arguments[0], arguments[1]));
  if (call == "linear_weight") return digest_of<float>(generator.linear(shape[0], shape[1]).weight);
  if (call == "linear_bias") return digest_of<float>(generator.linear(shape[0], shape[1]).bias);
  if (call == "xavier_uniform") return digest_of<float>(generator.xavier_uniform(shape));
  if (call == "xavier_normal") return digest_of<float>(generator.xavier_normal(shape));
  throw std::logic_error("no call is named " + call);
}

TEST(TorchGenerator, IsTheMersenneTwister) {
  TorchGenerator generator(5489);
  for (int i = 1; i < 10000; ++i) generator.next32();
  EXPECT_EQ(generator.next32(), 4123659995u);  // the C++ standard's check value, [rand.predef]
}

TEST(TorchGenerator, JoinsTwoOutputsHighHalfFirst) {
  TorchGenerator halves(kSeed);
  TorchGenerator generator(kSeed);
  const std::uint64_t high = halves.next32();
  const std::uint64_t low = halves.next32();
  EXPECT_EQ(generator.next64(), high << 32 | low);
}

TEST(TorchGenerator, DrawsEveryBitAsPyTorch) {
  for (const RandomGolden& golden : kTorchGoldens) {
    EXPECT_EQ(digest_of_call(golden), golden.digest) << described(golden);
  }
}

TEST(TorchGenerator, RandnShowsPyTorchsNumbers) {
  EXPECT_THAT(list_of<float>(TorchGenerator(123).randn({5})), ElementsAreArray(kRandn5Seed123));
  EXPECT_THAT(list_of<float>(TorchGenerator(123).randn({4, 5})), ElementsAreArray(kRandn20Seed123));
}

TEST(TorchGenerator, KeepsTheSecondNormalOfAPairForTheNextSmallCall) {
  TorchGenerator generator(123);
  std::vector<float> drawn = list_of<float>(generator.randn({1}));
  for (const float value : list_of<float>(generator.randn({2}))) drawn.push_back(value);
  EXPECT_THAT(drawn, ElementsAreArray(std::span(kRandn5Seed123).first(3)));

  // The fourth number stays pending: neither uniform numbers nor a large randn consume it.
  generator.rand({3});
  generator.randn({16});
  EXPECT_EQ(generator.randn({1}).at<float>(0), kRandn5Seed123[3]);
}

TEST(TorchGenerator, AnIncompleteBlockRedrawsTheLastSixteen) {
  TorchGenerator generator(7);
  const std::vector<float> drawn = list_of<float>(generator.randn({35}));
  TorchGenerator replay(7);
  const std::vector<float> whole = list_of<float>(replay.randn({32}));
  replay.rand({3});
  const std::vector<float> tail = list_of<float>(replay.randn({16}));
  EXPECT_THAT(std::span(drawn).first(19), ElementsAreArray(std::span(whole).first(19)));
  EXPECT_THAT(std::span(drawn).last(16), ElementsAreArray(tail));
}

TEST(TorchGenerator, ShapeDoesNotMatterOnlySizeDoes) {
  EXPECT_EQ(digest_of<float>(TorchGenerator(5).rand({24})), digest_of<float>(TorchGenerator(5).rand({2, 3, 4})));
  const Tensor tensor = TorchGenerator(5).rand({2, 3, 4});
  EXPECT_EQ(tensor.shape(), (Shape{2, 3, 4}));
  EXPECT_EQ(tensor.dtype(), DType::f32);
}

TEST(TorchGenerator, EmptyTensorsDrawNothing) {
  TorchGenerator generator(9);
  EXPECT_EQ(generator.rand({0}).size(), 0);
  EXPECT_EQ(generator.randn({4, 0}).size(), 0);
  EXPECT_EQ(generator.uniform({0, 3}, 0.0f, 1.0f).size(), 0);
  EXPECT_EQ(generator.dropout_mask({0}, 0.5, TorchBuild::mkl).size(), 0);
  EXPECT_EQ(generator.next32(), TorchGenerator(9).next32());
}

TEST(TorchGenerator, LinearLayersComeWithOrWithoutBias) {
  TorchGenerator generator(123);
  const TorchGenerator::Linear with = generator.linear(3, 2);
  EXPECT_EQ(with.weight.shape(), (Shape{2, 3}));
  EXPECT_EQ(with.bias.shape(), (Shape{2}));
  const TorchGenerator::Linear without = TorchGenerator(123).linear(3, 2, false);
  EXPECT_EQ(list_of<float>(without.weight), list_of<float>(with.weight));
  EXPECT_EQ(without.bias.rank(), 0);
}

TEST(TorchGenerator, RefusesBadArguments) {
  constexpr float kInfinity = std::numeric_limits<float>::infinity();
  constexpr float kLargest = std::numeric_limits<float>::max();
  TorchGenerator generator(1);
  expect_refused([&] { generator.rand({-1}); }, "negative");
  expect_refused([&] { generator.randn({std::int64_t{1} << 40, std::int64_t{1} << 40}); }, "does not fit");
  expect_refused([&] { generator.uniform({2}, 1.0f, 0.0f); }, "[uniform]");
  expect_refused([&] { generator.uniform({2}, 0.0f, kInfinity); }, "[uniform]");
  expect_refused([&] { generator.uniform({2}, -kLargest, kLargest); }, "[uniform]");
  expect_refused([&] { generator.uniform({2}, std::nanf(""), 1.0f); }, "[uniform]");
  expect_refused([&] { generator.normal({2}, 0.0, -1.0); }, "[normal]");
  expect_refused([&] { generator.normal({2}, 0.0, std::nan("")); }, "[normal]");
  expect_refused([&] { generator.xavier_uniform({3}); }, "[xavier_uniform] needs a shape of rank 2");
  expect_refused([&] { generator.xavier_normal({0, 0}); }, "[xavier_normal]");
  expect_refused([&] { generator.linear(0, 3); }, "[linear]");
  expect_refused([&] { generator.linear(3, -1); }, "[linear]");
  expect_refused([&] { generator.dropout_mask({2}, -0.1); }, "[dropout_mask]");
  expect_refused([&] { generator.dropout_mask({2}, 1.1); }, "[dropout_mask]");
  expect_refused([&] { generator.dropout_mask({2}, std::nan("")); }, "[dropout_mask]");
  EXPECT_EQ(generator.next32(), TorchGenerator(1).next32()) << "a refused call drew numbers";
}

TEST(TorchGenerator, PrintsADecimalPointInErrorsInEveryLocale) {
  const std::string before = std::setlocale(LC_NUMERIC, nullptr);
  const auto takes = [](const char* name) { return std::setlocale(LC_NUMERIC, name) != nullptr; };
  if (!takes("de_DE.UTF-8") && !takes("fr_FR.UTF-8"))
    GTEST_SKIP() << "neither de_DE.UTF-8 nor fr_FR.UTF-8 is installed";
  TorchGenerator generator(1);
  expect_refused([&] { generator.dropout_mask({2}, 1.5); }, "1.5");
  std::setlocale(LC_NUMERIC, before.c_str());
}

// ---- PyTorch's dropout -----------------------------------------------------------------------------------------

TEST(TorchDropout, DrawsTheMasksOfBothKindsOfBuild) {
  for (const RandomGolden& golden : kDropoutGoldens) {
    const Tensor mask = TorchGenerator(golden.seed).dropout_mask(golden.shape, golden.arguments[0]);
    EXPECT_EQ(digest_of<bool>(mask), golden.digest) << described(golden);
  }
  for (const RandomGolden& golden : kMklDropoutGoldens) {
    const Tensor mask =
        TorchGenerator(golden.seed).dropout_mask(golden.shape, golden.arguments[0], TorchBuild::mkl);
    EXPECT_EQ(digest_of<bool>(mask), golden.digest) << described(golden);
  }
}

TEST(TorchDropout, DrawsTheMaskThatReadersOnLinuxSaw) {
  EXPECT_THAT(list_of<bool>(TorchGenerator(123).dropout_mask({6, 6}, 0.5, TorchBuild::mkl)),
              ElementsAreArray<bool>({1, 1, 1, 1, 1, 1,  //
                                      0, 1, 0, 0, 0, 0,  //
                                      0, 0, 1, 0, 1, 0,  //
                                      1, 1, 0, 0, 0, 1,  //
                                      1, 0, 0, 0, 0, 1,  //
                                      0, 1, 0, 0, 0, 0}));
}

TEST(TorchDropout, CertainOutcomesDrawNothing) {
  for (const TorchBuild build : {TorchBuild::generic, TorchBuild::mkl}) {
    TorchGenerator generator(3);
    EXPECT_THAT(list_of<bool>(generator.dropout_mask({50}, 0.0, build)), Each(true));
    EXPECT_THAT(list_of<bool>(generator.dropout_mask({50}, 1.0, build)), Each(false));
    EXPECT_EQ(generator.next32(), TorchGenerator(3).next32());
  }
}

TEST(TorchDropout, TheMklBuildTakesOneNumberForTheWholeMask) {
  TorchGenerator generator(3);
  generator.dropout_mask({100}, 0.5, TorchBuild::mkl);
  TorchGenerator replay(3);
  replay.next32();
  EXPECT_EQ(generator.next32(), replay.next32());
}

TEST(TorchDropout, KeepsTheGivenShare) {
  constexpr std::int64_t kCount = 1 << 16;
  for (const TorchBuild build : {TorchBuild::generic, TorchBuild::mkl}) {
    for (const double p : {0.1, 0.5, 0.9}) {
      const std::int64_t kept = count_true(TorchGenerator(kSeed).dropout_mask({kCount}, p, build));
      EXPECT_TRUE(plausible(kept, kCount, 1.0 - p)) << kept << " of " << kCount << " kept, p = " << p;
    }
  }
}

// ---- The published worked examples -----------------------------------------------------------------------------

const nlohmann::json& six_tokens() { return published().at("six_tokens"); }

void expect_printed(const Tensor& actual, const nlohmann::json& printed, double tolerance) {
  const Tensor wanted = tensor_of(printed);
  ASSERT_EQ(actual.shape(), wanted.shape());
  const std::vector<double> values = list_of<double>(actual);
  for (std::size_t i = 0; i < values.size(); ++i) {
    EXPECT_NEAR(values[i], wanted.values<double>()[i], tolerance) << "at " << i;
  }
}

/// The numbers of an integer or f32 matrix as f64, for the functions of the reference.
Tensor widened(const Tensor& matrix) { return Tensor::copy_of(matrix, DType::f64); }

TEST(PublishedExamples, ThreeMatricesOfTorchRand) {
  const nlohmann::json& example = six_tokens().at("self_attention_parameters");
  const double tolerance = six_tokens().at("tolerance");
  const Tensor inputs = tensor_of(six_tokens().at("inputs"));
  TorchGenerator generator(123);
  const Tensor queries = reference::matmul(inputs, widened(generator.rand({3, 2})));
  const Tensor keys = reference::matmul(inputs, widened(generator.rand({3, 2})));
  const Tensor values = reference::matmul(inputs, widened(generator.rand({3, 2})));

  const Tensor query = Tensor::copy_of(queries.view().select(0, 1));
  expect_printed(query, example.at("query_1"), tolerance);
  expect_printed(reference::scores_of_query(query, keys), example.at("scores_query_1"), tolerance);
  const Tensor weights = reference::softmax(reference::scaled(reference::scores(queries, keys), std::sqrt(0.5)));
  expect_printed(Tensor::copy_of(weights.view().select(0, 1)), example.at("weights_query_1"), tolerance);
  expect_printed(reference::context_vectors(weights, values), example.at("out"), tolerance);
}

TEST(PublishedExamples, ThreeLinearLayersAndDropout) {
  const nlohmann::json& example = six_tokens().at("self_attention_linear");
  const double tolerance = six_tokens().at("tolerance");
  const Tensor inputs = tensor_of(six_tokens().at("inputs"));
  TorchGenerator generator(789);
  const auto projected = [&] {
    return reference::matmul(inputs, reference::transpose(widened(generator.linear(3, 2, false).weight)));
  };
  const Tensor queries = projected();
  const Tensor keys = projected();
  const Tensor values = projected();

  const Tensor scores = reference::scaled(reference::scores(queries, keys), std::sqrt(0.5));
  const Tensor weights = reference::softmax(scores);
  expect_printed(weights, example.at("weights"), tolerance);
  expect_printed(reference::context_vectors(weights, values), example.at("out"), tolerance);

  const Tensor causal_weights = reference::softmax(reference::masked(scores, reference::causal_mask(6, 6)));
  const Tensor keep = TorchGenerator(123).dropout_mask({6, 6}, 0.5);
  expect_printed(reference::dropout(causal_weights, keep, 0.5),
                 example.at("dropout_half_of_causal_weights_seed_123"), tolerance);
}

TEST(PublishedExamples, DropoutOfOnes) {
  Tensor ones(DType::f64, {6, 6});
  for (double& value : ones.values<double>()) value = 1.0;
  const Tensor dropped = reference::dropout(ones, TorchGenerator(123).dropout_mask({6, 6}, 0.5), 0.5);
  EXPECT_EQ(list_of<double>(dropped),
            list_of<double>(tensor_of(six_tokens().at("dropout_ones_6x6_p_half_seed_123"))));
}

TEST(PublishedExamples, MatricesOfNumpyRandint) {
  const nlohmann::json& example = published().at("general_attention_numpy");
  NumpyRandomState state(42);
  for (const char* name : {"W_Q", "W_K", "W_V"}) {
    EXPECT_EQ(list_of<double>(widened(state.randint(3, {3, 3}))), list_of<double>(tensor_of(example.at(name))))
        << name;
  }
}

// ---- NumPy -----------------------------------------------------------------------------------------------------

TEST(NumpyRandomState, DrawsEveryBitAsNumPy) {
  for (const RandintGolden& golden : kRandintGoldens) {
    NumpyRandomState state(golden.seed);
    EXPECT_EQ(digest_of<std::int64_t>(state.randint(golden.low, golden.high, {100})), golden.digest)
        << "seed " << golden.seed << " range [" << golden.low << ", " << golden.high << ")";
  }
  for (const RandomGolden& golden : kNumpyGoldens) {
    NumpyRandomState state(static_cast<std::uint32_t>(golden.seed));
    ASSERT_STREQ(golden.call, "random_sample");
    EXPECT_EQ(digest_of<double>(state.random_sample(golden.shape)), golden.digest) << described(golden);
  }
}

TEST(NumpyRandomState, StandardNormalKeepsTheSecondNumberOfAPair) {
  NumpyRandomState state(42);
  std::vector<double> drawn = list_of<double>(state.standard_normal({3}));
  for (const double value : list_of<double>(state.standard_normal({2, 2}))) drawn.push_back(value);
  ASSERT_EQ(drawn.size(), std::size(kNumpyNormal7Seed42));
  // The logarithm is the C library's, as NumPy's is: its last bit may depend on the machine.
  for (std::size_t i = 0; i < drawn.size(); ++i) EXPECT_DOUBLE_EQ(drawn[i], kNumpyNormal7Seed42[i]) << "at " << i;
}

TEST(NumpyRandomState, RandintStaysInItsRangeAndReachesAllOfIt) {
  NumpyRandomState state(8);
  const std::vector<std::int64_t> drawn = list_of<std::int64_t>(state.randint(-2, 4, {1000}));
  EXPECT_EQ(std::set(drawn.begin(), drawn.end()), (std::set<std::int64_t>{-2, -1, 0, 1, 2, 3}));
}

TEST(NumpyRandomState, ARangeOfOneNumberDrawsNothing) {
  NumpyRandomState state(8);
  EXPECT_THAT(list_of<std::int64_t>(state.randint(-7, -6, {5})), Each(-7));
  EXPECT_EQ(state.next32(), NumpyRandomState(8).next32());
}

TEST(NumpyRandomState, RefusesBadArguments) {
  NumpyRandomState state(1);
  expect_refused([&] { state.randint(0, {2}); }, "[randint] needs low < high, got 0 and 0");
  expect_refused([&] { state.randint(5, 4, {2}); }, "[randint]");
  expect_refused([&] { state.random_sample({-3}); }, "negative");
}

// ---- Philox and dropout by position ----------------------------------------------------------------------------

TEST(Philox, GivesTheKnownAnswersOfRandom123) {
  constexpr std::uint32_t kOnes = 0xffffffffu;
  EXPECT_THAT(philox4x32_10({0, 0, 0, 0}, {0, 0}),
              ElementsAre(0x6627e8d5u, 0xe169c58du, 0xbc57ac4cu, 0x9b00dbd8u));
  EXPECT_THAT(philox4x32_10({kOnes, kOnes, kOnes, kOnes}, {kOnes, kOnes}),
              ElementsAre(0x408f276du, 0x41c83b0eu, 0xa20bc7c6u, 0x6d5451fdu));
  EXPECT_THAT(philox4x32_10({0x243f6a88u, 0x85a308d3u, 0x13198a2eu, 0x03707344u}, {0xa4093822u, 0x299f31d0u}),
              ElementsAre(0xd16cfe09u, 0x94fdccebu, 0x5001e420u, 0x24126ea1u));
}

TEST(DropoutKeeps, ReadsTheWordThatItsCommentNames) {
  const std::array<std::uint32_t, 4> words = philox4x32_10({3, 5, 7, 2 * 16 + 9}, {0x89abcdefu, 0x01234567u});
  for (std::uint32_t i = 0; i < 4; ++i) {
    const std::uint32_t column = 2 * 64 + i * 16 + 9;
    const double at = words[i] * 0x1p-32;
    EXPECT_TRUE(dropout_keeps(kSeed, 3, 5, 7, column, at)) << column;
    EXPECT_FALSE(dropout_keeps(kSeed, 3, 5, 7, column, at + 0x1p-40)) << column;
  }
}

using KeepMask = std::vector<bool>;
constexpr std::uint32_t kRows = 256;
constexpr std::uint32_t kColumns = 256;

KeepMask keep_mask(double p, std::uint64_t seed = kSeed, std::uint32_t offset = 0, std::uint32_t batch_head = 0,
                   std::uint32_t first_row = 0) {
  KeepMask mask;
  for (std::uint32_t row = 0; row < kRows; ++row) {
    for (std::uint32_t column = 0; column < kColumns; ++column) {
      mask.push_back(dropout_keeps(seed, offset, batch_head, first_row + row, column, p));
    }
  }
  return mask;
}

std::int64_t agreements(const KeepMask& a, const KeepMask& b) {
  std::int64_t count = 0;
  for (std::size_t i = 0; i < a.size(); ++i) count += a[i] == b[i] ? 1 : 0;
  return count;
}

TEST(DropoutKeeps, DoesNotDependOnTheOrderOfTheQuestions) {
  const KeepMask mask = keep_mask(0.5);
  for (std::uint32_t column = kColumns; column-- > 0;) {
    for (std::uint32_t row = kRows; row-- > 0;) {
      ASSERT_EQ(dropout_keeps(kSeed, 0, 0, row, column, 0.5), mask[row * kColumns + column])
          << "row " << row << " column " << column;
    }
  }
}

TEST(DropoutKeeps, KeepsTheGivenShareOfEveryColumnAndOverall) {
  for (const double p : {0.01, 0.1, 0.5, 0.9}) {
    const KeepMask mask = keep_mask(p);
    std::vector<std::int64_t> kept_in_column(kColumns);
    std::int64_t kept = 0;
    for (std::size_t i = 0; i < mask.size(); ++i) {
      kept_in_column[i % kColumns] += mask[i] ? 1 : 0;
      kept += mask[i] ? 1 : 0;
    }
    EXPECT_TRUE(plausible(kept, kRows * kColumns, 1.0 - p)) << kept << " kept, p = " << p;
    for (const std::int64_t count : kept_in_column) {
      EXPECT_TRUE(plausible(count, kRows, 1.0 - p)) << count << " of a column kept, p = " << p;
    }
  }
}

TEST(DropoutKeeps, EveryArgumentChangesTheMask) {
  const KeepMask mask = keep_mask(0.5);
  const std::vector<KeepMask> others = {keep_mask(0.5, kSeed ^ 1), keep_mask(0.5, kSeed ^ std::uint64_t{1} << 32),
                                        keep_mask(0.5, kSeed, 1), keep_mask(0.5, kSeed, 0, 1),
                                        keep_mask(0.5, kSeed, 0, 0, 1)};
  for (std::size_t i = 0; i < others.size(); ++i) {
    const std::int64_t same = agreements(mask, others[i]);
    EXPECT_TRUE(plausible(same, kRows * kColumns, 0.5)) << same << " places agree with variant " << i;
  }
}

TEST(DropoutKeeps, ALargerProbabilityDropsMoreOfTheSameWeights) {
  const KeepMask few = keep_mask(0.3);
  const KeepMask many = keep_mask(0.6);
  for (std::size_t i = 0; i < few.size(); ++i) EXPECT_TRUE(few[i] || !many[i]) << "at " << i;
}

TEST(DropoutKeeps, CertainOutcomesAreCertain) {
  EXPECT_THAT(keep_mask(0.0), Each(true));
  EXPECT_THAT(keep_mask(1.0), Each(false));
}

TEST(DropoutKeeps, RefusesWhatIsNoProbability) {
  for (const double p : {-0.001, 1.001, std::nan("")}) {
    expect_refused([&] { dropout_keeps(0, 0, 0, 0, 0, p); }, "[dropout_keeps] p must lie in [0, 1]");
  }
}

}  // namespace
}  // namespace saccade::test
