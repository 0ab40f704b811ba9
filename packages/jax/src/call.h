// One foreign call of XLA as calls of attention.
#pragma once

#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

#include <xla/ffi/api/ffi.h>
#include "saccade/attention.h"
#include "saccade/tensor.h"

namespace saccade::jax {

namespace ffi = xla::ffi;

enum class Pass : std::uint8_t { forward, backward };

/// The operands and results of a foreign call, by name, and its attributes.
///
/// jax.vmap puts dimensions in front of every operand and result; those of operands that it does not map have
/// length 1. They become part of the batch of one call of attention where strides can express that, and otherwise
/// one call ("part") follows the other, with the same results but for the last bits of gradients summed over a
/// batch.
///
/// Operands have rank 4 (packed: 3), masks too, and numbers for each batch entry rank 1; saccade_jax/_call.py sees
/// to that. Throws std::invalid_argument that names what does not fit.
class Call {
 public:
  Call(const ffi::RemainingArgs& operands, const ffi::RemainingRets& results, const ffi::Dictionary& attributes,
       Pass pass);

  /// How many calls of attention there are.
  std::int64_t parts() const { return parts_; }

  /// The view of an operand or result in one part; empty if there is none of that name.
  TensorView operand(std::string_view name, std::int64_t part) const;
  MutableTensorView result(std::string_view name, std::int64_t part) const;

  /// The options of one part, without results. Arrays are operands with the names that they have in Python, the
  /// others attributes with the names of their members; those that are not there have their defaults.
  AttentionOptions options(std::int64_t part) const;

  /// An attribute of the foreign call. Throws std::logic_error if there is none of that name and type.
  template <class T>
  T attribute(std::string_view name) const;

 private:
  struct Array {
    std::string_view name;
    void* data = nullptr;
    DType dtype = DType::f32;
    std::vector<std::int64_t> leading, lengths;  ///< the dimensions of vmap, and the others
  };

  template <class T>
  void read(T& value, std::string_view name) const;
  Array array_of(std::string_view name, const ffi::AnyBuffer& buffer) const;
  const Array* find(const std::vector<Array>& arrays, std::string_view name) const;
  bool can_merge() const;
  bool can_merge(const Array& array, std::int64_t batch) const;
  TensorView view(const Array& array, std::int64_t part) const;
  TensorView merged_view(const Array& array) const;

  const ffi::Dictionary& attributes_;
  std::vector<Array> operands_, results_;
  std::vector<std::int64_t> leading_;  ///< the lengths of the dimensions of vmap
  std::int64_t mapped_ = 1;            ///< their product
  std::int64_t parts_ = 1;
  bool merged_ = false;
};

}  // namespace saccade::jax
