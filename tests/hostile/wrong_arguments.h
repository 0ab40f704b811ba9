// Arguments of calls, right or wrong in a place that is drawn, in memory whose surroundings are checked.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <deque>
#include <limits>
#include <random>
#include <string>
#include <string_view>
#include <vector>

#include "saccade/tensor.h"
#include "support/tensors.h"

namespace saccade::test {

/// A view in memory of its own, between bytes that no call may change.
class GuardedView {
 public:
  /// A view of these lengths and strides, whose elements repeat those of `numbers`.
  GuardedView(std::string name, const Tensor& numbers, std::vector<std::int64_t> lengths,
              std::vector<std::int64_t> strides, bool is_result)
      : name_(std::move(name)), is_result_(is_result) {
    std::int64_t least = 0, most = 0;
    bool has_elements = true;
    for (std::size_t i = 0; i < lengths.size(); ++i) {
      has_elements &= lengths[i] > 0;
      if (lengths[i] > 0 && strides[i] != 0) (strides[i] < 0 ? least : most) += (lengths[i] - 1) * strides[i];
    }
    const std::size_t size = size_of(numbers.dtype());
    const std::size_t used = has_elements ? static_cast<std::size_t>(most - least + 1) * size : 0;
    memory_.assign(used + 2 * kGuard, std::byte{0xa5});
    std::byte* const numbers_begin = memory_.data() + kGuard;
    for (std::size_t i = 0; numbers.bytes() != 0 && i < used; i += numbers.bytes())
      std::memcpy(numbers_begin + i, numbers.data(), std::min(numbers.bytes(), used - i));
    before_ = memory_;
    view_ = MutableTensorView(numbers_begin - least * static_cast<std::int64_t>(size), numbers.dtype(), lengths,
                              strides);
  }

  const MutableTensorView& view() const { return view_; }

  /// The memory around a result, and all of any other argument, is as it was.
  void expect_intact() const {
    const std::size_t checked = is_result_ ? kGuard : memory_.size();
    EXPECT_TRUE(
        std::equal(memory_.begin(), memory_.begin() + static_cast<std::ptrdiff_t>(checked), before_.begin()) &&
        std::equal(memory_.end() - kGuard, memory_.end(), before_.end() - kGuard))
        << "the call wrote to " << name_ << (is_result_ ? " outside its memory" : "");
  }

 private:
  static constexpr std::ptrdiff_t kGuard = 256;

  std::string name_;
  bool is_result_;
  std::vector<std::byte> memory_, before_;
  MutableTensorView view_;
};

/// Draws the arguments of one call. Each is the right one, which the caller of a function names, or with a
/// probability that is drawn first, 0 for some calls, another one.
class Arguments {
 public:
  explicit Arguments(std::uint64_t seed) : random_(seed) { wrongness_ = one_of({0, 0, 8, 4, 4, 2}); }

  // ---- What was drawn ----------------------------------------------------------------------------------------

  bool are_right() const { return !any_wrong_; }
  /// A wrong argument is so large that memory may run out.
  bool are_huge() const { return any_huge_; }
  const std::vector<std::string>& names() const { return names_; }
  /// The names of the wrong ones, for failures.
  const std::string& wrong_names() const { return wrong_names_; }
  void expect_intact() const {
    for (const GuardedView& view : views_) view.expect_intact();
  }

  // ---- Arguments ---------------------------------------------------------------------------------------------

  std::uint64_t below(std::uint64_t n) { return random_() % n; }
  template <class T>
  T one_of(std::initializer_list<T> choices) {
    return choices.begin()[below(choices.size())];
  }

  /// Whether the argument `name` is to be wrong.
  bool is_wrong(std::string_view name) {
    names_.emplace_back(name);
    const bool result = wrongness_ != 0 && below(wrongness_) == 0;
    if (result) wrong_names_ += std::string(wrong_names_.empty() ? "" : ", ") + std::string(name);
    any_wrong_ |= result;
    return result;
  }

  /// One more name that a refusal may say.
  void name(std::string_view name) { names_.emplace_back(name); }

