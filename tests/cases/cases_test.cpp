// The problems that tests and the command share: the language of their files, and random ones.
#include <gmock/gmock.h>

#include <cmath>
#include <cstring>
#include <limits>
#include <set>
#include <sstream>

#include "cases/problem.h"
#include "cases/random_case.h"
#include "saccade/random.h"
#include "support/tensors.h"

namespace saccade::test {
namespace {

using cases::AttentionCase;
using cases::parse_problem;
using cases::Problem;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::ThrowsMessage;

// ---- Lines of text -------------------------------------------------------------------------------------------

TEST(ProblemText, EverythingCanBeSaid) {
  const std::string line =
      "b=2 h=32 hkv=8 sq=1 sk=32768 d=128 dv=64 dtype=bf16,f16,f16,f32 layout=bshd scale=0.5 softcap=30 "
      "causal=bottom_right offset=-7 window=256,0 mask=bool block_mask=64x32 page=16 lengths alibi sinks lse "
      "dropout=0.1 threads=2 decode";
  const Problem p = parse_problem(line);
  EXPECT_EQ(p.name(), line);
  EXPECT_EQ(p.batch, 2);
  EXPECT_EQ(p.num_kv_heads, 8);
  EXPECT_EQ(p.seqlen_k, 32768);
  EXPECT_EQ(p.head_dim_v, 64);
  EXPECT_EQ(p.q_type, DType::bf16);
  EXPECT_EQ(p.o_type, DType::f32);
  EXPECT_EQ(p.options.window_left, 256);
  EXPECT_EQ(p.options.block_mask_k, 32);
  EXPECT_TRUE(p.calls_decode);
}

TEST(ProblemText, SizesFollowFromEachOther) {
  const Problem p = parse_problem("  h=4\ts=77 d=40 docs=3 ");
  EXPECT_EQ(p.num_kv_heads, 4);
  EXPECT_EQ(p.seqlen_k, 77);
  EXPECT_EQ(p.head_dim_v, 40);
  EXPECT_EQ(p.name(), "b=1 h=4 s=77 d=40 dtype=f32 docs=3");
  EXPECT_EQ(parse_problem(p.name()).name(), p.name());
}

TEST(ProblemText, SaysWhatIsWrong) {
  const auto refused = [](const std::string& line, const std::string& message) {
    EXPECT_THAT([&] { parse_problem(line); }, ThrowsMessage<std::invalid_argument>(HasSubstr(message))) << line;
  };
  refused("h=0", "h=0: expected a whole number from 1 on");
  refused("h=4x", "h=4x: expected a whole number from 1 on");
  refused("h=", "h=: expected a whole number from 1 on");
  refused("s=99999999999999999999", "s=99999999999999999999: expected a whole number from 0 on");
  refused("threads=5000", "threads=5000: expected a whole number from 1 to 1024");
  refused("hkv=3 h=4", "h=4 is no multiple of hkv=3");
  refused("h=4 h=4", "h=4: h is given twice");
  refused("heads=4", "heads=4: expected one of the keys b, h, hkv, ");
  refused("paged", "paged: expected KEY=VALUE or one of the flags lengths, starts, lse, decode, alibi, sinks");
  refused("causal=yes", "causal=yes: expected one of none, top_left, bottom_right");
  refused("dtype=f32,bf16", "dtype=f32,bf16: expected one of f32, bf16, f16, f64, or four types (q,k,v,o)");
  refused("dtype=i8", "dtype=i8: expected one of f32, bf16, f16, f64, or four types");
  refused("dtype=f32,f32,f32,f64", "expected f64 for all four or for none");
  refused("window=3", "window=3: expected two whole numbers from -1 on with , between them");
  refused("window=3,-2", "two whole numbers from -1 on");
  refused("window=2199023255552,0", "expected a whole number within 2^40 of 0");
  refused("offset=-2199023255552", "expected a whole number within 2^40 of 0");
  refused("block_mask=9223372036854775807x1", "expected a whole number within 2^40 of 0");
  refused("block_mask=64", "block_mask=64: expected two whole numbers from 1 on with x between them");
  refused("dropout=1", "dropout=1: expected a probability below 1");
  refused("softcap=-1", "softcap=-1: expected 0 or a positive number");
  refused("scale=nan", "scale=nan: expected a number");
  refused("docs=2 page=4", "docs= and page= exclude each other");
  refused("docs=2 b=2", "docs= makes the batch: b= cannot be given");
}

TEST(ProblemText, FilesHaveCommentsAndLineNumbers) {
  std::istringstream good("# a comment\n\nh=2 s=3\r\n  # another\nh=1 s=4 decode # a remark\n");
  const std::vector<Problem> problems = cases::read_problems(good, "shapes.txt");
  ASSERT_EQ(problems.size(), 2U);
  EXPECT_EQ(problems[0].num_heads, 2);
  EXPECT_TRUE(problems[1].calls_decode);
  std::istringstream bad("h=2\n\nd=0\n");
  EXPECT_THAT([&] { cases::read_problems(bad, "shapes.txt"); },
              ThrowsMessage<std::invalid_argument>("shapes.txt:3: d=0: expected a whole number from 1 on"));
}

TEST(ProblemText, DecodingReadsTheKeysAndValuesOfEveryHead) {
  EXPECT_EQ(parse_problem("h=4 hkv=2 sk=10 d=8 dtype=bf16").kv_bytes(), 2 * 10 * 16 * 2);
}

// ---- What is drawn -------------------------------------------------------------------------------------------

TEST(RandomCases, AreThoseOfTheirSeed) {
  for (std::uint64_t seed = 1; seed < 40; ++seed) {
    const AttentionCase a = cases::draw_case(seed), b = cases::draw_case(seed);
    EXPECT_EQ(cases::describe(a), cases::describe(b));
    EXPECT_TRUE(same_bits(a.k.memory(), b.k.memory()));
    EXPECT_TRUE(same_bits(a.mask, b.mask));
    EXPECT_NE(cases::describe(a), cases::describe(cases::draw_case(seed + 1)));
  }
}

TEST(RandomCases, HoldEveryOptionOfTheLine) {
  const Problem p = parse_problem(
      "h=4 hkv=2 sq=20 sk=30 d=8 dtype=bf16 softcap=5 causal=top_left window=9,9 mask=f32 block_mask=8x8 docs=3 "
      "lengths starts sinks lse dropout=0.5 decode");
  const AttentionCase c = cases::draw_case(p, 7);
  EXPECT_THAT(c.q.view().dims(), ElementsAre(20, 4, 8));
  EXPECT_THAT(c.v.view().dims(), ElementsAre(30, 2, 8));
  EXPECT_EQ(c.k.memory().dtype(), DType::bf16);
  EXPECT_EQ(c.cu_seqlens_q.shape(), (Shape{4}));
  EXPECT_EQ(c.cu_seqlens_k.at<std::int64_t>(3), 30);
  EXPECT_TRUE(c.options.mask && c.options.block_mask && c.options.kv_lengths && c.options.kv_starts &&
              c.options.sinks && c.options.lse);
  EXPECT_TRUE(c.has_few_rows);
  // The reference accepts every drawn problem.
  const auto result = reference::attention(c.q.view(), c.k.view(), c.v.view(), c.options);
  EXPECT_THAT(result.o.shape(), ElementsAre(20, 4, 8));
  const AttentionCase paged = cases::draw_case(parse_problem("b=2 h=2 sq=3 sk=50 d=8 page=16"), 7);
  EXPECT_THAT(paged.k.view().dims(), ElementsAre(8, 2, 16, 8));
  EXPECT_EQ(paged.block_table.shape(), (Shape{2, 4}));
  EXPECT_THAT(reference::attention(paged.q.view(), paged.k.view(), paged.v.view(), paged.options).o.shape(),
              ElementsAre(2, 2, 3, 8));
}

TEST(RandomCases, OfLongProblemsSomeRowsAreChecked) {
  const Problem little = parse_problem("h=2 s=64 d=8"), much = parse_problem("h=4 s=3000 d=64 docs=3 lse");
  EXPECT_TRUE(cases::rows_to_check(little, cases::draw_case(little, 1), 1).empty());
  AttentionCase drawn = cases::draw_case(much, 1);
  const auto rows = cases::rows_to_check(much, drawn, 1);
  EXPECT_GT(rows.size(), 8U);
  EXPECT_LT(rows.size(), 600U);
  for (const auto& [batch, head, row] : rows) {
    const std::int64_t seqlen_q =
        drawn.cu_seqlens_q.at<std::int64_t>(batch + 1) - drawn.cu_seqlens_q.at<std::int64_t>(batch);
    EXPECT_TRUE(batch < 3 && head < 4 && row >= 0 && row < seqlen_q) << batch << " " << head << " " << row;
  }
}

TEST(RandomCases, ScoreFunctionsDoToBlocksWhatTheySay) {
  cases::Random random(1);
  std::set<BlockEffect> seen;
  for (int i = 0; i < 3000; ++i) {
    AttentionOptions options;
    const auto function = cases::draw_score_function(random, 3, 200);
    function->add_to(options, true);
    ScoreTile tile;
    tile.head = random.uniform(0, 2);
    tile.first_row = random.uniform(0, 180);
    tile.first_key = random.uniform(0, 180);
    tile.rows = random.uniform(1, 8);
    tile.keys = random.uniform(1, 8);
    tile.offset = random.uniform(-50, 50);
    tile.stride = tile.keys;
    std::vector<double> scores(static_cast<std::size_t>(tile.rows * tile.keys), 0.25);
    tile.scores = scores.data();
    tile.dtype = DType::f64;
    options.score_modifier(options.score_context, tile);
    const BlockEffect effect = options.score_block_effect(options.score_context, tile);
    seen.insert(effect);
    constexpr double kHidden = -std::numeric_limits<double>::infinity();
    if (effect == BlockEffect::partial) continue;
    EXPECT_THAT(scores, ::testing::Each(effect == BlockEffect::skip ? kHidden : 0.25)) << function->name();
  }
  EXPECT_EQ(seen.size(), 3U);
}

TEST(ScatteredTensors, KnowWhatWasWritten) {
  cases::ScatteredTensor tensor(DType::bf16, {2, 3, 4}, {1, 0}, 5);
  EXPECT_EQ(tensor.written(), 0);
  EXPECT_TRUE(std::isnan(value_at(tensor.view(), std::vector<std::int64_t>{1, 2, 3})));
  cases::fill(tensor.view().select(0, 1), 0.5);
  EXPECT_EQ(tensor.written(), 12);
  EXPECT_EQ(value_at(tensor.view(), std::vector<std::int64_t>{1, 2, 3}), 0.5);
  tensor.clear();
  EXPECT_EQ(tensor.written(), 0);
}

}  // namespace
}  // namespace saccade::test
