// Every option of attention by name. The command line (saccade run and inspect), Python's keywords, problem text
// (saccade check --shapes), random problems and docs/options.md are all derived from this table.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <limits>
#include <optional>
#include <string>
#include <string_view>
#include <type_traits>
#include <variant>

#include "saccade/attention.h"

#pragma GCC visibility push(default)
namespace saccade {

/// The names of an enum's values, in order: `OptionNames<Layout>::names`. The command line writes - for _.
template <class Enum>
struct OptionNames;
/// names: by value.
template <>
struct OptionNames<Causal> {
  static constexpr std::array<std::string_view, 3> names{"none", "top_left", "bottom_right"};
};
/// names: by value.
template <>
struct OptionNames<Layout> {
  static constexpr std::array<std::string_view, 2> names{"bhsd", "bshd"};
};
/// names: by value.
template <>
struct OptionNames<ScoreStage> {
  static constexpr std::array<std::string_view, 4> names{"raw", "softcapped", "biased", "probabilities"};
};

/// A name that is accepted for one more version, and the one that takes its place.
struct DeprecatedName {
  std::string_view old_name, name;  ///< the one accepted, and the one to use
};
[[gnu::visibility("hidden")]] inline constexpr DeprecatedName kDeprecatedOptionNames[] = {{"bhld", "bhsd"},
                                                                                          {"blhd", "bshd"}};

/// The current name for an old one; any other name itself.
constexpr std::string_view current_option_name(std::string_view name) {
  for (const DeprecatedName& deprecated : kDeprecatedOptionNames)
    if (deprecated.old_name == name) return deprecated.name;
  return name;
}

/// The name of an enum's value.
template <class Enum>
constexpr std::string_view option_name(Enum value) {
  return OptionNames<Enum>::names[static_cast<std::size_t>(value)];
}

/// The value with this name, which may be an old one, or nullopt.
template <class Enum>
constexpr std::optional<Enum> option_value(std::string_view name) {
  for (std::size_t i = 0; i < OptionNames<Enum>::names.size(); ++i)
    if (OptionNames<Enum>::names[i] == current_option_name(name)) return static_cast<Enum>(i);
  return std::nullopt;
}

/// What an option affects: visibility: which keys a row sees by position and length; score: the scores, including
/// masks; weight: how weights follow from scores; result: what is reported; call: how the call reads its tensors
/// and is computed.
enum class OptionRole : std::uint8_t { unset, visibility, score, weight, result, call };

/// What an option's tensor holds; `mask`: bool, or numbers to add.
enum class OptionElements : std::uint8_t { none, numbers, i32, integers, boolean, mask, f32, i8 };

/// Two options that are given together, each at least `minimum`: "256,0" with a separator of ','.
struct OptionPair {
  std::int64_t AttentionOptions::*first;   ///< the option that is written first
  std::int64_t AttentionOptions::*second;  ///< the other one
  char separator;                          ///< between them
  std::int64_t minimum;                    ///< the least value of each
};

/// The numbers accepted in text. attention() makes its own checks.
struct OptionRange {
  double minimum = std::numeric_limits<double>::lowest();              ///< the least number
  double exclusive_maximum = std::numeric_limits<double>::infinity();  ///< numbers are below it
};

/// How random problems draw an option: with this probability, one of the values; for a tensor, numbers around 0
/// with one of them as the standard deviation; for a flag or an enum, any value but the default.
struct OptionDraw {
  double probability = 0.0;        ///< 0: cases/random_case.cpp draws it
  std::array<double, 4> values{};  ///< the values to draw from
  std::size_t count = 0;           ///< how many of them there are

