#include "score_program.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <stdexcept>
#include <string_view>
#include <utility>

#include "bind.h"

namespace saccade::python {

enum class ScoreProgram::Operation : std::uint8_t {
  constant,
  load,
  negate,
  absolute,
  exponential,
  exponential2,
  logarithm,
  square_root,
  sine,
  cosine,
  hyperbolic_tangent,
  sigmoid,
  floor,
  detach,
  cast,
  logical_not,
  truth,
  add,
  subtract,
  multiply,
  divide,
  floor_divide,
  remainder,
  power,
  minimum,
  maximum,
  clamp_min,
  clamp_max,
  less,
  less_equal,
  equal,
  not_equal,
  logical_and,
  logical_or,
  logical_xor,
  select,
};

namespace {

constexpr int kInputs = 5;  // score, batch, head, row, key
constexpr int kRow = 3, kKey = 4;
constexpr double kInfinity = std::numeric_limits<double>::infinity();

/// The numbers of an operand, and how far the one of the next key is: 0 or 1.
struct Numbers {
  const double* data;
  std::int64_t step;
  double operator[](std::int64_t i) const { return data[i * step]; }
};

template <class Function>
void each(std::int64_t count, double* to, Numbers a, Numbers b, Function function) {
  if (a.step == 1 && b.step == 1) {
    for (std::int64_t i = 0; i < count; ++i) to[i] = function(a.data[i], b.data[i]);
  } else if (a.step == 1) {
    const double y = *b.data;
    for (std::int64_t i = 0; i < count; ++i) to[i] = function(a.data[i], y);
  } else {
    const double x = *a.data;
    for (std::int64_t i = 0; i < count; ++i) to[i] = function(x, b.data[i * b.step]);
  }
}

template <class Function>
void each(std::int64_t count, double* to, Numbers a, Function function) {
  each(count, to, a, a, [&](double x, double) { return function(x); });
}

double modulo(double a, double b) {
  const double rest = std::fmod(a, b);
  return rest != 0 && (rest < 0) != (b < 0) ? rest + b : rest;
}

/// As PyTorch's floor_divide: by the remainder, because the quotient may be rounded up to a whole number.
double floor_of_quotient(double a, double b) {
  if (b == 0) return a / b;
  const double rest = std::fmod(a, b);
  const double quotient = (a - rest) / b - (rest != 0 && (rest < 0) != (b < 0) ? 1 : 0);
  const double whole = std::floor(quotient);
  return quotient == 0 ? std::copysign(0.0, a / b) : quotient - whole > 0.5 ? whole + 1 : whole;
}

}  // namespace

/// What one thread computes with.
struct ScoreProgram::Scratch {
  std::int64_t keys = 0;
  std::vector<double> values, derivatives;  // [registers][keys]
  std::vector<std::int64_t> offsets;        // [keys], of a load
  double* value(int register_) { return values.data() + register_ * keys; }
  const double* value(int register_) const { return values.data() + register_ * keys; }
  double* derivative(int register_) { return derivatives.data() + register_ * keys; }
};

ScoreProgram::ScoreProgram(const nb::list& instructions, const nb::list& tensors, const nb::list& gradients,
                           int score, int mask, nb::handle blocks, std::int64_t block_q, std::int64_t block_k,
                           nb::handle maxima)
    : score_(score),
      mask_(mask),
      blocks_(Array::optional(blocks, "blocks")),
      block_q_(block_q),
      block_k_(block_k) {
  if (!maxima.is_none()) maxima_ = Array::writable(maxima, "maxima");
  for (const nb::handle tensor : tensors) tensors_.emplace_back(tensor, "score_mod");
  for (const nb::handle gradient : gradients)
    gradient.is_none() ? static_cast<void>(gradients_.emplace_back())
                       : static_cast<void>(gradients_.push_back(Array::writable(gradient, "gradients")));
  for (const nb::handle given : instructions)
    instructions_.push_back(instruction_of(nb::cast<nb::tuple>(given), tensors));
  std::vector<char> marks(instructions_.size() + kInputs, 0);
  mark_score(score_, marks);
  for (std::size_t i = 0; i < instructions_.size(); ++i) instructions_[i].of_mask = !marks[i + kInputs];
  of_score_ = depends_on(0);
  for (std::size_t i = 0; i < instructions_.size(); ++i) {
    const Instruction& load = instructions_[i];
    if (load.operation == Operation::load && load.tensor < gradients_.size() &&
        gradients_[load.tensor].view().data)
      learnt_.emplace_back(static_cast<int>(i) + kInputs, depends_on(static_cast<int>(i) + kInputs));
  }
}

ScoreProgram::Instruction ScoreProgram::instruction_of(const nb::tuple& given, const nb::list& tensors) const {
  static constexpr std::array<std::string_view, 36> kOperations = {
      "constant",  "load", "neg",     "abs",      "exp",    "exp2", "log",     "sqrt",    "sin",
      "cos",       "tanh", "sigmoid", "floor",    "detach", "cast", "not",     "bool",    "add",
      "sub",       "mul",  "div",     "floordiv", "mod",    "pow",  "minimum", "maximum", "clamp_min",
      "clamp_max", "lt",   "le",      "eq",       "ne",     "and",  "or",      "xor",     "where"};
  const auto name = nb::cast<std::string>(given[0]);
  const auto found = std::ranges::find(kOperations, name);
  if (found == kOperations.end()) throw std::invalid_argument("there is no operation " + name);
  Instruction result;
  result.operation = static_cast<Operation>(found - kOperations.begin());
  const auto operand = [&](std::size_t i) {
    const int register_ = nb::cast<int>(given[i]);
    if (register_ < 0 || register_ >= static_cast<int>(instructions_.size()) + kInputs)
      throw std::invalid_argument("there is no register " + std::to_string(register_));
    result.is_wide = result.is_wide || is_wide(register_);
    result.of_row = result.of_row || is_of_row(register_);
    return register_;
  };
  if (result.operation == Operation::constant) {
    result.value = nb::cast<double>(given[1]);
  } else if (result.operation == Operation::load) {
    result.tensor = nb::cast<std::size_t>(given[1]);
    for (std::size_t i = 2; i < given.size(); ++i) result.indices.push_back(operand(i));
    if (result.tensor >= tensors.size() || result.indices.size() != tensors_[result.tensor].view().rank)
      throw std::invalid_argument("a load has no tensor with as many dimensions as indices");
  } else {
    const std::size_t end = result.operation == Operation::cast ? 2 : given.size();  // then a type
    for (std::size_t i = 1; i < end; ++i) result.operands[i - 1] = operand(i);
  }
  return result;
}

bool ScoreProgram::is_wide(int register_) const {
  return register_ < kInputs ? register_ == 0 || register_ == kKey
                             : instructions_[static_cast<std::size_t>(register_ - kInputs)].is_wide;
}

bool ScoreProgram::is_of_row(int register_) const {
  return register_ < kInputs ? register_ == 0 || register_ == kRow
                             : instructions_[static_cast<std::size_t>(register_ - kInputs)].of_row;
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
    if (instruction.operation >= Operation::less && instruction.operation <= Operation::logical_xor) continue;
    if (instruction.operation == Operation::detach) continue;
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
    const auto& [operation, operands, value, tensor, indices, wide, of_row, of_mask] = instructions_[i];
    const bool adds = operation == Operation::add, subtracts = operation == Operation::subtract;
    if (!adds && !subtracts) continue;
    const bool first = is(is_sum, operands[0]) && !is(of_score_, operands[1]);
    is_sum[i + kInputs] = first || (adds && is(is_sum, operands[1]) && !is(of_score_, operands[0]));
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
// ------------------------------------------------------------------------------------------------------

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
  for (std::int64_t i = block.first_row / block_q_ * block_q_; i < block.first_row + block.rows; i += block_q_)
    for (std::int64_t j = block.first_key / block_k_ * block_k_; j < block.first_key + block.keys; j += block_k_)
      if (effect_at(block, i, j) != first) return BlockEffect::partial;
  return first;
}

/// Hides the keys of a row that the mask or its blocks hide.
template <class T>
void ScoreProgram::hide(const Scratch& s, const ScoreTile& tile, std::int64_t row) const {
  T* const to = tile.row<T>(row);
  const Numbers mask{s.value(std::max(mask_, 0)), mask_ >= 0 && is_wide(mask_) ? 1 : 0};
  for (std::int64_t j = 0; j < tile.keys;) {
    const std::int64_t key = tile.first_key + j;
    const std::int64_t end = blocks_.view().data ? std::min(tile.keys, j + block_k_ - key % block_k_) : tile.keys;
    const BlockEffect effect = effect_at(tile, tile.first_row + row, key);
    for (; j < end; ++j)
      if (effect == BlockEffect::skip || (effect == BlockEffect::partial && mask_ >= 0 && mask[j] == 0))
        to[j] = static_cast<T>(-kInfinity);
  }
}

BlockEffect ScoreProgram::effect(void* context, const ScoreBlock& block) {
  const auto& self = *static_cast<const ScoreProgram*>(context);
  const BlockEffect of_mask = self.effect_on(block);
  const bool is_called = self.score_ != 0 || self.maxima_.view().data;
  return of_mask == BlockEffect::full && is_called ? BlockEffect::partial : of_mask;
}

// ---- values
// ------------------------------------------------------------------------------------------------------

void ScoreProgram::begin_tile(Scratch& s, const ScoreTile& tile) const {
  s.keys = tile.keys;
  const std::size_t needed = (instructions_.size() + kInputs) * static_cast<std::size_t>(tile.keys);
  if (s.values.size() < needed) s.values.resize(needed);
  *s.value(1) = static_cast<double>(tile.batch);
  *s.value(2) = static_cast<double>(tile.head);
  for (std::int64_t j = 0; j < tile.keys; ++j) s.value(kKey)[j] = static_cast<double>(tile.first_key + j);
}

template <class T>
void ScoreProgram::begin_row(Scratch& s, const ScoreTile& tile, std::int64_t row) const {
  *s.value(kRow) = static_cast<double>(tile.first_row + row);
  std::copy_n(tile.row<T>(row), tile.keys, s.value(0));
}

/// Runs the instructions that depend on the row, or the others.
void ScoreProgram::run(Scratch& s, bool rows, bool with_mask) {
  for (std::size_t i = 0; i < instructions_.size(); ++i) {
    const Instruction& instruction = instructions_[i];
    if (instruction.of_row == rows && (with_mask || !instruction.of_mask))
      compute(s, instruction, s.value(static_cast<int>(i) + kInputs));
  }
}

void ScoreProgram::compute(Scratch& s, const Instruction& instruction, double* to) {
  const auto numbers = [&](std::size_t i) {
    const int register_ = std::max(instruction.operands[i], 0);
    return Numbers{s.value(register_), is_wide(register_) ? 1 : 0};
  };
  const Numbers a = numbers(0), b = numbers(1), c = numbers(2);
  const std::int64_t n = instruction.is_wide ? s.keys : 1;
  switch (instruction.operation) {
    case Operation::constant:
      *to = instruction.value;
      return;
    case Operation::load:
      return load(s, instruction, to);
    case Operation::negate:
      return each(n, to, a, [](double x) { return -x; });
    case Operation::absolute:
      return each(n, to, a, [](double x) { return std::abs(x); });
    case Operation::exponential:
      return each(n, to, a, [](double x) { return std::exp(x); });
    case Operation::exponential2:
      return each(n, to, a, [](double x) { return std::exp2(x); });
    case Operation::logarithm:
      return each(n, to, a, [](double x) { return std::log(x); });
    case Operation::square_root:
      return each(n, to, a, [](double x) { return std::sqrt(x); });
    case Operation::sine:
      return each(n, to, a, [](double x) { return std::sin(x); });
    case Operation::cosine:
      return each(n, to, a, [](double x) { return std::cos(x); });
    case Operation::hyperbolic_tangent:
      return each(n, to, a, [](double x) { return std::tanh(x); });
    case Operation::sigmoid:
      return each(n, to, a, [](double x) { return 1 / (1 + std::exp(-x)); });
    case Operation::floor:
      return each(n, to, a, [](double x) { return std::floor(x); });
    case Operation::detach:
    case Operation::cast:
      return each(n, to, a, [](double x) { return x; });
    case Operation::logical_not:
      return each(n, to, a, [](double x) { return x == 0 ? 1.0 : 0.0; });
    case Operation::truth:
      return each(n, to, a, [](double x) { return x != 0 ? 1.0 : 0.0; });
    case Operation::add:
      return each(n, to, a, b, [](double x, double y) { return x + y; });
    case Operation::subtract:
      return each(n, to, a, b, [](double x, double y) { return x - y; });
    case Operation::multiply:
      return each(n, to, a, b, [](double x, double y) { return x * y; });
    case Operation::divide:
      return each(n, to, a, b, [](double x, double y) { return x / y; });
    case Operation::floor_divide:
      return each(n, to, a, b, floor_of_quotient);
    case Operation::remainder:
      return each(n, to, a, b, modulo);
    case Operation::power:
      return each(n, to, a, b, [](double x, double y) { return std::pow(x, y); });
    case Operation::clamp_max:
    case Operation::minimum:
      return each(n, to, a, b, [](double x, double y) { return x < y || std::isnan(x) ? x : y; });
    case Operation::clamp_min:
    case Operation::maximum:
      return each(n, to, a, b, [](double x, double y) { return x > y || std::isnan(x) ? x : y; });
    case Operation::less:
      return each(n, to, a, b, [](double x, double y) { return x < y ? 1.0 : 0.0; });
    case Operation::less_equal:
      return each(n, to, a, b, [](double x, double y) { return x <= y ? 1.0 : 0.0; });
    case Operation::equal:
      return each(n, to, a, b, [](double x, double y) { return x == y ? 1.0 : 0.0; });
    case Operation::not_equal:
      return each(n, to, a, b, [](double x, double y) { return x != y ? 1.0 : 0.0; });
    case Operation::logical_and:
      return each(n, to, a, b, [](double x, double y) { return x != 0 && y != 0 ? 1.0 : 0.0; });
    case Operation::logical_or:
      return each(n, to, a, b, [](double x, double y) { return x != 0 || y != 0 ? 1.0 : 0.0; });
    case Operation::logical_xor:
      return each(n, to, a, b, [](double x, double y) { return (x != 0) != (y != 0) ? 1.0 : 0.0; });
    case Operation::select:
      for (std::int64_t i = 0; i < n; ++i) to[i] = a[i] != 0 ? b[i] : c[i];
  }
}

/// Where the numbers of a load are in its tensor, for each key; 0 beyond it, which is reported.
void ScoreProgram::find_offsets(Scratch& s, const Instruction& instruction, std::int64_t count) {
  const TensorView& tensor = tensors_[instruction.tensor].view();
  s.offsets.assign(static_cast<std::size_t>(count), 0);
  for (std::size_t dim = 0; dim < instruction.indices.size(); ++dim) {
    const int register_ = instruction.indices[dim];
    const Numbers index{s.value(register_), is_wide(register_) ? 1 : 0};
    const std::int64_t length = tensor.shape[dim], stride = tensor.strides[dim];
    const auto end = static_cast<double>(length);
    for (std::int64_t j = 0; j < count; ++j) {
      const double number = index[j];
      if (!(number >= -end && number < end)) return report(number, dim, length, s);
      const auto i = static_cast<std::int64_t>(number);
      s.offsets[static_cast<std::size_t>(j)] += (i < 0 ? i + length : i) * stride;
    }
  }
}

void ScoreProgram::report(double index, std::size_t dim, std::int64_t length, Scratch& s) {
  std::ranges::fill(s.offsets, 0);
  const std::scoped_lock lock(mutex_);
  error_ = "score_mod: index " + std::to_string(static_cast<std::int64_t>(index)) + " is beyond dimension " +
           std::to_string(dim) + " of a tensor of length " + std::to_string(length);
}

void ScoreProgram::load(Scratch& s, const Instruction& instruction, double* to) {
  const TensorView& tensor = tensors_[instruction.tensor].view();
  const std::int64_t count = instruction.is_wide ? s.keys : 1;
  if (tensor.size() == 0) {
    report(0, 0, 0, s);
    std::fill_n(to, count, 0.0);
    return;
  }
  find_offsets(s, instruction, count);
  const auto read = [&]<class T>(const T* numbers) {
    for (std::int64_t j = 0; j < count; ++j)
      to[j] = static_cast<double>(numbers[s.offsets[static_cast<std::size_t>(j)]]);
  };
  switch (tensor.dtype) {
    case DType::f32:
      return read(static_cast<const float*>(tensor.data));
    case DType::f64:
      return read(static_cast<const double*>(tensor.data));
    case DType::i32:
      return read(static_cast<const std::int32_t*>(tensor.data));
    case DType::i64:
      return read(static_cast<const std::int64_t*>(tensor.data));
    default:
      return read(static_cast<const bool*>(tensor.data));
  }
}

template <class T>
void ScoreProgram::modify_tile(const ScoreTile& tile) {
  thread_local Scratch s;
  const bool with_mask = effect_on(tile) != BlockEffect::full;
  begin_tile(s, tile);
  run(s, false, with_mask);
  for (std::int64_t i = 0; i < tile.rows; ++i) {
    begin_row<T>(s, tile, i);
    run(s, true, with_mask);
    T* const to = tile.row<T>(i);
    const Numbers score{s.value(score_), is_wide(score_) ? 1 : 0};
    if (score_ != 0)
      for (std::int64_t j = 0; j < tile.keys; ++j) to[j] = static_cast<T>(score[j]);
    if (with_mask) hide<T>(s, tile, i);
    if (maxima_.view().data && tile.keys > 0)
      raise_maximum(tile, tile.first_row + i, *std::max_element(to, to + tile.keys));
  }
}

/// One thread computes all keys of a row.
template <class T>
void ScoreProgram::raise_maximum(const ScoreTile& tile, std::int64_t row, T largest) {
  const MutableTensorView maxima = maxima_.mutable_view();
  const std::int64_t offset =
      tile.batch * maxima.strides[0] + tile.head * maxima.strides[1] + row * maxima.strides[2];
  T& to = static_cast<T*>(maxima.mutable_data())[offset];
  to = std::max(to, largest);
}

void ScoreProgram::modify(void* context, const ScoreTile& tile) {
  auto& self = *static_cast<ScoreProgram*>(context);
  tile.dtype == DType::f64 ? self.modify_tile<double>(tile) : self.modify_tile<float>(tile);
}

// ---- derivatives
// -------------------------------------------------------------------------------------------------

/// The derivatives of all registers with respect to one, for the current row.
void ScoreProgram::derive(Scratch& s, const Depends& depends, int from) const {
  std::fill_n(s.derivative(from), s.keys, 1.0);
  for (std::size_t i = 0; i < instructions_.size(); ++i) {
    const int to = static_cast<int>(i) + kInputs;
    if (to != from && depends[i + kInputs] && !instructions_[i].of_mask)
      derive(s, instructions_[i], depends, s.derivative(to));
  }
}

void ScoreProgram::derive(Scratch& s, const Instruction& instruction, const Depends& depends, double* to) const {
  static const double kZero = 0;
  const auto value = [&](std::size_t i) {
    const int register_ = std::max(instruction.operands[i], 0);
    return Numbers{s.value(register_), is_wide(register_) ? 1 : 0};
  };
  const auto derivative = [&](std::size_t i) {
    const int register_ = instruction.operands[i];
    const bool is_zero = register_ < 0 || !depends[static_cast<std::size_t>(register_)];
    return is_zero ? Numbers{&kZero, 0} : Numbers{s.derivative(register_), 1};
  };
  const Numbers a = value(0), b = value(1), da = derivative(0), db = derivative(1), dc = derivative(2);
  const auto each_key = [&](auto function) {
    for (std::int64_t i = 0; i < s.keys; ++i) to[i] = function(i);
  };
  switch (instruction.operation) {
    case Operation::negate:
      return each_key([&](auto i) { return -da[i]; });
    case Operation::absolute:
      return each_key([&](auto i) { return a[i] > 0 ? da[i] : a[i] < 0 ? -da[i] : 0.0; });
    case Operation::exponential:
      return each_key([&](auto i) { return std::exp(a[i]) * da[i]; });
    case Operation::exponential2:
      return each_key([&](auto i) { return std::log(2.0) * std::exp2(a[i]) * da[i]; });
    case Operation::logarithm:
      return each_key([&](auto i) { return da[i] / a[i]; });
    case Operation::square_root:
      return each_key([&](auto i) { return da[i] / (2 * std::sqrt(a[i])); });
    case Operation::sine:
      return each_key([&](auto i) { return std::cos(a[i]) * da[i]; });
    case Operation::cosine:
      return each_key([&](auto i) { return -std::sin(a[i]) * da[i]; });
    case Operation::hyperbolic_tangent:
      return each_key([&](auto i) { return (1 - std::tanh(a[i]) * std::tanh(a[i])) * da[i]; });
    case Operation::sigmoid:
      return each_key([&](auto i) {
        const double y = 1 / (1 + std::exp(-a[i]));
        return y * (1 - y) * da[i];
      });
    case Operation::add:
      return each_key([&](auto i) { return da[i] + db[i]; });
    case Operation::subtract:
      return each_key([&](auto i) { return da[i] - db[i]; });
    case Operation::multiply:
      return each_key([&](auto i) { return da[i] * b[i] + a[i] * db[i]; });
    case Operation::divide:
      return each_key([&](auto i) { return (da[i] - a[i] / b[i] * db[i]) / b[i]; });
    case Operation::remainder:
      return each_key([&](auto i) { return da[i] - std::floor(a[i] / b[i]) * db[i]; });
    case Operation::power:
      return each_key([&](auto i) {
        const double of_base = da[i] == 0 || b[i] == 0 ? 0 : b[i] * std::pow(a[i], b[i] - 1) * da[i];
        const bool has_no_log = db[i] == 0 || (a[i] == 0 && b[i] >= 0);
        return of_base + (has_no_log ? 0 : std::log(a[i]) * std::pow(a[i], b[i]) * db[i]);
      });
    case Operation::detach:
      return each_key([](auto) { return 0.0; });
    case Operation::cast:
      return each_key([&](auto i) { return da[i]; });
    case Operation::clamp_min:
      return each_key([&](auto i) { return a[i] >= b[i] ? da[i] : db[i]; });
    case Operation::clamp_max:
      return each_key([&](auto i) { return a[i] <= b[i] ? da[i] : db[i]; });
    case Operation::minimum:
      return each_key([&](auto i) { return a[i] == b[i] ? (da[i] + db[i]) / 2 : a[i] < b[i] ? da[i] : db[i]; });
    case Operation::maximum:
      return each_key([&](auto i) { return a[i] == b[i] ? (da[i] + db[i]) / 2 : a[i] > b[i] ? da[i] : db[i]; });
    case Operation::select:
      return each_key([&](auto i) { return a[i] != 0 ? db[i] : dc[i]; });
    default:  // steps
      return each_key([](auto) { return 0.0; });
  }
}

template <class T>
void ScoreProgram::differentiate_tile(const ScoreTile& scores, const ScoreTile& gradients) {
  thread_local Scratch s;
  thread_local std::vector<double> before;
  begin_tile(s, scores);
  s.derivatives.resize(s.values.size());
  run(s, false, false);
  const bool depends = of_score_[static_cast<std::size_t>(score_)] != 0;
  for (std::int64_t i = 0; i < scores.rows; ++i) {
    begin_row<T>(s, scores, i);
    run(s, true, false);
    T* const row = gradients.row<T>(i);
    before.assign(row, row + scores.keys);
    if (depends) derive(s, of_score_, 0);
    const double* const factors = s.derivative(score_);
    for (std::int64_t j = 0; j < scores.keys; ++j)  // a hidden key's derivative may be infinite
      row[j] = !depends || before[static_cast<std::size_t>(j)] == 0
                   ? T{0}
                   : static_cast<T>(before[static_cast<std::size_t>(j)] * factors[j]);
    if (!learnt_.empty()) add_to_gradients(s, before);
  }
}

void ScoreProgram::add_to_gradients(Scratch& s, const std::vector<double>& gradients) {
  for (const auto& [from, depends] : learnt_) {
    if (!depends[static_cast<std::size_t>(score_)]) continue;
    derive(s, depends, from);
    const Instruction& load = instructions_[static_cast<std::size_t>(from - kInputs)];
    const TensorView& tensor = tensors_[load.tensor].view();
    const MutableTensorView to = gradients_[load.tensor].mutable_view();
    const std::scoped_lock lock(mutex_);
    for (std::int64_t j = 0; j < s.keys; ++j) {
      const double gradient = gradients[static_cast<std::size_t>(j)];
      if (gradient == 0) continue;
      std::int64_t offset = 0;
      for (std::size_t dim = 0; dim < load.indices.size(); ++dim) {
        const int register_ = load.indices[dim];
        const auto index = static_cast<std::int64_t>(s.value(register_)[is_wide(register_) ? j : 0]);
        offset += (index < 0 ? index + tensor.shape[dim] : index) * to.strides[dim];
      }
      static_cast<double*>(to.mutable_data())[offset] += gradient * s.derivative(score_)[j];
    }
  }
}

void ScoreProgram::differentiate(void* context, const ScoreTile& scores, const ScoreTile& gradients) {
  auto& self = *static_cast<ScoreProgram*>(context);
  scores.dtype == DType::f64 ? self.differentiate_tile<double>(scores, gradients)
                             : self.differentiate_tile<float>(scores, gradients);
}

void bind_score_program(nb::module_& module) {
  nb::class_<ScoreProgram>(module, "ScoreProgram")
      .def(nb::init<const nb::list&, const nb::list&, const nb::list&, int, int, nb::handle, std::int64_t,
                    std::int64_t, nb::handle>(),
           nb::arg("instructions"), nb::arg("tensors"), nb::arg("gradients"), nb::arg("score"), nb::arg("mask"),
           nb::arg("blocks").none(), nb::arg("block_q"), nb::arg("block_k"), nb::arg("maxima").none());
}

}  // namespace saccade::python
