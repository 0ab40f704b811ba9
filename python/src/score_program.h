// A score modifier as a list of instructions, which runs without Python.
#pragma once

#include <nanobind/nanobind.h>

#include <array>
#include <cstdint>
#include <deque>
#include <mutex>
#include <string>
#include <vector>

#include "array.h"
#include "saccade/attention.h"

namespace saccade::python {

/// Functions of a score and its indices, as a program with registers of doubles. Registers 0 to 4 hold the score,
/// the batch entry, the head, the row and the key; each instruction writes the next one.
/// python/saccade/torch/_trace.py makes the instructions.
///
/// For a row of a tile, an instruction computes all keys at once. What does not depend on the row is computed once
/// a tile.
class ScoreProgram {
 public:
  /// instructions: tuples of a name and operands (see kOperations). Registers `score` and `mask` hold the results;
  /// mask < 0: every key is visible. tensors: what "load" reads; gradients: f64 arrays to which their gradients
  /// are added, or None. blocks: what the mask does to each block of block_q rows and block_k keys, as numbers of
  /// BlockEffect [batch or 1, heads or 1, blocks of rows, blocks of keys]; None: all have to be computed. maxima:
  /// receives each row's largest score, of the scores' type, [batch, heads, rows]; or None.
  ScoreProgram(const nb::list& instructions, const nb::list& tensors, const nb::list& gradients, int score,
               int mask, nb::handle blocks, std::int64_t block_q, std::int64_t block_k, nb::handle maxima);

  void add_to(AttentionOptions& options);
  /// Throws what went wrong in a call: an index beyond a tensor.
  void rethrow();

 private:
  enum class Operation : std::uint8_t;
  struct Instruction {
    Operation operation{};
    std::array<int, 3> operands{-1, -1, -1};
    double value = 0;
    std::size_t tensor = 0;
    std::vector<int> indices;
    bool is_wide = false;  // differs from key to key
    bool of_row = false;   // differs from row to row
    bool of_mask = false;  // only the mask needs it
  };
  struct Scratch;
  using Depends = std::vector<char>;  // for each register

  static void modify(void* context, const ScoreTile& tile);
  static void differentiate(void* context, const ScoreTile& scores, const ScoreTile& gradients);
  static BlockEffect effect(void* context, const ScoreBlock& block);

  Instruction instruction_of(const nb::tuple& given, const nb::list& tensors) const;
  bool is_wide(int register_) const;
  bool is_of_row(int register_) const;
  void mark_score(int register_, std::vector<char>& marks) const;
  Depends depends_on(int register_) const;
  bool only_adds() const;

  BlockEffect effect_at(const ScoreBlock& block, std::int64_t row, std::int64_t key) const;
  BlockEffect effect_on(const ScoreBlock& block) const;
  template <class T>
  void hide(const Scratch& s, const ScoreTile& tile, std::int64_t row) const;
  void begin_tile(Scratch& s, const ScoreTile& tile) const;
  template <class T>
  void begin_row(Scratch& s, const ScoreTile& tile, std::int64_t row) const;
  void run(Scratch& s, bool rows, bool with_mask);
  void compute(Scratch& s, const Instruction& instruction, double* to);
  void load(Scratch& s, const Instruction& instruction, double* to);
  void find_offsets(Scratch& s, const Instruction& instruction, std::int64_t count);
  void report(double index, std::size_t dim, std::int64_t length, Scratch& s);
  void derive(Scratch& s, const Depends& depends, int from) const;
  void derive(Scratch& s, const Instruction& instruction, const Depends& depends, double* to) const;
  template <class T>
  void modify_tile(const ScoreTile& tile);
  template <class T>
  void raise_maximum(const ScoreTile& tile, std::int64_t row, T largest);
  template <class T>
  void differentiate_tile(const ScoreTile& scores, const ScoreTile& gradients);
  void add_to_gradients(Scratch& s, const std::vector<double>& gradients);

  std::vector<Instruction> instructions_;
  std::deque<Array> tensors_;
  std::deque<Array> gradients_;  // empty views: not wanted
  int score_, mask_;
  Array blocks_;
  std::int64_t block_q_, block_k_;
  Array maxima_;  // an empty view: not wanted
  Depends of_score_;
  std::vector<std::pair<int, Depends>> learnt_;  // the loads of tensors with gradients

  std::mutex mutex_;  // for what follows and for the gradients
  std::string error_;
};

}  // namespace saccade::python