  constexpr OptionDraw() = default;
  /// Draws one of `list` with the probability `chance`.
  constexpr explicit OptionDraw(double chance, std::initializer_list<double> list = {})
      : probability(chance), count(list.size()) {
    for (std::size_t i = 0; i < count; ++i) values[i] = list.begin()[i];
  }
};

/// One row: an option (or two that belong together) and its names. An empty name means the same name as in C++,
/// and
/// "-" means that the option cannot be given there.
struct AttentionOption {
  using O = AttentionOptions;
  /// The member; its type is the kind of option.
  using Member = std::variant<double O::*, std::optional<double> O::*, std::optional<std::int64_t> O::*, int O::*,
                              std::uint32_t O::*, std::uint64_t O::*, bool O::*, Causal O::*, Layout O::*,
                              ScoreStage O::*, OptionPair, TensorView O::*, MutableTensorView O::*,
                              ScoreModifier O::*, ScoreModifierBackward O::*, ScoreBlockEffect O::*, void * O::*,
                              Origin O::*, BackendChoice O::*>;
  /// The axes of a tensor with one number for each head.
  static constexpr std::string_view kPerHead = "[num_heads]";

  std::string_view name;                           ///< in C++
  Member member;                                   ///< in AttentionOptions
  OptionRole role = OptionRole::unset;             ///< what it affects
  std::string_view help;                           ///< a line
  std::string_view axes{};                         ///< of a tensor
  OptionElements elements = OptionElements::none;  ///< of a tensor
  OptionRange range{};                             ///< of a number in text
  OptionDraw draw{};                               ///< for random problems
  std::string_view python{}, command{}, word{};    ///< Python's keyword, "--alibi", the word in a problem's text
  std::string_view placeholder{};                  ///< on the command line: "L,R"
  bool is_of_run{};                                ///< of `saccade run`, but not of `saccade inspect`
  std::string_view needs{};                        ///< the option that must be given with it on the command line
  std::string_view why{};                          ///< why the names differ or one is missing

