// saccade run on seeded random tensors of awkward shapes and mixed options, against the reference in f64, on every
// instruction set of this machine.
#include <gmock/gmock.h>

#include <cmath>
#include <random>

#include "cli/shapes.h"
#include "saccade/random.h"
#include "saccade/runtime.h"
#include "support/cli_support.h"
#include "support/environment.h"

namespace saccade::test {
namespace {

using nlohmann::json;

constexpr std::uint64_t kProblems = fewer_if_slow(50);

// Draws one problem: files in the folder and the arguments of the call. The same seed draws the same problem.
class Problem {
 public:
  explicit Problem(std::uint64_t seed) : random_(seed), numbers_(seed) {
    rank_ = static_cast<int>(between(2, 4));
    batch_ = rank_ == 4 ? between(1, 3) : 1;
    kv_heads_ = rank_ > 2 ? between(1, 3) : 1;
    heads_ = rank_ > 2 ? kv_heads_ * between(1, 3) : 1;
    bshd_ = chance(0.4);
    // With the two longest lengths the reference, not the command, would take most of the time.
    seqlen_q_ = kSeqlens[index_below(kSeqlens.size() - 2)];
    seqlen_k_ = kSeqlens[index_below(kSeqlens.size() - 1)];
    head_dim_ = kHeadDims[index_below(kHeadDims.size())];
    head_dim_v_ = chance(0.5) ? head_dim_ : kHeadDims[index_below(kHeadDims.size())];
    draw_options();
  }

  /// Writes the tensors into a folder.
  void write(const std::filesystem::path& folder) {
    save_npy(folder / "q.npy", numbers_.randn(shape(heads_, seqlen_q_, head_dim_)));
    save_npy(folder / "k.npy", numbers_.randn(shape(kv_heads_, seqlen_k_, head_dim_)));
    save_npy(folder / "v.npy", numbers_.randn(shape(kv_heads_, seqlen_k_, head_dim_v_)));
    if (mask_.size() > 0) save_npy(folder / "mask.npy", mask_);
    if (lengths_.size() > 0) save_npy(folder / "lengths.npy", lengths_);
  }

  const std::vector<std::string>& arguments() const { return arguments_; }

  std::string description() const {
    std::string text = "rank " + std::to_string(rank_) + ", q " + to_string(shape(heads_, seqlen_q_, head_dim_)) +
                       ", k " + to_string(shape(kv_heads_, seqlen_k_, head_dim_)) + ", head_dim_v " +
                       std::to_string(head_dim_v_) + ":";
    for (const std::string& argument : arguments_) text += " " + argument;
    if (mask_.size() > 0) text += ", mask " + std::string(name_of(mask_.dtype())) + " " + to_string(mask_.shape());
    return text;
  }

 private:
  std::uint64_t index_below(std::uint64_t count) { return random_() % count; }
  std::int64_t between(std::int64_t low, std::int64_t high) {
    return low + static_cast<std::int64_t>(index_below(static_cast<std::uint64_t>(high - low + 1)));
  }
  bool chance(double p) { return static_cast<double>(index_below(1000)) < 1000 * p; }
  std::string one_of(const std::vector<std::string>& choices) { return choices[index_below(choices.size())]; }

  std::string to_string(const Shape& lengths) const { return saccade::to_string(std::span(lengths)); }

  Shape shape(std::int64_t heads, std::int64_t seqlen, std::int64_t dim) const {
    Shape all = bshd_ ? Shape{batch_, seqlen, heads, dim} : Shape{batch_, heads, seqlen, dim};
    if (rank_ == 2) return {seqlen, dim};
    return {all.begin() + (4 - rank_), all.end()};
  }

  void add(const std::string& option, const std::string& value) {
    arguments_.push_back(option);
    arguments_.push_back(value);
  }

