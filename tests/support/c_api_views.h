// Tensors and options as the C interface takes them.
#pragma once

#include <gtest/gtest.h>

#include <memory>
#include <utility>
#include <vector>

#include "saccade/c_api.h"
#include "saccade/tensor.h"

namespace saccade::test {

/// The C view of a tensor; it shares the shape of `view`, which must live as long.
inline saccade_tensor c_view(const TensorView& view) {
  return {.data = const_cast<void*>(view.data),
          .dtype = static_cast<saccade_dtype>(view.dtype),
          .rank = view.rank,
          .shape = view.shape.data(),
          .strides = view.strides.data()};
}

/// Views that live as long as the list.
class CViews {
 public:
  const saccade_tensor* operator()(const TensorView& view) {
    if (!view) return nullptr;
    views_.push_back(std::make_unique<std::pair<TensorView, saccade_tensor>>(view, saccade_tensor{}));
    views_.back()->second = c_view(views_.back()->first);
    return &views_.back()->second;
  }

 private:
  std::vector<std::unique_ptr<std::pair<TensorView, saccade_tensor>>> views_;
};

inline void expect_ok(saccade_status status) { EXPECT_EQ(status, SACCADE_OK) << saccade_last_error(); }

/// Options of C that destroy themselves.
class COptions {
 public:
  explicit COptions(saccade_options_kind kind = SACCADE_ATTENTION_OPTIONS) {
    expect_ok(saccade_options_create(kind, &options_));
  }
  ~COptions() { saccade_options_destroy(options_); }
  COptions(const COptions&) = delete;
  COptions& operator=(const COptions&) = delete;
  operator saccade_options*() { return options_; }

  COptions& set(const char* name, std::int64_t value) {
    expect_ok(saccade_options_set_i64(options_, name, value));
    return *this;
  }
  COptions& set(const char* name, double value) {
    expect_ok(saccade_options_set_f64(options_, name, value));
    return *this;
  }
  COptions& set(const char* name, const char* value) {
    expect_ok(saccade_options_set_text(options_, name, value));
    return *this;
  }
  COptions& set(const char* name, const TensorView& value) {
    if (!value) return *this;
    const saccade_tensor view = c_view(value);
    expect_ok(saccade_options_set_tensor(options_, name, &view));
    return *this;
  }

 private:
  saccade_options* options_ = nullptr;
};

}  // namespace saccade::test