  std::int64_t number(std::string_view name, std::int64_t right) {
    return is_wrong(name) ? hostile_number() : right;
  }
  int small_number(std::string_view name, int right) {
    return is_wrong(name)
               ? one_of({-1, 0, 1, 7, 1 << 20, std::numeric_limits<int>::max(), std::numeric_limits<int>::min()})
               : right;
  }
  double real(std::string_view name, double right) {
    const double infinity = std::numeric_limits<double>::infinity();
    return is_wrong(name) ? one_of({-1.0, -0.0, 0.0, 1.0, 2.0, 1e-320, 1e308, infinity, -infinity, std::nan("")})
                          : right;
  }
  /// One of the right values of an enumeration, or a number that is none.
  template <class Enumeration>
  Enumeration choice(std::string_view name, std::initializer_list<Enumeration> right) {
    return is_wrong(name) ? static_cast<Enumeration>(one_of({100, 255})) : one_of(right);
  }
  DType dtype(std::string_view name, DType right) {
    return is_wrong(name) ? static_cast<DType>(below(15)) : right;
  }
  std::string text(std::string_view name, std::string right) {
    if (!is_wrong(name)) return right;
    static const std::string kHostile[] = {"",
                                           "?",
                                           "\xff\xfe",
                                           "\n\x1b[31m\r",
                                           std::string(1, '\0'),
                                           std::string(100'000, 'a'),
                                           "\xe2\x80\xae<b>",
                                           "../../x"};
    return below(3) == 0 ? right + "\n" : kHostile[below(std::size(kHostile))];
  }
  std::vector<std::int64_t> numbers(std::string_view name, std::vector<std::int64_t> right) {
    if (!is_wrong(name)) return right;
    const std::uint64_t kind = right.empty() ? 1 : below(4);
    if (kind == 0) return {};
    if (kind == 1) right.push_back(hostile_number());
    if (kind == 2) right[below(right.size())] = hostile_number();
    if (kind == 3) right.resize(right.size() - 1);
    return right;
  }
  Shape shape(std::string_view name, const Shape& right) {
    Shape result = numbers(name, right);
    if (result != right && below(4) == 0) result.resize(kMaxRank + 1, 1);
    return result;
  }

  /// A view of the numbers of a tensor, which the call only reads.
  const TensorView& view_of(std::string_view name, const Tensor& right) { return drawn(name, right, false); }
  /// Normal numbers.
  const TensorView& tensor(std::string_view name, const Shape& shape, DType dtype = DType::f32) {
    return view_of(name, random_tensor(shape, random_(), dtype));
  }
  /// Zeros that the call may overwrite.
  const MutableTensorView& result(std::string_view name, const Shape& shape, DType dtype = DType::f32) {
    return drawn(name, Tensor(dtype, shape), true);
  }
  /// A tensor that owns its numbers.
  Tensor owned(std::string_view name, const Shape& shape, DType dtype = DType::f32) {
    if (!is_wrong(name)) return random_tensor(shape, random_(), dtype);
    Shape other = shape;
    const std::uint64_t kind = below(4);
    if (kind == 0) return {};
    if (kind == 1) return Tensor(static_cast<DType>(below(14)), shape);
    if (kind == 2) other.push_back(2);
    if (kind == 3 && !other.empty()) other[below(other.size())] += one_of({1, -1});
    return Tensor(dtype, other);
  }

 private:
#ifdef _WIN32
  static constexpr bool kRefusesMemory =
      false;  // Wine grants 100 terabytes, and uses all memory as they are written
#else
  static constexpr bool kRefusesMemory = true;
#endif

  std::int64_t hostile_number() {
    constexpr std::int64_t kMost = std::numeric_limits<std::int64_t>::max(), kHuge = kMaxLength + 1;
    const std::int64_t number =
        one_of<std::int64_t>({-1, 0, 1, 3, -8, kHuge, kMost, kMost / 2, kMost / 16, -kMost - 1, -kHuge});
    if (!kRefusesMemory && number >= kHuge) return -1;
    any_huge_ |= number >= kHuge;
    return number;
  }

  const MutableTensorView& drawn(std::string_view name, const Tensor& right, bool is_result) {
    static const MutableTensorView kNone;
    std::vector<std::int64_t> lengths = right.shape();
    if (!is_wrong(name)) return add(name, right, lengths, steps_of(lengths), is_result);
    const std::size_t dim = lengths.empty() ? 0 : below(lengths.size());
    switch (below(lengths.empty() ? 3 : 12)) {
      case 0:
        return kNone;
      case 1: {  // another type
        Tensor small(static_cast<DType>(below(15)), right.shape());
        if (small.dtype() != DType::boolean && small.bytes() != 0)
          static_cast<std::byte*>(small.data())[0] = std::byte{1};
        return add(name, small, lengths, steps_of(lengths), is_result);
      }
      case 2:  // another rank
        if (lengths.empty() || (below(2) == 0 && lengths.size() < kMaxRank))
          lengths.insert(lengths.begin(), one_of<std::int64_t>({1, 2}));
        else
          lengths.erase(lengths.begin());
        break;
      case 3:
        ++lengths[dim];
        break;
      case 4:
        lengths[dim] = std::max<std::int64_t>(lengths[dim] - 1, 0);
        break;
      case 5:
        lengths[dim] = 0;
        break;
      case 6:
        if (kRefusesMemory) return huge(name, right, dim, is_result);
        lengths[dim] = 0;
        break;
      case 7: {  // gaps everywhere
        std::vector<std::int64_t> strides = steps_of(lengths);
        for (std::int64_t& stride : strides) stride *= 2;
        return add(name, right, lengths, strides, is_result);
      }
      case 8: {  // from the end to the beginning
        std::vector<std::int64_t> strides = steps_of(lengths);
        strides[dim] = -strides[dim];
        return add(name, right, lengths, strides, is_result);
      }
      case 9: {  // the same place again and again
        std::vector<std::int64_t> strides = steps_of(lengths);
        strides[dim] = 0;
        return add(name, right, lengths, strides, is_result);
      }
      case 10: {  // no memory
        const MutableTensorView& view = add(name, right, lengths, steps_of(lengths), is_result);
        return without_data_.emplace_back(nullptr, view.dtype, std::span<const std::int64_t>(lengths)),
               without_data_.back();
      }
      default:
        return hostile_content(name, right, is_result);
    }
    return add(name, right, lengths, steps_of(lengths), is_result);
  }

  /// So long that only a stride of 0 keeps it inside memory.
  const MutableTensorView& huge(std::string_view name, const Tensor& right, std::size_t dim, bool is_result) {
    any_huge_ = true;
    std::vector<std::int64_t> lengths = right.shape(), strides = steps_of(lengths);
    strides[dim] = 0;
    lengths[dim] = one_of<std::int64_t>({kMaxLength + 1, std::numeric_limits<std::int64_t>::max() / 4096});
    return add(name, right, lengths, strides, is_result);
  }

  /// NaN, infinities, and integers of any size.
  const MutableTensorView& hostile_content(std::string_view name, const Tensor& right, bool is_result) {
    Tensor numbers = right;
    if (numbers.dtype() != DType::boolean)
      for (std::size_t i = 0; i < numbers.bytes(); i += 1 + below(16))
        static_cast<std::byte*>(numbers.data())[i] = std::byte{one_of<std::uint8_t>({0xff, 0x80, 0x7f})};
    return add(name, numbers, right.shape(), steps_of(right.shape()), is_result);
  }

  const MutableTensorView& add(std::string_view name, const Tensor& numbers,
                               const std::vector<std::int64_t>& lengths, const std::vector<std::int64_t>& strides,
                               bool is_result) {
    return views_.emplace_back(std::string(name), numbers, lengths, strides, is_result).view();
  }

  /// Strides of C order.
  static std::vector<std::int64_t> steps_of(const std::vector<std::int64_t>& lengths) {
    std::vector<std::int64_t> strides(lengths.size());
    std::int64_t stride = 1;
    for (std::size_t i = lengths.size(); i-- > 0; stride *= std::max<std::int64_t>(lengths[i], 1))
      strides[i] = stride;
    return strides;
  }

  std::mt19937_64 random_;
  std::uint64_t wrongness_ = 0;  // one argument in so many is wrong; 0: none
  bool any_wrong_ = false, any_huge_ = false;
  std::vector<std::string> names_;
  std::string wrong_names_;
  std::deque<GuardedView> views_;
  std::deque<MutableTensorView> without_data_;
};

}  // namespace saccade::test
