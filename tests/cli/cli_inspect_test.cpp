// saccade inspect as a user runs it.
#include <gmock/gmock.h>

#include "saccade/inspect.h"
#include "saccade/random.h"
#include "support/cli_support.h"
#include "support/expect_close.h"

namespace saccade::test {
namespace {

using nlohmann::json;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Key;
using ::testing::Not;
using ::testing::StartsWith;

class InspectCommand : public CommandTest {
 protected:
  InspectCommand() {
    save_npy(path("q.npy"), q_);
    save_npy(path("k.npy"), k_);
    save_npy(path("v.npy"), k_);
  }

  Outcome inspect_with(std::vector<std::string> more) {
    more.insert(more.begin(), {"inspect", "--q", "q.npy", "--k", "k.npy"});
    return run(more);
  }

  const Tensor q_ = TorchGenerator(1).randn({2, 70, 16}), k_ = TorchGenerator(2).randn({2, 90, 16});
};

bool same_numbers(const Tensor& a, const Tensor& b) {
  return a.shape() == b.shape() && a.dtype() == b.dtype() &&
         std::equal(static_cast<const std::byte*>(a.data()), static_cast<const std::byte*>(a.data()) + a.bytes(),
                    static_cast<const std::byte*>(b.data()));
}

TEST_F(InspectCommand, WritesEveryArrayThatIsAskedFor) {
  const Outcome outcome =
      inspect_with({"--causal", "bottom-right", "--rows", "3,69", "--top-k", "4", "--entropy", "--max",
                    "--received", "--distance", "--lse", "--pool", "7x9", "max", "--output", "out.npz"});
  ASSERT_EQ(outcome.exit_code, 0) << outcome.err;
  EXPECT_EQ(outcome.out, "");
  EXPECT_THAT(outcome.err, StartsWith("saccade inspect: q [2, 70, 16] k [2, 90, 16] in "));
  const auto arrays = load_npz(path("out.npz"));
  EXPECT_THAT(arrays, ElementsAre(Key("distance"), Key("entropy"), Key("lse"), Key("max_weight"),
                                  Key("mean_distance"), Key("pooled"), Key("received"), Key("row_indices"),
                                  Key("rows"), Key("top_keys"), Key("top_weights")));
  const Inspection expected = inspect(q_, k_,
                                      {.rows = {3, 69},
                                       .top_k = 4,
                                       .entropy = true,
                                       .max_weight = true,
                                       .received = true,
                                       .distance = true,
                                       .pool_rows = 7,
                                       .pool_keys = 9,
                                       .pooling = Pooling::max},
                                      {.causal = Causal::bottom_right});
  EXPECT_TRUE(same_numbers(arrays.at("rows"), expected.rows));
  EXPECT_TRUE(same_numbers(arrays.at("top_keys"), expected.top_keys));
  EXPECT_TRUE(same_numbers(arrays.at("entropy"), expected.entropy));
  EXPECT_TRUE(same_numbers(arrays.at("max_weight"), expected.max_weight));
  EXPECT_TRUE(same_numbers(arrays.at("received"), expected.received));
  EXPECT_TRUE(same_numbers(arrays.at("mean_distance"), expected.mean_distance));
  EXPECT_TRUE(same_numbers(arrays.at("pooled"), expected.pooled));
}

TEST_F(InspectCommand, WithValuesItComputesTheOutputToo) {
  ASSERT_EQ(inspect_with({"--v", "v.npy", "--entropy", "-o", "out.npz"}).exit_code, 0);
  const auto arrays = load_npz(path("out.npz"));
  EXPECT_THAT(arrays, ElementsAre(Key("entropy"), Key("o")));
  EXPECT_TRUE(same_numbers(arrays.at("o"), attention(q_, k_, k_)));
}

TEST_F(InspectCommand, SummarisesOnStandardOutput) {
  const Outcome outcome = inspect_with({});
  ASSERT_EQ(outcome.exit_code, 0) << outcome.err;
  EXPECT_THAT(outcome.out, HasSubstr("mean entropy (nats)"));
  EXPECT_THAT(outcome.out, HasSubstr("keys that receive most"));
  EXPECT_THAT(inspect_with({"--entropy"}).out, Not(HasSubstr("receive")));
  EXPECT_THAT(inspect_with({"--top-k", "2"}).out, HasSubstr("Largest weights of row 69:\n  head 0: "));
  EXPECT_THAT(inspect_with({"--pool", "8x8"}).out, HasSubstr("mean weight"));
  const json report = inspect_with({"--received", "--top-k", "2", "--rows", "5", "--json"}).json();
  const Inspection expected = inspect(q_, k_, {.top_k = 2});
  const json& second = report.at("heads").at(1);
  EXPECT_EQ(second.at("top").at(0).at("row"), 5);
  EXPECT_EQ(second.at("top").at(0).at("keys").at(0).at("key"), expected.top_keys.at<std::int64_t>(1, 5, 0));
  EXPECT_EQ(second.at("received").size(), 5);
}

TEST_F(InspectCommand, DrawsTheMap) {
  ASSERT_EQ(inspect_with({"--causal", "top-left", "-o", "map.svg"}).exit_code, 0);
  EXPECT_THAT(read("map.svg"), HasSubstr("Attention of 70 queries to 90 keys"));
  ASSERT_EQ(inspect_with({"--pool", "7x9", "max", "-o", "map.svg"}).exit_code, 0);
  EXPECT_THAT(read("map.svg"), HasSubstr("each the largest of 10 \u00d7 10 weights."));
#ifdef SACCADE_HAS_PNG
  ASSERT_EQ(inspect_with({"-o", "map.png"}).exit_code, 0);
  EXPECT_THAT(read("map.png"), StartsWith("\x89PNG"));
#endif
}

TEST_F(InspectCommand, RefusesWhatDoesNotFit) {
  save_npy(path("batch.npy"), Tensor(DType::f32, {2, 1, 5, 8}));
  save_npy(path("empty.npy"), Tensor(DType::f32, {0, 8}));
  const auto before = files();
  const auto refused = [&](const std::vector<std::string>& arguments, const std::string& line) {
    const Outcome outcome = run(arguments);
    EXPECT_EQ(outcome.exit_code, 2) << line;
    EXPECT_THAT(outcome.err, HasSubstr("saccade inspect: " + line));
    EXPECT_EQ(outcome.out, "");
  };
  const auto with = [](std::vector<std::string> more) {
    more.insert(more.begin(), {"inspect", "--q", "q.npy", "--k", "k.npy"});
    return more;
  };
  refused(with({"-o", "out.txt"}), "--output needs a name that ends in .npz, .svg or .png, not 'out.txt'");
  refused(with({"--rows", "1,x"}), "--rows: expected whole numbers from 0 on, as in 0,5,17, got '1,x'");
  refused(with({"--rows", "70"}), "rows contains 70 but q has 70 rows");
  refused(with({"--top-k", "0"}), "--top-k: expected a whole number of at least 1, got '0'");
  refused(with({"--pool", "8"}), "--pool: expected ROWSxKEYS, each from 1 to 32768, as in 512x512, got '8'");
  refused(with({"--pool", "8x8", "sum"}), "--pool: expected mean or max, got 'sum'");
  refused({"inspect", "--q", "batch.npy", "--k", "batch.npy", "-o", "map.svg"},
          "--q holds a batch of 2: a picture shows one entry");
  refused({"inspect", "--q", "q.npy", "--k", "batch.npy"},
          "--q and --k have 3 and 4 dimensions: expected as many in each");
  refused({"inspect", "--q", "empty.npy", "--k", "empty.npy"}, "--q and --k have shapes [0, 8] and [0, 8]");
  EXPECT_TRUE(files() == before);
}

}  // namespace
}  // namespace saccade::test
