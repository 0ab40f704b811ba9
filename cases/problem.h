// Attention problems as text, one per line: the input of `saccade check --shapes` and `saccade bench --shapes`.
//
//     # a cache of 32 Ki tokens, one new one
//     b=1 h=32 hkv=8 sq=1 sk=32768 d=128 dtype=bf16 causal=bottom_right page=16 decode
#pragma once

#include <cstdint>
#include <iosfwd>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include <saccade/attention_options.h>

#include "cases/attention_case.h"

namespace saccade::cases {

/// The sizes and options of one problem, without its numbers.
struct Problem {
  std::int64_t batch = 1;         ///< b=
  std::int64_t num_heads = 1;     ///< h=
  std::int64_t num_kv_heads = 1;  ///< hkv=, otherwise h
  std::int64_t seqlen_q = 1;      ///< sq= (or s= for both); of all documents together where there are any
  std::int64_t seqlen_k = 1;      ///< sk=, otherwise sq
  std::int64_t head_dim = 64;     ///< d=
  std::int64_t head_dim_v = 64;   ///< dv=, otherwise d
  DType q_type = DType::f32, k_type = DType::f32, v_type = DType::f32, o_type = DType::f32;  ///< dtype=
  /// The options that are numbers or names, with their words in docs/options.md: softcap=, causal=, threads= ...
  AttentionOptions options{};
  /// Those with one number per head, which are drawn: alibi (the standard slopes) and the like.
  std::vector<const AttentionOption*> head_numbers{};
  std::optional<DType> mask{};  ///< mask=bool or f32 or f64: [seqlen_q, seqlen_k], half of it hidden
  bool has_block_mask = false;  ///< block_mask=ROWSxKEYS: half of the blocks hidden
  std::int64_t page_size = 0;   ///< page=: keys per page
  std::int64_t documents = 0;   ///< docs=: documents of a packed batch, of random lengths
  bool has_lengths = false;     ///< lengths: random kv_lengths from seqlen_k / 2 on
  bool has_starts = false;      ///< starts: random kv_starts up to seqlen_k / 2
  bool has_lse = false;         ///< lse: requests lse
  bool calls_decode = false;    ///< decode: calls decode()

  /// This problem as a line of text.
  std::string name() const;

  /// Bytes of k and v, which decode() reads once.
  double kv_bytes() const;
};

/// Parses one line. Throws std::invalid_argument that names the word, what was expected and what was given.
Problem parse_problem(std::string_view line);

/// The problems of a file, one per line; '#' starts a comment, and empty lines are ignored. Throws
/// std::invalid_argument with the file's name and the number of the line: "shapes.txt:3: d=0: expected a whole
/// number from 1 on".
std::vector<Problem> read_problems(std::istream& in, const std::string& name);

/// The problem with tensors drawn from a seed.
AttentionCase draw_case(const Problem& problem, std::uint64_t seed);

/// Up to `most` random rows, always including the first and the last of a head: the rows to check of a problem
/// that is too large for the reference. Empty (all rows) if the whole problem takes it about a second at most.
std::vector<reference::RowIndex> rows_to_check(const Problem& problem, const AttentionCase& drawn,
                                               std::uint64_t seed);

}  // namespace saccade::cases