  void draw_options() {
    if (bshd_) add("--layout", "bshd");
    add("--threads", std::to_string(between(1, 3)));
    if (chance(0.5)) add("--causal", one_of({"none", "top-left", "bottom-right"}));
    if (chance(0.3)) add("--query-offset", std::to_string(between(-40, 200)));
    if (chance(0.4)) add("--window", std::to_string(between(-1, 70)) + "," + std::to_string(between(-1, 70)));
    if (chance(0.4)) add("--scale", one_of({"0.05", "1", "-0.25", "2.5e-1"}));
    if (chance(0.3)) add("--softcap", one_of({"0.5", "7", "50"}));
    if (chance(0.5)) draw_mask();
    if (chance(0.3)) draw_lengths();
    if (chance(0.4)) add("--lse", "lse.npy");
    if (chance(0.4)) add("--weights", "weights.npy");
  }

  void draw_mask() {
    Shape lengths{batch_, heads_, seqlen_q_, seqlen_k_};
    for (std::int64_t& length : lengths) length = chance(0.25) ? 1 : length;
    lengths.erase(lengths.begin(), lengths.begin() + between(0, 3));
    mask_ = Tensor(chance(0.5) ? DType::boolean : (chance(0.5) ? DType::f32 : DType::f64), lengths);
    const double hidden = std::vector{0.0, 0.1, 0.6, 0.97}[index_below(4)];
    Tensor values(DType::f64, lengths);
    for (double& value : values.values<double>()) {
      const bool hide = chance(hidden);
      value = mask_.dtype() == DType::boolean
                  ? (hide ? 0.0 : 1.0)
                  : (hide ? -INFINITY : 0.01 * static_cast<double>(between(-200, 200)));
    }
    copy(values, mask_);
    add("--mask", "mask.npy");
  }

  void draw_lengths() {
    lengths_ = Tensor(chance(0.5) ? DType::i32 : DType::i64, {batch_});
    Tensor values(DType::i64, {batch_});
    for (std::int64_t& value : values.values<std::int64_t>()) value = between(0, seqlen_k_);
    copy(values, lengths_);
    add("--kv-lengths", "lengths.npy");
  }

  std::mt19937_64 random_;
  TorchGenerator numbers_;
  int rank_ = 4;
  std::int64_t batch_ = 1, heads_ = 1, kv_heads_ = 1, seqlen_q_ = 1, seqlen_k_ = 1, head_dim_ = 1, head_dim_v_ = 1;
  bool bshd_ = false;
  Tensor mask_, lengths_;
  std::vector<std::string> arguments_;
};

class SweepTest : public CommandTest {
 protected:
  void expect_agreement(std::uint64_t seed, const std::string& isa) {
    Problem problem(seed);
    SCOPED_TRACE("seed " + std::to_string(seed) + " on " + isa + ", " + problem.description());
    problem.write(path("."));
    std::vector<std::string> arguments{"run",   "--q", "q.npy", "--k",     "k.npy", "--v",
                                       "v.npy", "-o",  "o.npy", "--check", "--json"};
    arguments.insert(arguments.end(), problem.arguments().begin(), problem.arguments().end());
    const Outcome outcome = run(arguments, {.environment = {{"SACCADE_ISA", isa}}});
    ASSERT_EQ(outcome.exit_code, 0) << outcome.err;
    const json report = outcome.json();
    EXPECT_EQ(report.at("isa"), isa);
    const bool has_weights = std::ranges::count(problem.arguments(), "--weights") > 0;
    EXPECT_EQ(report.at("checks").size(), has_weights ? 3u : 2u);
    for (const json& check : report.at("checks")) EXPECT_EQ(check.at("holds"), true) << check;
  }
};

TEST_F(SweepTest, AgreesWithTheReferenceOnEveryInstructionSet) {
  for (const Isa isa : available_isas()) {
    for (std::uint64_t seed = 0; seed < kProblems; ++seed) expect_agreement(seed, std::string(name_of(isa)));
  }
}

}  // namespace
}  // namespace saccade::test
