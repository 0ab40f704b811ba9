// A score modifier as a list of instructions, which runs without Python.
#pragma once

#include <nanobind/nanobind.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <mutex>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "array.h"
#include "saccade/attention.h"
#include "score_operations.h"

namespace saccade::python {

/// Functions of a score and its indices, as a program. Registers 0 to 4 hold the score, the batch entry, the head,
/// the row and the key; each instruction writes the next one. python/saccade/torch/_lower.py makes the
/// instructions.
///
/// For a tile, an instruction computes as many numbers as there are different ones: one, one for each row, for
/// each key, for each distance between them, or all.
class ScoreProgram {
 public:
  /// instructions: tuples of a name, the type of the result ("f32", "f64" or "i32") and operands (see
  /// kOperations). Registers `score` and `mask` hold the results; mask < 0: every key is visible. is_double: the
  /// type of the scores. tensors: what "load" reads; gradients: f64 arrays to which their gradients are added, or
  /// None. blocks: what the mask does to each block of block_q rows and block_k keys, as numbers of BlockEffect
  /// [batch or 1, heads or 1, blocks of rows, blocks of keys]; None: all have to be computed. maxima: receives
  /// each row's largest score, of the scores' type, [batch, heads, rows]; or None.
  ScoreProgram(const nb::list& instructions, const nb::list& tensors, const nb::list& gradients, int score,
               int mask, bool is_double, nb::handle blocks, std::int64_t block_q, std::int64_t block_k,
               nb::handle maxima);

  void add_to(AttentionOptions& options);
  /// Throws what went wrong in a call: an index beyond a tensor.
  void rethrow();

 private:
  /// In which coordinates numbers differ.
  enum class Extent : std::uint8_t { none, row, key, distance, all };
  struct Instruction {
    ScoreOperation operation{};
    Lane lane{};
    Extent extent{};
    std::array<int, 3> operands{-1, -1, -1};
    double value = 0, factor = 0;
    std::size_t tensor = 0;
    std::vector<int> indices;
    bool of_mask = false;  // only the mask needs it
  };
  struct Scratch;
  using Depends = std::vector<char>;  // for each register

  static void modify(void* context, const ScoreTile& tile);
  static void differentiate(void* context, const ScoreTile& scores, const ScoreTile& gradients);
  static BlockEffect effect(void* context, const ScoreBlock& block);

  Instruction instruction_of(const nb::tuple& given) const;
  void check(const Instruction& instruction) const;
  Lane lane_of(int register_) const;
  Extent extent_of(int register_) const;
  void mark_score(int register_, std::vector<char>& marks) const;
  Depends depends_on(int register_) const;
  bool only_adds() const;

  BlockEffect effect_at(const ScoreBlock& block, std::int64_t row, std::int64_t key) const;
  BlockEffect effect_on(const ScoreBlock& block) const;

  void begin(Scratch& s, const ScoreTile& tile, bool with_derivatives) const;
  ScoreNumbers numbers(Scratch& s, int register_) const;
  ScoreNumbers line(Scratch& s, int register_) const;
  void run(Scratch& s, bool all, bool with_mask);
  void compute(Scratch& s, std::size_t i);
  void load(Scratch& s, const Instruction& instruction, const ScoreNumbers& to, std::int64_t rows,
            std::int64_t keys);
  bool find_offsets(Scratch& s, const Instruction& instruction, std::span<const std::int64_t> strides);
  const std::int64_t* offsets_of(Scratch& s, Extent extent, std::int64_t i, std::int64_t& base) const;
  void report(std::int64_t index, std::size_t dim, std::int64_t length);
  void write_rows(Scratch& s, const ScoreTile& tile, bool with_mask);
  template <class T>
  void raise_maximum(const ScoreTile& tile, std::int64_t row);
  void derive(Scratch& s, const Depends& depends, int from) const;
  void differentiate_tile(const ScoreTile& scores, const ScoreTile& gradients);
  void add_products(Scratch& s, const ScoreTile& gradients, std::size_t n) const;
  void add_to_gradient(Scratch& s, std::size_t n);

  std::vector<Instruction> instructions_;
  std::deque<Array> tensors_;
  std::deque<Array> gradients_;  // empty views: not wanted
  int score_, mask_;
  Lane score_lane_;
  Array blocks_;
  std::int64_t block_q_, block_k_;
  Array maxima_;  // an empty view: not wanted
  Depends of_score_;
  std::vector<std::pair<int, Depends>> learnt_;  // the loads of tensors with gradients
  const ScoreLoops& loops_;

  std::mutex mutex_;  // for what follows and for the gradients
  std::string error_;
};

}  // namespace saccade::python
