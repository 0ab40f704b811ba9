// The tables of options that do not combine: every call refuses what they say, and nothing else, for every pair of
// options; and docs/options.md has their rows.
#include <gmock/gmock.h>

#include <algorithm>
#include <fstream>
#include <functional>
#include <map>
#include <set>
#include <sstream>
#include <type_traits>
#include <utility>

#include "cases/options.h"
#include "saccade/attention_conflicts.h"
#include "saccade/attention_options.h"
#include "saccade/attention_state.h"
#include "saccade/backward.h"
#include "saccade/decode.h"
#include "saccade/distributed.h"
#include "saccade/inspect.h"
#include "saccade/kv_cache.h"
#include "saccade/quantize.h"
#include "support/refusal.h"

namespace saccade::test {
namespace {

using ::testing::HasSubstr;

constexpr std::int64_t kBatch = 2, kHeads = 2, kRows = 3, kKeys = 4, kDim = 8, kPage = 2;

/// A value of each option that is a tensor to read.
const std::map<std::string_view, std::pair<TensorView AttentionOptions::*, Tensor>>& inputs() {
  using O = AttentionOptions;
  static const std::map<std::string_view, std::pair<TensorView O::*, Tensor>> values{
      {"query_offsets", {&O::query_offsets, Tensor(DType::i64, {kBatch})}},
      {"mask", {&O::mask, Tensor(DType::f32, {kKeys})}},
      {"block_mask", {&O::block_mask, Tensor(DType::boolean, {1})}},
      {"block_table", {&O::block_table, Tensor(DType::i32, {kBatch, kKeys / kPage})}},
      {"cu_seqlens_q", {&O::cu_seqlens_q, Tensor::of<std::int64_t>({0, kRows, kBatch * kRows})}},
      {"cu_seqlens_k", {&O::cu_seqlens_k, Tensor::of<std::int64_t>({0, kKeys, kBatch * kKeys})}},
      {"kv_lengths", {&O::kv_lengths, Tensor::of<std::int64_t>({4, 3})}},
      {"kv_starts", {&O::kv_starts, Tensor::of<std::int64_t>({0, 1})}},
      {"k_scale", {&O::k_scale, Tensor(DType::f32, {1})}},
      {"v_scale", {&O::v_scale, Tensor(DType::f32, {1})}},
      {"k_multipliers", {&O::k_multipliers, Tensor(DType::i8, {1})}},  // of another shape later
      {"v_multipliers", {&O::v_multipliers, Tensor(DType::i8, {1})}},
      {"alibi_slopes", {&O::alibi_slopes, Tensor(DType::f32, {kHeads})}},
      {"sinks", {&O::sinks, Tensor(DType::f32, {kHeads})}}};
  return values;
}

/// Sets an option that is neither a tensor nor has text; returns whether it is one.
bool set_other(std::string_view name, AttentionOptions& options) {
  static int context = 0;
  if (name == "score_modifier") options.score_modifier = [](void*, const ScoreTile&) {};
  if (name == "score_modifier_backward")
    options.score_modifier_backward = [](void*, const ScoreTile&, const ScoreTile&) {};
  if (name == "score_block_effect")
    options.score_block_effect = [](void*, const ScoreBlock&) { return BlockEffect::partial; };
  if (name == "score_context") options.score_context = &context;
  if (name == "weights_after_dropout") options.weights_after_dropout = true;
  if (name == "k_rotated") options.k_rotated = true;
  if (name == "v_rotated") options.v_rotated = true;
  if (name == "origin") options.origin = {.key = 4096};
  if (name == "backend") options.backend = BackendChoice("reference");
  if (name.starts_with("score_")) return name != "score_stage";
  return name == "weights_after_dropout" || name.ends_with("_rotated") || name == "origin" || name == "backend";
}

/// A small problem with some options, of the shapes that these ask for.
class Problem {
 public:
  /// With these options of the table, and those that they need.
  explicit Problem(const std::set<std::string_view>& names) {
    for (const std::string_view name : names) set(name);
    for (bool is_whole = false; !is_whole;) {
      is_whole = true;
      for (const auto& [option, needed, or_else] : kOptionNeeds) {
        if (!option.is_given(options) || needed.is_given(options) || or_else.is_given(options)) continue;
        set(needed.name);
        is_whole = false;
      }
    }
    shape();
    if (outputs_.contains("lse")) options.lse = lse;
    if (outputs_.contains("weights")) options.weights = weights_;
    if (outputs_.contains("scores")) options.scores = scores_;
  }

