// The guarantees of tasks about their batches.
#include "saccade/tasks.h"
#include "support/refusal.h"

#include <gmock/gmock.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <set>
#include <string>

namespace saccade::test {
namespace {

using ::testing::HasSubstr;

/// The seqlen + 1 tokens of a row.
std::vector<std::int64_t> sequence_of(const TokenBatch& batch, std::int64_t row) {
  std::vector<std::int64_t> sequence;
  for (std::int64_t i = 0; i < batch.inputs.shape(1); ++i)
    sequence.push_back(batch.inputs.at<std::int64_t>(row, i));
  sequence.push_back(batch.targets.at<std::int64_t>(row, batch.inputs.shape(1) - 1));
  return sequence;
}

// ---- Induction -----------------------------------------------------------------------------------------------

TEST(InductionTask, TargetsAreTheNextTokens) {
  const TokenBatch batch = InductionTask(62).batch(1, 50, 31);
  for (std::int64_t row = 0; row < 50; ++row) {
    const auto sequence = sequence_of(batch, row);
    for (std::int64_t i = 0; i < 31; ++i)
      EXPECT_EQ(batch.targets.at<std::int64_t>(row, i), sequence[static_cast<std::size_t>(i) + 1]);
  }
}

TEST(InductionTask, OneSegmentComesAgainAndNothingElse) {
  for (const std::int64_t seqlen : {7, 8, 16, 63}) {
    const TokenBatch batch = InductionTask(128).batch(2, 200, seqlen);
    std::set<std::int64_t> distances, lengths;
    for (std::int64_t row = 0; row < 200; ++row) {
      const auto sequence = sequence_of(batch, row);
      std::map<std::int64_t, std::int64_t> last_seen;
      std::int64_t distance = 0, length = 0;  // of the current repetition
      std::set<std::int64_t> segment;
      for (std::int64_t i = 0; i < std::ssize(sequence); ++i) {
        const std::int64_t token = sequence[static_cast<std::size_t>(i)];
        ASSERT_GE(token, 0);
        ASSERT_LT(token, 128);
        const auto earlier = last_seen.find(token);
        const std::int64_t back = earlier == last_seen.end() ? 0 : i - earlier->second;
        if (back != distance) lengths.insert(std::exchange(length, 0));
        distance = back;
        const bool goes_on = back > 0 && length++ > 0;
        if (back > 0) segment.insert(token), distances.insert(back);
        if (i > 0) {
          EXPECT_EQ((batch.unseen.at<bool>(row, i - 1)), back == 0);
          EXPECT_EQ((batch.repeated.at<bool>(row, i - 1)), goes_on);
        }
        last_seen[token] = i;
      }
      EXPECT_LE(std::ssize(segment), (seqlen + 1) / 4);
    }
    if (seqlen == 63) {  // no fixed offset solves it
      EXPECT_GT(distances.size(), 20u);
      EXPECT_GT(lengths.size(), 10u);
    }
  }
}

TEST(InductionTask, ABatchIsAFunctionOfItsSeed) {
  const InductionTask task(40);
  const auto inputs = [&](std::uint64_t seed) { return task.batch(seed, 4, 20).inputs; };
  EXPECT_TRUE(std::ranges::equal(inputs(5).values<std::int64_t>(), inputs(5).values<std::int64_t>()));
  EXPECT_FALSE(std::ranges::equal(inputs(5).values<std::int64_t>(), inputs(6).values<std::int64_t>()));
  EXPECT_FALSE(
      std::ranges::equal(inputs(5).values<std::int64_t>(), inputs(5 + (1ull << 40)).values<std::int64_t>()));
}

TEST(InductionTask, RefusesWhatItCannotFill) {
  EXPECT_THAT(refusal([] { InductionTask(1); }), HasSubstr("vocab_size must be from 2 to 2^40, got 1"));
  EXPECT_THAT(refusal([] { InductionTask(16).batch(0, 1, 9); }),
              HasSubstr("seqlen must be from 7 to vocab_size / 2 = 8, got 9"));
  EXPECT_THAT(refusal([] { InductionTask(16).batch(0, 1, 6); }), HasSubstr("got 6"));
  EXPECT_THAT(refusal([] { InductionTask(16).batch(0, 0, 8); }), HasSubstr("batch_size"));
}

// ---- Text ----------------------------------------------------------------------------------------------------

std::string alphabet(std::size_t size) {
  std::string text;
  for (std::size_t i = 0; i < size; ++i) text += static_cast<char>(i % 251);
  return text;
}

TEST(TextTask, PiecesComeFromTheTrainingPartAlone) {
  const std::string text = std::string(90, 'a').append(10, 'b');
  const TextTask task(text);
  EXPECT_EQ(task.training_part(), std::string(90, 'a'));
  EXPECT_EQ(task.held_out_part(), std::string(10, 'b'));
  const TokenBatch batch = task.batch(1, 100, 89);
  for (const std::int64_t token : batch.targets.values<std::int64_t>()) ASSERT_EQ(token, 'a');
}

TEST(TextTask, PiecesAreRunsOfBytesAtEveryPlace) {
  const TextTask task(alphabet(100));
  const TokenBatch batch = task.batch(1, 400, 80);
  std::set<std::int64_t> begins;
  for (std::int64_t row = 0; row < 400; ++row) {
    const auto sequence = sequence_of(batch, row);
    begins.insert(sequence.front());
    for (std::size_t i = 1; i < sequence.size(); ++i)
      ASSERT_EQ(sequence[i], sequence[0] + static_cast<std::int64_t>(i));
  }
  EXPECT_EQ(begins.size(), 10u);  // 0 ... 9: 90 bytes, pieces of 81
}

TEST(TextTask, BytesAreUnsigned) {
  const TextTask task(std::string(20, '\xE4'));
  EXPECT_EQ(task.batch(1, 1, 5).inputs.at<std::int64_t>(0, 0), 0xE4);
}

TEST(TextTask, EveryHeldOutByteButTheFirstIsATargetOnce) {
  const TextTask task(alphabet(210));  // 21 held out
  const TokenBatch batch = task.held_out(5);
  ASSERT_EQ(batch.targets.shape(), (Shape{4, 5}));
  for (std::int64_t i = 0; i < 20; ++i) {
    EXPECT_EQ(batch.inputs.values<std::int64_t>()[static_cast<std::size_t>(i)], 189 + i);
    EXPECT_EQ(batch.targets.values<std::int64_t>()[static_cast<std::size_t>(i)], 190 + i);
  }
}

TEST(TextTask, OrderZeroIsTheCrossEntropyOfTheCounts) {
  // 18 bytes to train on: 12 a, 6 b. Held out: a, b.
  const TextTask task(
      "aabaabaabaabaabaab"
      "ab");
  const double expected = -(std::log2(13.0 / 274) + std::log2(7.0 / 274)) / 2;
  EXPECT_DOUBLE_EQ(task.unigram_bits_per_byte(), expected);
}

TEST(TextTask, RefusesATextThatIsTooShort) {
  EXPECT_THAT(refusal([] { TextTask(alphabet(100)).batch(0, 1, 90); }),
              HasSubstr("the text has 100 bytes, 90 of them to train on, too few for pieces of 90 and one more"));
  EXPECT_THAT(refusal([] { TextTask(alphabet(100)).held_out(10); }),
              HasSubstr("the text has 100 bytes, 10 of them held out, too few"));
  EXPECT_THAT(refusal([] { TextTask("").held_out(10); }), HasSubstr("0 bytes"));
  EXPECT_THAT(refusal([] { TextTask("").batch(0, 1, 1); }), HasSubstr("0 bytes"));
}

}  // namespace
}  // namespace saccade::test
