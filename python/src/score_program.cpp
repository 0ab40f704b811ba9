#include "score_program.h"

#include <algorithm>
#include <limits>
#include <stdexcept>
#include <string_view>
#include <utility>

#include "bind.h"
#include "score_scratch.h"

namespace saccade::python {
namespace {

using Operation = ScoreOperation;

constexpr std::array<std::string_view, 37> kOperations = {
    "constant", "distance", "load",     "neg",   "abs",    "exp",     "exp2",    "log",       "sqrt",      "sin",
    "cos",      "tanh",     "sigmoid",  "floor", "detach", "cast",    "not",     "bool",      "add",       "sub",
    "mul",      "div",      "floordiv", "mod",   "pow",    "minimum", "maximum", "clamp_min", "clamp_max", "lt",
    "le",       "eq",       "ne",       "and",   "or",     "xor",     "where"};

Lane lane_named(const std::string& name) {
  if (name == "f32") return Lane::f32;
  if (name == "f64") return Lane::f64;
  if (name == "i32") return Lane::i32;
  throw std::invalid_argument("there is no type " + name);
}

bool is_step(Operation operation) {
  return (operation >= Operation::less && operation <= Operation::logical_xor) || operation == Operation::truth ||
         operation == Operation::logical_not || operation == Operation::detach || operation == Operation::floor ||
         operation == Operation::floor_divide;
}

}  // namespace

ScoreProgram::ScoreProgram(const nb::list& instructions, const nb::list& tensors, const nb::list& gradients,
                           int score, int mask, bool is_double, nb::handle blocks, std::int64_t block_q,
                           std::int64_t block_k, nb::handle maxima)
    : score_(score),
      mask_(mask),
      score_lane_(is_double ? Lane::f64 : Lane::f32),
      blocks_(Array::optional(blocks, "blocks")),
      block_q_(block_q),
      block_k_(block_k),
      loops_(score_loops()) {
  if (!maxima.is_none()) maxima_ = Array::writable(maxima, "maxima");
  for (const nb::handle tensor : tensors) tensors_.emplace_back(tensor, "score_mod");
  for (const nb::handle gradient : gradients)
    gradient.is_none() ? static_cast<void>(gradients_.emplace_back())
                       : static_cast<void>(gradients_.push_back(Array::writable(gradient, "gradients")));
  for (const nb::handle given : instructions) {
    Instruction instruction = instruction_of(nb::cast<nb::tuple>(given));
    check(instruction);
    instructions_.push_back(std::move(instruction));
  }
  const int registers = static_cast<int>(instructions_.size()) + kInputs;
  if (score_ < 0 || score_ >= registers || mask_ >= registers || lane_of(score_) != score_lane_ ||
      (mask_ >= 0 && lane_of(mask_) != Lane::i32))
    throw std::invalid_argument("the results are no scores and no mask");
  std::vector<char> marks(instructions_.size() + kInputs, 0);
  mark_score(score_, marks);
  for (std::size_t i = 0; i < instructions_.size(); ++i) instructions_[i].of_mask = !marks[i + kInputs];
  of_score_ = depends_on(0);
  for (std::size_t i = 0; i < instructions_.size(); ++i) {
    const Instruction& load = instructions_[i];
    if (load.operation != Operation::load || load.tensor >= gradients_.size() ||
        !gradients_[load.tensor].view().data)
      continue;
    Depends depends = depends_on(static_cast<int>(i) + kInputs);
    if (depends[static_cast<std::size_t>(score_)])
      learnt_.emplace_back(static_cast<int>(i) + kInputs, std::move(depends));
  }
}

ScoreProgram::Instruction ScoreProgram::instruction_of(const nb::tuple& given) const {
  const auto name = nb::cast<std::string>(given[0]);
  const auto found = std::ranges::find(kOperations, name);
  if (found == kOperations.end()) throw std::invalid_argument("there is no operation " + name);
  Instruction result;
  result.operation = static_cast<Operation>(found - kOperations.begin());
  result.lane = lane_named(nb::cast<std::string>(given[1]));
  const auto operand = [&](std::size_t i) {
    const int register_ = nb::cast<int>(given[i]);
    if (register_ < 0 || register_ >= static_cast<int>(instructions_.size()) + kInputs)
      throw std::invalid_argument("there is no register " + std::to_string(register_));
    const Extent extent = extent_of(register_);
    if (extent != Extent::none && extent != result.extent)
      result.extent = result.extent == Extent::none ? extent : Extent::all;
    return register_;
  };
  if (result.operation == Operation::constant) {
    result.value = nb::cast<double>(given[2]);
  } else if (result.operation == Operation::distance) {
    result.factor = nb::cast<double>(given[2]);
    result.value = nb::cast<double>(given[3]);
    result.extent = Extent::distance;
  } else if (result.operation == Operation::load) {
    result.tensor = nb::cast<std::size_t>(given[2]);
    for (std::size_t i = 3; i < given.size(); ++i) result.indices.push_back(operand(i));
  } else {
    for (std::size_t i = 2; i < std::min<std::size_t>(given.size(), 5); ++i) result.operands[i - 2] = operand(i);
  }
  return result;
}

/// Whether an instruction has what its loops read.
void ScoreProgram::check(const Instruction& instruction) const {
  const Operation operation = instruction.operation;
  if (operation == Operation::constant || operation == Operation::distance) return;
  if (operation == Operation::load) {
    if (instruction.tensor >= tensors_.size() ||
        instruction.indices.size() != static_cast<std::size_t>(tensors_[instruction.tensor].view().rank))
      throw std::invalid_argument("a load has no tensor with as many dimensions as indices");
    return;
  }
  const std::size_t count = operation >= Operation::select ? 3 : operation >= Operation::add ? 2 : 1;
  for (std::size_t i = 0; i < count; ++i)
    if (instruction.operands[i] < 0) throw std::invalid_argument("an operation lacks an operand");
  const Lane first = lane_of(instruction.operands[operation == Operation::select ? 1 : 0]);
  const Lane other = count > 1 ? lane_of(instruction.operands[count - 1]) : first;
  const bool is_truth = operation == Operation::logical_not || operation == Operation::truth ||
                        (operation >= Operation::less && operation <= Operation::logical_xor);
  const Lane result = is_truth ? Lane::i32 : operation == Operation::cast ? instruction.lane : first;
  if (other != first || instruction.lane != result ||
      (operation == Operation::select && lane_of(instruction.operands[0]) != Lane::i32))
    throw std::invalid_argument("an operation has operands of other types");
}

Lane ScoreProgram::lane_of(int register_) const {
  if (register_ == 0) return score_lane_;
  return register_ < kInputs ? Lane::i32 : instructions_[static_cast<std::size_t>(register_ - kInputs)].lane;
}

ScoreProgram::Extent ScoreProgram::extent_of(int register_) const {
  constexpr std::array<Extent, kInputs> kOfInputs = {Extent::all, Extent::none, Extent::none, Extent::row,
                                                     Extent::key};
  return register_ < kInputs ? kOfInputs[static_cast<std::size_t>(register_)]
                             : instructions_[static_cast<std::size_t>(register_ - kInputs)].extent;
}

/// Marks what the register needs.
void ScoreProgram::mark_score(int register_, std::vector<char>& marks) const {
  if (register_ < 0 || marks[static_cast<std::size_t>(register_)]) return;
  marks[static_cast<std::size_t>(register_)] = 1;
  if (register_ < kInputs) return;
  const Instruction& instruction = instructions_[static_cast<std::size_t>(register_ - kInputs)];
  for (const int operand : instruction.operands) mark_score(operand, marks);
  for (const int index : instruction.indices) mark_score(index, marks);
}

/// The registers whose numbers change smoothly with those of one.
ScoreProgram::Depends ScoreProgram::depends_on(int register_) const {
  Depends depends(instructions_.size() + kInputs, 0);
  depends[static_cast<std::size_t>(register_)] = 1;
  for (std::size_t i = 0; i < instructions_.size(); ++i) {
    const Instruction& instruction = instructions_[i];
    if (is_step(instruction.operation) || instruction.lane == Lane::i32) continue;
    for (const int operand : instruction.operands)
      if (operand >= 0 && depends[static_cast<std::size_t>(operand)]) depends[i + kInputs] = 1;
  }
  return depends;
}

/// Whether the derivative with respect to the score is 1 wherever the key is visible.
bool ScoreProgram::only_adds() const {
  std::vector<char> is_sum(instructions_.size() + kInputs, 0);
  is_sum[0] = 1;
  const auto is = [&](const std::vector<char>& marks, int register_) {
    return marks[static_cast<std::size_t>(register_)] != 0;
  };
  for (std::size_t i = 0; i < instructions_.size(); ++i) {
    const Instruction& instruction = instructions_[i];
    const auto [a, b, c] = instruction.operands;
    const bool adds = instruction.operation == Operation::add;
    if (!adds && instruction.operation != Operation::subtract) continue;
    const bool first = is(is_sum, a) && !is(of_score_, b);
    is_sum[i + kInputs] = first || (adds && is(is_sum, b) && !is(of_score_, a));
  }
  return is(is_sum, score_);
}

void ScoreProgram::add_to(AttentionOptions& options) {
  options.score_modifier = &modify;
  if (!only_adds() || !learnt_.empty()) options.score_modifier_backward = &differentiate;
  options.score_block_effect = &effect;
  options.score_context = this;
}

void ScoreProgram::rethrow() {
  const std::scoped_lock lock(mutex_);
  if (!error_.empty()) throw std::invalid_argument(std::exchange(error_, ""));
}

// ---- blocks

/// What the mask does to the block that holds a row and a key.
BlockEffect ScoreProgram::effect_at(const ScoreBlock& block, std::int64_t row, std::int64_t key) const {
  const TensorView& blocks = blocks_.view();
  if (!blocks.data) return mask_ < 0 ? BlockEffect::full : BlockEffect::partial;
  const std::int64_t offset = (blocks.shape[0] > 1 ? block.batch * blocks.strides[0] : 0) +
                              (blocks.shape[1] > 1 ? block.head * blocks.strides[1] : 0) +
                              row / block_q_ * blocks.strides[2] + key / block_k_ * blocks.strides[3];
  return static_cast<BlockEffect>(static_cast<const std::uint8_t*>(blocks.data)[offset]);
}

BlockEffect ScoreProgram::effect_on(const ScoreBlock& block) const {
  const BlockEffect first = effect_at(block, block.first_row, block.first_key);
  if (!blocks_.view().data) return first;
  for (std::int64_t i = block.first_row / block_q_ * block_q_; i < block.first_row + block.rows; i += block_q_)
    for (std::int64_t j = block.first_key / block_k_ * block_k_; j < block.first_key + block.keys; j += block_k_)
      if (effect_at(block, i, j) != first) return BlockEffect::partial;
  return first;
}

BlockEffect ScoreProgram::effect(void* context, const ScoreBlock& block) {
  const auto& self = *static_cast<const ScoreProgram*>(context);
  const BlockEffect of_mask = self.effect_on(block);
  const bool is_called = self.score_ != 0 || self.maxima_.view().data;
  return of_mask == BlockEffect::full && is_called ? BlockEffect::partial : of_mask;
}

void bind_score_program(nb::module_& module) {
  nb::class_<ScoreProgram>(module, "ScoreProgram")
      .def(nb::init<const nb::list&, const nb::list&, const nb::list&, int, int, bool, nb::handle, std::int64_t,
                    std::int64_t, nb::handle>(),
           nb::arg("instructions"), nb::arg("tensors"), nb::arg("gradients"), nb::arg("score"), nb::arg("mask"),
           nb::arg("is_double"), nb::arg("blocks").none(), nb::arg("block_q"), nb::arg("block_k"),
           nb::arg("maxima").none());
}

}  // namespace saccade::python