  AttentionOptions options;
  Tensor q, o, lse;
  TensorView k, v;

 private:
  /// What k or v is a view of.
  struct Memory {
    Tensor plain, multipliers;
    QuantizedTensor quantized;
  };

  void set(std::string_view name) {
    if (name == "lse" || name == "weights" || name == "scores") {
      outputs_.insert(name);
    } else if (const auto found = inputs().find(name); found != inputs().end()) {
      options.*found->second.first = found->second.second;
    } else if (!set_other(name, options)) {
      const auto option = std::ranges::find(kAttentionOptions, name, &AttentionOption::name);
      for (const char* text : {"0.25", "1", "2x2", "1,1", "top_left", "bshd", "biased"})
        if (cases::set_from_text(*option, text, options).empty()) return;
      FAIL() << name << " has no value here: give it one";
    }
  }

  void shape() {
    const bool is_packed = bool(options.cu_seqlens_q), is_paged = bool(options.block_table);
    const auto tensor = [&](bool packed, std::int64_t batch, std::int64_t length) {
      if (packed) return Tensor(DType::f32, {batch * length, kHeads, kDim});
      return options.layout == Layout::bshd ? Tensor(DType::f32, {batch, length, kHeads, kDim})
                                            : Tensor(DType::f32, {batch, kHeads, length, kDim});
    };
    q = tensor(is_packed, kBatch, kRows);
    o = tensor(is_packed, kBatch, kRows);
    const Tensor tokens = is_paged ? tensor(false, 1, kPage) : tensor(bool(options.cu_seqlens_k), kBatch, kKeys);
    set_tokens(tokens, options.k_scale, options.k_multipliers, keys_, k);
    set_tokens(tokens, options.v_scale, options.v_multipliers, values_, v);
    Shape rows{kBatch, kHeads, kRows};
    if (is_packed) rows = {kHeads, kBatch * kRows};
    lse = Tensor(DType::f32, rows);
    rows.push_back(kKeys);
    weights_ = Tensor(DType::f32, rows);
    scores_ = Tensor(DType::f32, rows);
  }

  /// Keys or values of the type that the options ask for.
  void set_tokens(const Tensor& tokens, const TensorView& scale, TensorView& multipliers, Memory& memory,
                  TensorView& view) const {
    memory.plain = scale && !multipliers ? Tensor(DType::i8, tokens.shape()) : tokens;
    view = memory.plain;
    if (!multipliers) return;
    memory.quantized = quantize(tokens, DType::i4);
    view = memory.quantized.view();
    const bool rows_go_first = options.cu_seqlens_k || options.layout == Layout::bshd;
    const TensorView given = memory.quantized.multipliers;
    memory.multipliers = Tensor::copy_of(rows_go_first ? given.transposed(-3, -2) : given);
    multipliers = memory.multipliers;
  }