  /// The names; empty where the option cannot be given.
  constexpr std::string_view python_name() const { return name_or(python); }
  constexpr std::string_view word_name() const { return name_or(word); }
  std::string command_name() const {
    if (!command.empty()) return std::string(name_or(command));
    std::string flag = "--" + std::string(name);
    for (char& c : flag) c = c == '_' ? '-' : c;
    return flag;
  }
  /// The name that a field says: `given`, or else `name`.
  constexpr std::string_view name_or(std::string_view given) const {
    return given.empty() ? name : given == "-" ? std::string_view() : given;
  }
};

inline constexpr AttentionOption kAttentionOptions[] = {
    {.name = "layout",
     .member = &AttentionOptions::layout,
     .role = OptionRole::call,
     .help = "Order of the axes of q, k, v and o"},
    {.name = "scale",
     .member = &AttentionOptions::scale,
     .role = OptionRole::score,
     .help = "Factor of the dot products; without, 1/sqrt(head_dim)",
     .draw = OptionDraw(0.3, {0.05, 1.0, -0.3, 0.5}),
     .placeholder = "X"},
    {.name = "softcap",
     .member = &AttentionOptions::softcap,
     .role = OptionRole::score,
     .help = "Bound the scores: X tanh(score / X); 0: no bound",
     .range = {.minimum = 0.0},
     .draw = OptionDraw(0.25, {0.5, 5.0, 30.0}),
     .placeholder = "X"},
    {.name = "causal",
     .member = &AttentionOptions::causal,
     .role = OptionRole::visibility,
     .help = "Hide later keys, counted from the first or from the last row"},
    {.name = "query_offset",
     .member = &AttentionOptions::query_offset,
     .role = OptionRole::visibility,
     .help = "Position of query row 0, instead of the one that causal gives it",
     .word = "offset",
     .placeholder = "N",
     .why = "problem text abbreviates"},
    {.name = "query_offsets",
     .member = &AttentionOptions::query_offsets,
     .role = OptionRole::visibility,
     .help = "The same, one for each batch entry",
     .axes = "[batch]",
     .elements = OptionElements::integers,
     .python = "query_offset",
     .command = "-",
     .word = "-",
     .why = "Python's keyword takes one number or one for each entry; text takes one"},
    {.name = "window_left, window_right",
     .member = OptionPair{&AttentionOptions::window_left, &AttentionOptions::window_right, ',', -1},
     .role = OptionRole::visibility,
     .help = "Keys seen to the left and right of the position, inclusive; -1: all",
     .python = "window",
     .command = "--window",
     .word = "window",
     .placeholder = "L,R",
     .why = "a pair in one value"},
    {.name = "mask",
     .member = &AttentionOptions::mask,
     .role = OptionRole::score,
     .help = "bool (true = attend) or numbers to add; broadcasts",
     .axes = "[batch, num_heads, seqlen_q, seqlen_k]",
     .elements = OptionElements::mask,
     .placeholder = "M.npy"},
    {.name = "block_mask",
     .member = &AttentionOptions::block_mask,
     .role = OptionRole::score,
     .help = "bool for each block of rows and keys, true = attend; broadcasts",
     .axes = "[batch, num_heads, blocks of rows, blocks of keys]",
     .elements = OptionElements::boolean,
     .placeholder = "B.npy"},
    {.name = "block_mask_q, block_mask_k",
     .member = OptionPair{&AttentionOptions::block_mask_q, &AttentionOptions::block_mask_k, 'x', 1},
     .role = OptionRole::score,
     .help = "Rows and keys of a block of the block mask; without, 128x128",
     .python = "block_mask_size",
     .command = "--block-size",
     .word = "-",
     .placeholder = "QxK",
     .needs = "block_mask",
     .why = "a pair in one value; in problem text block_mask=QxK says it"},
    {.name = "block_table",
     .member = &AttentionOptions::block_table,
     .role = OptionRole::call,
     .help = "Pages of each batch entry, integers; k and v are the pool",
     .axes = "[batch, max_pages]",
     .elements = OptionElements::i32,
     .word = "page",
     .placeholder = "T.npy",
     .why = "problem text gives the size of a page"},
    {.name = "cu_seqlens_q",
     .member = &AttentionOptions::cu_seqlens_q,
     .role = OptionRole::visibility,
     .help = "Where each packed document begins in q, and the total; integers",
     .axes = "[documents + 1]",
     .elements = OptionElements::integers,
     .word = "docs",
     .placeholder = "C.npy",
     .is_of_run = true,
     .why = "problem text gives the number of documents"},
    {.name = "cu_seqlens_k",
     .member = &AttentionOptions::cu_seqlens_k,
     .role = OptionRole::visibility,
     .help = "Where each packed document begins in k and v, and the total",
     .axes = "[documents + 1]",
     .elements = OptionElements::integers,
     .word = "-",
     .placeholder = "C.npy",
     .is_of_run = true,
     .why = "in problem text docs= says it"},
    {.name = "kv_lengths",
     .member = &AttentionOptions::kv_lengths,
     .role = OptionRole::visibility,
     .help = "Number of keys of each batch entry; integers",
     .axes = "[batch]",
     .elements = OptionElements::integers,
     .word = "lengths",
     .placeholder = "N.npy",
     .why = "problem text abbreviates"},
    {.name = "kv_starts",
     .member = &AttentionOptions::kv_starts,
     .role = OptionRole::visibility,
     .help = "First key of each batch entry, after padding on the left; integers",
     .axes = "[batch]",
     .elements = OptionElements::integers,
     .word = "starts",
     .placeholder = "N.npy",
     .why = "problem text abbreviates"},
    {.name = "k_scale",
     .member = &AttentionOptions::k_scale,
     .role = OptionRole::call,
     .help = "Scales of quantized keys; broadcasts, for each token or for each channel",
     .axes = "[batch, num_kv_heads, seqlen_k, head_dim]",
     .elements = OptionElements::f32,
     .word = "-",
     .placeholder = "S.npy",
     .is_of_run = true,
     .why = "in problem text i8 and the other quantized types say it"},
    {.name = "v_scale",
     .member = &AttentionOptions::v_scale,
     .role = OptionRole::call,
     .help = "Scales of quantized values; broadcasts, for each token or for each channel",
     .axes = "[batch, num_kv_heads, seqlen_k, head_dim_v]",
     .elements = OptionElements::f32,
     .word = "-",
     .placeholder = "S.npy",
     .is_of_run = true,
     .why = "as k_scale"},
    {.name = "k_multipliers",
     .member = &AttentionOptions::k_multipliers,
     .role = OptionRole::call,
     .help = "Multipliers of the groups of i4 keys",
     .axes = "[batch, num_kv_heads, seqlen_k, groups]",
     .elements = OptionElements::i8,
     .python = "-",
     .command = "-",
     .word = "-",
     .why = "C++ only: Python and files have no numbers of 4 bits"},
    {.name = "v_multipliers",
     .member = &AttentionOptions::v_multipliers,
     .role = OptionRole::call,
     .help = "Multipliers of the groups of i4 values",
     .axes = "[batch, num_kv_heads, seqlen_k, groups]",
     .elements = OptionElements::i8,
     .python = "-",
     .command = "-",
     .word = "-",
     .why = "as k_multipliers"},
    {.name = "k_rotated",
     .member = &AttentionOptions::k_rotated,
     .role = OptionRole::call,
     .help = "Keys are Hadamard transforms: transform queries likewise",
     .command = "-",
     .word = "-",
     .why = "for programs only"},
    {.name = "v_rotated",
     .member = &AttentionOptions::v_rotated,
     .role = OptionRole::call,
     .help = "Values are Hadamard transforms: transform the result back",
     .command = "-",
     .word = "-",
     .why = "for programs only"},
    {.name = "score_modifier",
     .member = &AttentionOptions::score_modifier,
     .role = OptionRole::score,
     .help = "A function that changes tiles of scores",
     .python = "score_mod",
     .command = "-",
     .word = "-",
     .why = "PyTorch's name in Python; text has no functions"},
    {.name = "score_modifier_backward",
     .member = &AttentionOptions::score_modifier_backward,
     .role = OptionRole::score,
     .help = "Its derivative, for gradients",
     .python = "score_mod_backward",
     .command = "-",
     .word = "-",
     .why = "as score_modifier"},
    {.name = "score_block_effect",
     .member = &AttentionOptions::score_block_effect,
     .role = OptionRole::score,
     .help = "Says for which blocks the score modifier need not be called",
     .python = "-",
     .command = "-",
     .word = "-",
     .why = "C++ only: Python is called for every tile"},
    {.name = "score_context",
     .member = &AttentionOptions::score_context,
     .role = OptionRole::score,
     .help = "What these functions are called with",
     .python = "-",
     .command = "-",
     .word = "-",
     .why = "C++ only: functions of Python know their own"},
    {.name = "alibi_slopes",
     .member = &AttentionOptions::alibi_slopes,
     .role = OptionRole::score,
     .help = "Linear biases with these slopes, one a head; without a file, the standard slopes",
     .axes = "[num_heads] or [batch, num_heads]",
     .elements = OptionElements::numbers,
     .command = "--alibi",
     .word = "alibi",
     .placeholder = "[S.npy]",
     .why = "--alibi and alibi alone mean the standard slopes"},
    {.name = "sinks",
     .member = &AttentionOptions::sinks,
     .role = OptionRole::weight,
     .help = "One logit a head that takes part in the denominator only",
     .axes = AttentionOption::kPerHead,
     .elements = OptionElements::numbers,
     .draw = OptionDraw(0.2, {3.0}),
     .placeholder = "S.npy"},
    {.name = "lse",
     .member = &AttentionOptions::lse,
     .role = OptionRole::result,
     .help = "Receives the logarithm of each row's softmax denominator",
     .axes = "[batch, num_heads, seqlen_q]",
     .python = "return_lse",
     .placeholder = "L.npy",
     .why = "Python returns it"},
    {.name = "weights",
     .member = &AttentionOptions::weights,
     .role = OptionRole::result,
     .help = "Receives the attention weights (memory: queries times keys)",
     .axes = "[batch, num_heads, seqlen_q, seqlen_k]",
     .python = "return_weights",
     .word = "-",
     .placeholder = "W.npy",
     .why = "Python returns them; problems do not ask for them"},
    {.name = "weights_after_dropout",
     .member = &AttentionOptions::weights_after_dropout,
     .role = OptionRole::result,
     .help = "Weights after dropout instead of before",
     .command = "-",
     .word = "-",
     .why = "for programs only"},
    {.name = "scores",
     .member = &AttentionOptions::scores,
     .role = OptionRole::result,
     .help = "Receives the scores (memory: queries times keys)",
     .axes = "[batch, num_heads, seqlen_q, seqlen_k]",
     .python = "-",
     .word = "-",
     .placeholder = "S.npy",
     .why = "Python asks for them inside saccade.onnx only; problems do not"},
    {.name = "score_stage",
     .member = &AttentionOptions::score_stage,
     .role = OptionRole::result,
     .help = "Which scores --scores writes: before softcap, after it, after masks and biases, or probabilities",
     .python = "-",
     .word = "-",
     .is_of_run = true,
     .why = "as scores"},
    {.name = "dropout_p",
     .member = &AttentionOptions::dropout_p,
     .role = OptionRole::weight,
     .help = "Drop weights with this probability, drawn by position",
     .range = {.minimum = 0.0, .exclusive_maximum = 1.0},
     .command = "--dropout",
     .word = "dropout",
     .placeholder = "P",
     .is_of_run = true,
     .why = "PyTorch's name in programs; text abbreviates"},
    {.name = "dropout_seed",
     .member = &AttentionOptions::dropout_seed,
     .role = OptionRole::weight,
     .help = "The seed of the dropout; without, 0",
     .range = {.minimum = 0.0},
     .python = "seed",
     .command = "--seed",
     .word = "-",
     .placeholder = "S",
     .is_of_run = true,
     .needs = "dropout_p",
     .why = "as everywhere in Python and on the command line; a problem is drawn from one seed"},
    {.name = "dropout_offset",
     .member = &AttentionOptions::dropout_offset,
     .role = OptionRole::weight,
     .help = "A second number that the draw of the dropout follows from",
     .python = "-",
     .command = "-",
     .word = "-",
     .why = "C++ only: layers count their calls with it"},
    {.name = "origin",
     .member = &AttentionOptions::origin,
     .role = OptionRole::call,
     .help = "Where the call begins in a larger problem",
     .python = "-",
     .command = "-",
     .word = "-",
     .why = "C++ only: for programs that divide a problem"},
    {.name = "backend",
     .member = &AttentionOptions::backend,
     .role = OptionRole::call,
     .help = "What computes the call: cpu, reference, or several in order with commas",
     .python = "-",
     .word = "-",
     .placeholder = "NAME",
     .why = "Python has `with saccade.backend(NAME)`; a problem is compared on a back end of the caller's choice"},
    {.name = "num_threads",
     .member = &AttentionOptions::num_threads,
     .role = OptionRole::call,
     .help = "Threads of the call; without, one a core or OMP_NUM_THREADS",
     .range = {.minimum = 1.0, .exclusive_maximum = 1025.0},
     .command = "--threads",
     .word = "threads",
     .placeholder = "N",
     .why = "as everywhere on the command line"},
};
static_assert(std::ranges::all_of(kAttentionOptions, [](const auto& row) { return row.role > OptionRole::unset; }),
              "a new option says what it is about");

/// The options of one role; the others have their defaults.
inline AttentionOptions options_of_role(OptionRole role, const AttentionOptions& options) {
  AttentionOptions result;
  const auto copy = [&](auto member) {
    if constexpr (std::is_same_v<decltype(member), OptionPair>)
      result.*member.first = options.*member.first, result.*member.second = options.*member.second;
    else
      result.*member = options.*member;
  };
  for (const AttentionOption& option : kAttentionOptions)
    if (option.role == role) std::visit(copy, option.member);
  return result;
}

}  // namespace saccade
#pragma GCC visibility pop
