#include "nn/attention_modules/masks.h"

#include <algorithm>
#include <limits>
#include <span>

#include "core/check.h"
#include "saccade/attention_modules.h"

namespace saccade {
namespace {

constexpr float kHidden = -std::numeric_limits<float>::infinity();

void check_numbers(const std::string& module, const char* argument, const TensorView& mask) {
  if (mask.dtype != DType::boolean && mask.dtype != DType::f32 && mask.dtype != DType::f64) {
    refuse(module, argument, " must be bool, f32 or f64, got ", name_of(mask.dtype));
  }
  if (mask.data == nullptr && mask.size() > 0) {
    refuse(module, argument, " has shape ", to_string(mask.dims()), " but no data");
  }
}

/// The same numbers with axes of length 1 prepended up to rank 4.
TensorView with_rank_4(const TensorView& view) {
  TensorView result = view;
  result.rank = 4;
  const int added = 4 - view.rank;
  for (int axis = 3; axis >= 0; --axis) {
    const auto to = static_cast<std::size_t>(axis);
    const bool is_added = axis < added;
    result.shape[to] = is_added ? 1 : view.shape[to - static_cast<std::size_t>(added)];
    result.strides[to] = is_added ? 0 : view.strides[to - static_cast<std::size_t>(added)];
  }
  return result;
}

/// The same numbers repeated along axes of length 1.
TensorView broadcast(const TensorView& view, const ScoreShape& shape) {
  TensorView result = view;
  for (std::size_t axis = 0; axis < 4; ++axis) {
    if (view.shape[axis] == 1) result.strides[axis] = 0;
    result.shape[axis] = shape[axis];
  }
  return result;
}

TensorView checked_mask(const std::string& module, const TensorView& mask, const ScoreShape& scores) {
  check_numbers(module, "mask", mask);
  if (mask.rank > 4) refuse(module, "mask must have rank 1 to 4, got ", to_string(mask.dims()));
  const auto [batch, num_heads, seqlen_q, seqlen_k] = scores;
  TensorView aligned = with_rank_4(mask);
  if (mask.rank == 3 && batch > 1 && mask.shape[0] == batch * num_heads) {
    aligned.shape[0] = batch;
    aligned.strides[0] = num_heads * mask.strides[0];
    aligned.shape[1] = num_heads;
  }
  for (std::size_t axis = 0; axis < 4; ++axis) {
    if (aligned.shape[axis] == scores[axis] || aligned.shape[axis] == 1) continue;
    refuse(module, "mask ", to_string(mask.dims()),
           " does not broadcast to [batch, num_heads, seqlen_q, seqlen_k] = ", to_string(scores));
  }
  return aligned;
}

/// As [batch or 1, 1, 1, seqlen_k].
TensorView checked_key_mask(const std::string& module, const TensorView& key_mask, const ScoreShape& scores) {
  check_numbers(module, "key_mask", key_mask);
  const auto [batch, num_heads, seqlen_q, seqlen_k] = scores;
  const bool fits =
      (key_mask.rank == 1 || (key_mask.rank == 2 && (key_mask.shape[0] == batch || key_mask.shape[0] == 1))) &&
      key_mask.shape[key_mask.rank - 1u] == seqlen_k;
  if (!fits) {
    refuse(module, "key_mask must be [batch, seqlen_k] = ", to_string(std::array{batch, seqlen_k}), ", got ",
           to_string(key_mask.dims()));
  }
  TensorView result = with_rank_4(key_mask);
  std::swap(result.shape[0], result.shape[2]);
  std::swap(result.strides[0], result.strides[2]);
  return result;
}

/// The key mask's lengths if it is only padding at the right end, else an empty tensor.
Tensor lengths_of_padding(const TensorView& key_mask, const ScoreShape& scores) {
  if (key_mask.dtype != DType::boolean) return {};
  const Tensor keys = Tensor::copy_of(key_mask);
  const std::int64_t seqlen_k = scores[3];
  Tensor lengths(DType::i64, {scores[0]});
  for (std::int64_t b = 0; b < scores[0]; ++b) {
    const auto row = keys.values<bool>().subspan(
        static_cast<std::size_t>(key_mask.shape[0] == 1 ? 0 : b * seqlen_k), static_cast<std::size_t>(seqlen_k));
    const auto end = std::find(row.begin(), row.end(), false);
    if (std::find(end, row.end(), true) != row.end()) return {};
    lengths.at<std::int64_t>(b) = end - row.begin();
  }
  return lengths;
}

/// A copy of a mask as numbers to add to logits.
Tensor additive(const TensorView& mask) {
  Tensor result = Tensor::copy_of(mask, DType::f32);
  if (mask.dtype == DType::boolean) {
    for (float& x : result.values<float>()) x = x != 0.0f ? 0.0f : kHidden;
  }
  return result;
}

/// joint[b, h, i, j] = join(joint[b, h, i, j], keys[b, j])
template <class T, class Join>
void join_keys(Tensor& joint, const Tensor& keys, Join join) {
  const auto seqlen_k = static_cast<std::size_t>(joint.shape(3));
  const std::int64_t rows_per_entry = joint.shape(1) * joint.shape(2);
  T* row = joint.values<T>().data();
  for (std::int64_t b = 0; b < joint.shape(0); ++b) {
    const T* key = keys.values<T>().data() + static_cast<std::size_t>(keys.shape(0) == 1 ? 0 : b) * seqlen_k;
    for (std::int64_t i = 0; i < rows_per_entry; ++i, row += seqlen_k) {
      std::transform(row, row + seqlen_k, key, row, join);
    }
  }
}

Tensor joint_mask(const TensorView& mask, const TensorView& key_mask, const ScoreShape& scores) {
  const TensorView expanded =
      broadcast(mask, {std::max(mask.shape[0], key_mask.shape[0]), mask.shape[1], mask.shape[2], scores[3]});
  if (mask.dtype == DType::boolean && key_mask.dtype == DType::boolean) {
    Tensor joint = Tensor::copy_of(expanded);
    join_keys<bool>(joint, Tensor::copy_of(key_mask), [](bool a, bool b) { return a && b; });
    return joint;
  }
  Tensor joint = additive(expanded);
  join_keys<float>(joint, additive(key_mask),
                   [](float a, float b) { return a == kHidden || b == kHidden ? kHidden : a + b; });
  return joint;
}

}  // namespace

CallMask call_mask(const std::string& module, const TensorView& mask, const TensorView& key_mask,
                   const ScoreShape& scores) {
  CallMask result;
  if (mask) result.given = checked_mask(module, mask, scores);
  if (!key_mask) return result;

  const TensorView keys = checked_key_mask(module, key_mask, scores);
  result.kv_lengths = lengths_of_padding(keys, scores);
  if (result.kv_lengths.rank() != 0) return result;
  if (mask) {
    result.joint = joint_mask(result.given, keys, scores);
  } else {
    result.given = keys;
  }
  return result;
}

Tensor copy_without_repetition(const TensorView& mask) {
  if (!mask) return {};
  TensorView once = mask;
  for (int dim = 0; dim < mask.rank; ++dim)
    if (mask.strides[static_cast<std::size_t>(dim)] == 0 && mask.shape[static_cast<std::size_t>(dim)] > 1)
      once = once.slice(dim, 0, 1);
  return Tensor::copy_of(once);
}

Tensor mask_from_torch(const TensorView& mask) {
  if (is_floating(mask.dtype)) return Tensor::copy_of(mask);
  if (mask.dtype != DType::boolean) {
    refuse("mask_from_torch", "the mask must be bool or floating-point, got ", name_of(mask.dtype));
  }
  Tensor result = Tensor::copy_of(mask);
  for (bool& visible : result.values<bool>()) visible = !visible;
  return result;
}

}  // namespace saccade