  std::set<std::string_view> outputs_;
  Tensor weights_, scores_;
  Memory keys_, values_;
};

distributed::ParallelConfig division_of(const Problem& p, distributed::Method method) {
  const std::int64_t documents = p.options.cu_seqlens_q ? kBatch : 1;
  return {.rows = distributed::Sharding::contiguous(documents * kRows, 1),
          .keys = distributed::Sharding::contiguous(documents * kKeys, 1),
          .method = method};
}

void differentiate(const Problem& p, distributed::Communicator* rank) {
  const auto like = [](const TensorView& view) {
    return Tensor(DType::f32, Shape(view.dims().begin(), view.dims().end()));
  };
  Tensor dq = like(p.q), dk = like(p.k), dv = like(p.v);
  const AttentionOutcome outcome{.o = p.o, .lse = p.lse, .dout = p.o};
  const AttentionGradients gradients{.dq = dq, .dk = dk, .dv = dv};
  if (rank)
    distributed::attention_backward(*rank, p.q, p.k, p.v, outcome, gradients,
                                    division_of(p, distributed::Method::gather), p.options);
  else
    attention_backward(p.q, p.k, p.v, outcome, gradients, p.options);
}

void exchange_states(Problem& p) {
  const Tensor states = decode_states(p.q, p.k, p.v, p.options);
  merge_decode_states(p.q, p.k, p.v, states, p.o, p.options);
}

/// A call that takes options, and what it refuses beyond what every call does.
struct Call {
  std::string name;
  std::set<AttentionCall> kinds;
  std::function<void(Problem&)> run;
};

std::vector<Call> calls() {
  using distributed::Method;
  static const auto rank = distributed::local_communicators(1);
  const auto divided = [](Method method) {
    return [method](Problem& p) {
      distributed::attention(*rank[0], p.q, p.k, p.v, p.o, division_of(p, method), p.options);
    };
  };
  const std::set divided_decode{AttentionCall::distributed, AttentionCall::distributed_decode};
  return {
      {"attention", {}, [](Problem& p) { attention(p.q, p.k, p.v, p.o, p.options); }},
      {"decode", {}, [](Problem& p) { decode(p.q, p.k, p.v, p.o, p.options); }},
      {"attention_backward", {AttentionCall::attention_backward}, [](Problem& p) { differentiate(p, nullptr); }},
      {"inspect", {AttentionCall::inspect}, [](Problem& p) { inspect(p.q, p.k, {.entropy = true}, p.options); }},
      {"decode_states", {AttentionCall::decode_states}, exchange_states},
      {"AttentionState::add",
       {AttentionCall::attention_state},
       [](Problem& p) { AttentionState().add(p.q, p.k, p.v, p.options); }},
      {"KvCache::options",
       {AttentionCall::kv_cache},
       [](Problem& p) {
         KvCache cache({.batch = kBatch, .num_kv_heads = kHeads, .head_dim = kDim, .causal = false});
         const Tensor tokens(DType::f32, {kBatch, kHeads, kKeys, kDim});
         cache.append(tokens, tokens);
         const AttentionOptions options = cache.options(p.options);
         attention(p.q, cache.k(options.layout), cache.v(options.layout), p.o, options);
       }},
      {"distributed::attention", {AttentionCall::distributed}, divided(Method::gather)},
      {"distributed::attention, pass_q", divided_decode, divided(Method::pass_q)},
      {"distributed::attention_backward",
       {AttentionCall::distributed, AttentionCall::attention_backward},
       [](Problem& p) { differentiate(p, rank[0].get()); }},
      {"distributed::decode", divided_decode,
       [](Problem& p) {
         distributed::decode(*rank[0], p.q, p.k, p.v, p.o, division_of(p, Method::automatic), p.options);
       }},
  };
}

/// The parts of messages of which a refusal has one; none: the call takes these options.
std::vector<std::string> refusals(const Call& call, const AttentionOptions& options) {
  std::vector<std::string> result;
  for (const auto& [first, second, why] : kOptionConflicts)
    if (first.is_given(options) && second.is_given(options))
      result.push_back(std::string(first.name) + " and " + std::string(second.name) + " were both given");
  for (const auto& [kind, option, why] : kRefusedOptions)
    if (call.kinds.contains(kind) && option.is_given(options))
      result.push_back(std::string(option.name) + " was given: " + std::string(why));
  return result;
}

TEST(OptionConflicts, AreRefusedAndNothingElseIs) {
  const std::vector<Call> all = calls();
  std::set<std::string> seen;
  for (const AttentionOption& first : kAttentionOptions)
    for (const AttentionOption& second : kAttentionOptions)
      for (const Call& call : all) {
        Problem problem(std::set{first.name, second.name});
        const std::vector<std::string> expected = refusals(call, problem.options);
        const std::string message = refusal([&] { call.run(problem); });
        SCOPED_TRACE(call.name + " with " + std::string(first.name) + " and " + std::string(second.name));
        const auto part = std::ranges::find_if(
            expected, [&](const std::string& text) { return message.find(text) != std::string::npos; });
        if (part != expected.end()) seen.insert(*part);
        EXPECT_TRUE(expected.empty() ? message.empty() : part != expected.end())
            << "expected one of " << ::testing::PrintToString(expected) << ", got " << message;
      }
  for (const auto& [first, second, why] : kOptionConflicts)
    EXPECT_TRUE(seen.contains(std::string(first.name) + " and " + std::string(second.name) + " were both given"));
  for (const auto& [kind, option, why] : kRefusedOptions)
    EXPECT_TRUE(seen.contains(std::string(option.name) + " was given: " + std::string(why))) << option.name;
}

TEST(OptionConflicts, AnOptionIsRefusedWithoutTheOneItNeeds) {
  for (const auto& [option, needed, or_else] : kOptionNeeds) {
    Problem problem(std::set{option.name});
    AttentionOptions& options = problem.options;
    for (const std::string_view name : {needed.name, or_else.name}) {
      const auto found = std::ranges::find(kAttentionOptions, name, &AttentionOption::name);
      if (found == std::end(kAttentionOptions)) continue;
      const auto clear = [&](auto member) {
        if constexpr (!std::is_same_v<decltype(member), OptionPair>) options.*member = AttentionOptions().*member;
      };
      std::visit(clear, found->member);
    }
    const std::string message = refusal([&] { attention(problem.q, problem.k, problem.v, problem.o, options); });
    EXPECT_EQ(message, "[attention] " + std::string(option.name) + " was given without " +
                           std::string(needed.name) + (or_else.name.empty() ? "" : " or ") +
                           std::string(or_else.name));
  }
}

TEST(OptionConflicts, AreThoseOfTheDocumentation) {
  std::stringstream text;
  text << std::ifstream(SACCADE_SOURCE_DIR "/docs/options.md").rdbuf();
  std::string page = text.str();
  const auto begin = page.find("## What does not combine"), end = page.find("\n## ", begin);
  ASSERT_LT(end, page.size());
  page = page.substr(begin, end - begin);
  const auto code = [](std::string_view name) { return "`" + std::string(name) + "`"; };
  std::vector<std::string> rows;
  for (const auto& [first, second, why] : kOptionConflicts)
    rows.push_back("| " + code(first.name) + " | " + code(second.name) + " | " + std::string(why) + " |\n");
  for (const auto& [option, needed, or_else] : kOptionNeeds)
    rows.push_back("| " + code(option.name) + " | " + code(needed.name) +
                   (or_else.name.empty() ? "" : " or " + code(or_else.name)) + " |\n");
  for (const auto& [call, option, why] : kRefusedOptions)
    rows.push_back("| " + std::string(kAttentionCallNames[static_cast<std::size_t>(call)]) + " | " +
                   code(option.name) + " | " + std::string(why) + " |\n");
  for (const std::string& row : rows) EXPECT_THAT(page, HasSubstr(row));
  std::size_t count = 0;
  std::istringstream lines(page);
  for (std::string line; std::getline(lines, line);) count += line.starts_with("| ") ? 1 : 0;
  EXPECT_EQ(count, rows.size() + 3) << "besides the heads of three lists";
}

}  // namespace
}  // namespace saccade::test
