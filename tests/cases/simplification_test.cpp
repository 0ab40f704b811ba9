// Simpler forms of random problems, and the search for the smallest one that fails.
#include "cases/simplification.h"

#include <gmock/gmock.h>

#include <algorithm>
#include <string>

#include "cases/options.h"
#include "cases/random_case.h"
#include "cases/shrink.h"
#include "support/tensors.h"

namespace saccade::test {
namespace {

using cases::AttentionCase;
using cases::parse_simplification;
using cases::Simplification;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::ThrowsMessage;

// ---- Seeds keep their problems -------------------------------------------------------------------------------

/// FNV-1a of a problem's line and of the bytes of its tensors.
std::uint64_t digest_of(const AttentionCase& c) {
  std::uint64_t digest = 0xcbf29ce484222325;
  const auto add = [&](const void* memory, std::size_t count) {
    const auto* const bytes = static_cast<const unsigned char*>(memory);
    for (std::size_t i = 0; i < count; ++i) digest = (digest ^ bytes[i]) * 0x100000001b3;
  };
  const std::string line = cases::describe(c);
  add(line.data(), line.size());
  for (const cases::ScatteredTensor* tensor : {&c.q, &c.k, &c.v})
    add(tensor->memory().data(), tensor->memory().bytes());
  for (const Tensor* tensor : {&c.mask, &c.block_mask, &c.kv_lengths, &c.kv_starts, &c.query_offsets,
                               &c.cu_seqlens_q, &c.cu_seqlens_k, &c.block_table})
    if (tensor->rank() > 0) add(tensor->data(), tensor->bytes());
  return digest;
}

TEST(RandomProblems, AreWhatTheirSeedsAlwaysDrew) {
  // Records of campaigns and reports of failures name problems by their seeds. Whoever changes what a seed draws
  // starts new campaigns, and writes the new number here.
  std::uint64_t all = 0;
  for (std::uint64_t seed = 1; seed <= 300; ++seed) {
    const AttentionCase c = cases::draw_case(seed);
    if (cases::has_plain_keys(c)) all = all * 31 + digest_of(c);  // the bits of quantized keys differ by processor
  }
  EXPECT_EQ(all, 8880534231831981548U);
}

// ---- Text ----------------------------------------------------------------------------------------------------

TEST(SimplificationText, IsReadAsItIsWritten) {
  const std::string line =
      "without=mask,dropout_p steps=4 batch=2 kv_heads=1 heads=3 seqlen_q=1 seqlen_k=6 head_dim=8 head_dim_v=5 "
      "one_thread contiguous f32 numbers=7";
  const Simplification simpler = parse_simplification(line);
  EXPECT_EQ(simpler.text(), line);
  EXPECT_THAT(simpler.without, ElementsAre("mask", "dropout_p"));
  EXPECT_EQ(simpler.seqlen_k, 6);
  EXPECT_TRUE(simpler.f32 && simpler.contiguous && simpler.one_thread);
  EXPECT_TRUE(parse_simplification("").empty());
  EXPECT_FALSE(simpler.empty());
}

TEST(SimplificationText, SaysWhatIsWrong) {
  const auto refused = [](const std::string& line, const std::string& message) {
    EXPECT_THAT([&] { parse_simplification(line); }, ThrowsMessage<std::invalid_argument>(HasSubstr(message)))
        << line;
  };
  refused("without=masks", "without=masks: expected options of attention() or a cache, but masks is none");
  refused("without=", "without=: expected names of options with commas between them");
  refused("seqlen_q=0", "seqlen_q=0: expected a whole number from 1 on");
  refused("seqlen_q=3x", "seqlen_q=3x: expected a whole number from 1 on");
  refused("numbers=-1", "numbers=-1: expected a whole number from 0 on");
  refused("smaller", "smaller: expected one of without=OPTION,..., numbers=SEED, steps=N, batch=N");
  refused("f32=1", "f32=1: expected one of");
}

// ---- Simpler problems ----------------------------------------------------------------------------------------

TEST(SimplerProblems, KeepWhatIsNotLeftOut) {
  int masked = 0;
  for (std::uint64_t seed = 1; seed <= 200; ++seed) {
    const AttentionCase whole = cases::draw_case(seed);
    if (!whole.options.mask || whole.options.block_table) continue;
    ++masked;
    const AttentionCase without = cases::draw_case(seed, parse_simplification("without=mask"));
    EXPECT_FALSE(without.options.mask);
    AttentionOptions expected = whole.options;
    expected.mask = {};
    EXPECT_EQ(cases::names_of_set(without.options), cases::names_of_set(expected)) << seed;
    EXPECT_TRUE(same_bits(without.q.memory(), whole.q.memory())) << seed;
    EXPECT_TRUE(same_bits(without.block_mask, whole.block_mask)) << seed;
    EXPECT_TRUE(same_bits(without.kv_lengths, whole.kv_lengths)) << seed;
  }
  EXPECT_GT(masked, 20);
}

TEST(SimplerProblems, HaveTheirOptionsWhereTheyAreSmaller) {
  const Simplification smaller = parse_simplification("batch=1 seqlen_q=2 seqlen_k=5 head_dim=3 head_dim_v=3");
  for (std::uint64_t seed = 1; seed <= 200; ++seed) {
    const AttentionCase whole = cases::draw_case(seed), c = cases::draw_case(seed, smaller);
    EXPECT_EQ(cases::names_of_set(c.options), cases::names_of_set(whole.options)) << seed;
    for (const AttentionOption& option : kAttentionOptions) {
      if (!cases::has_text(option)) continue;
      EXPECT_EQ(cases::value_text(option, c.options), cases::value_text(option, whole.options)) << option.name;
    }
  }
}

TEST(SimplerProblems, KeepWhatAScoreFunctionNeeds) {
  int kept = 0;
  for (std::uint64_t seed = 1; kept < 5; ++seed) {
    if (!cases::draw_case(seed).score_function) continue;
    const AttentionCase c = cases::draw_case(seed, parse_simplification("without=score_context"));
    ASSERT_TRUE(c.score_function);
    EXPECT_EQ(c.options.score_context, c.score_function.get());
    EXPECT_FALSE(cases::draw_case(seed, parse_simplification("without=score_modifier")).options.score_context);
    ++kept;
  }
}

TEST(SimplerProblems, HaveTheSizesAndTypesThatWereAskedFor) {
  const Simplification simpler = parse_simplification(
      "without=block_table,cu_seqlens_q,layout batch=1 heads=2 kv_heads=1 seqlen_q=3 seqlen_k=9 head_dim=4 "
      "head_dim_v=5 f32 contiguous one_thread");
  for (std::uint64_t seed = 1; seed <= 100; ++seed) {
    const AttentionCase c = cases::draw_case(seed, simpler);
    const TensorView q = c.q.view(), k = c.k.view(), v = c.v.view();
    EXPECT_LE(q.size(), 2 * 3 * 4) << cases::describe(c);
    EXPECT_LE(k.size(), 9 * 4) << cases::describe(c);
    EXPECT_LE(v.size(), 9 * 5) << cases::describe(c);
    for (const TensorView& view : {q, k, v}) {
      EXPECT_EQ(view.dtype, DType::f32);
      std::int64_t stride = 1;
      for (std::size_t i = view.rank; i-- > 0; stride *= std::max<std::int64_t>(view.shape[i], 1))
        EXPECT_EQ(view.strides[i], stride) << cases::describe(c);
    }
    EXPECT_EQ(c.options.num_threads, 1);
    EXPECT_FALSE(c.options.block_table || c.options.cu_seqlens_q);
    EXPECT_NO_THROW(reference::attention(q, k, v, c.options)) << seed;
  }
}

TEST(SimplerProblems, CanHaveOtherNumbers) {
  const AttentionCase c = cases::draw_case(5), other = cases::draw_case(5, parse_simplification("numbers=1"));
  EXPECT_EQ(cases::names_of_set(c.options), cases::names_of_set(other.options));
  EXPECT_FALSE(same_bits(c.q.memory(), other.q.memory()));
}

// ---- The smallest form ---------------------------------------------------------------------------------------

/// The number of keys in the memory of a problem that is neither packed nor in pages.
std::int64_t keys_of(const AttentionCase& c) {
  const TensorView k = c.k.view();
  return k.shape[c.options.layout == Layout::bshd && k.rank > 2 ? k.rank - 3U : k.rank - 2U];
}

TEST(Shrinking, FindsTheLeastProblemWithAFault) {
  // The fault: dropout over more than five keys.
  const auto fails = [](const AttentionCase& c) {
    return c.options.dropout_p > 0 && !c.options.block_table && !c.options.cu_seqlens_q && keys_of(c) > 5;
  };
  int found = 0;
  for (std::uint64_t seed = 1; seed <= 200; ++seed) {
    const AttentionCase whole = cases::draw_case(seed);
    if (!fails(whole)) continue;
    ++found;
    const auto attempt = [&](const Simplification& simpler) -> cases::Attempt {
      const AttentionCase c = cases::draw_case(seed, simpler);
      return {fails(c), cases::describe(c)};
    };
    const Simplification smallest = cases::shrink(cases::names_of_set(whole.options), attempt);
    const AttentionCase c = cases::draw_case(seed, parse_simplification(smallest.text()));
    EXPECT_TRUE(fails(c)) << smallest.text();
    EXPECT_EQ(keys_of(c), 6) << cases::describe(c);
    EXPECT_EQ(c.k.view().size(), 6) << cases::describe(c);
    EXPECT_EQ(c.q.view().size(), 1) << cases::describe(c);
    for (const std::string& name : cases::names_of_set(c.options))
      EXPECT_THAT(name, ::testing::AnyOf("dropout_p", "num_threads")) << cases::describe(c);
  }
  EXPECT_GT(found, 5);
}

TEST(Shrinking, TriesOtherNumbersWhereASmallerProblemHasOthers) {
  // The fault is in the first number of q, which is another one in a smaller problem.
  const std::uint64_t seed = 3;
  const auto attempt = [&](const Simplification& simpler) -> cases::Attempt {
    const AttentionCase c = cases::draw_case(seed, simpler);
    const Tensor q = Tensor::copy_of(c.q.view(), DType::f64);
    const bool fails = simpler.empty() || (simpler.numbers && q.size() > 0 && q.values<double>()[0] > 0.0);
    return {fails, cases::describe(c)};
  };
  const Simplification smallest = cases::shrink(cases::names_of_set(cases::draw_case(seed).options), attempt);
  EXPECT_TRUE(smallest.numbers.has_value());
  EXPECT_TRUE(attempt(smallest).fails) << smallest.text();
  EXPECT_EQ(cases::draw_case(seed, smallest).q.view().size(), 1);
}

TEST(Shrinking, StopsAfterAsManyAttemptsAsItMayMake) {
  int attempts = 0;
  const auto attempt = [&](const Simplification& simpler) -> cases::Attempt {
    ++attempts;
    return {true, simpler.text()};
  };
  cases::shrink({"mask", "lse"}, attempt, 7);
  EXPECT_EQ(attempts, 7);
}

}  // namespace
}  // namespace saccade::test
