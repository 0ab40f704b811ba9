// The options of the C interface, set by name.
#pragma once

#include <string_view>
#include <variant>

#include "core/check.h"
#include "saccade/attention.h"
#include "saccade/backward.h"
#include "saccade/c_api.h"
#include "saccade/inspect.h"
#include "saccade/kv_cache.h"
#include "saccade/rope.h"

/// Options of one kind.
struct saccade_options {
  /// The value of an option; empty: its default.
  using Value = std::variant<std::monostate, std::int64_t, double, std::string_view, saccade::MutableTensorView>;

  explicit saccade_options(saccade_options_kind the_kind) : kind(the_kind) {}
  virtual ~saccade_options() = default;
  /// Throws std::invalid_argument.
  virtual void set(std::string_view name, const Value& value) = 0;

  const saccade_options_kind kind;  // in place of run-time types, without which the library can be compiled
};

namespace saccade::c_api {

/// A C score modifier, called through a C++ one.
struct ScoreFunctions {
  saccade_score_modifier modifier = nullptr;
  saccade_score_modifier_backward backward = nullptr;
  saccade_score_block_effect effect = nullptr;
  void* context = nullptr;
};

class AttentionOptionSet final : public saccade_options {
 public:
  static constexpr saccade_options_kind kKind = SACCADE_ATTENTION_OPTIONS;
  AttentionOptionSet() : saccade_options(kKind) {}

  void set(std::string_view name, const Value& value) override;
  void set_score_functions(const ScoreFunctions& functions);

  const AttentionOptions& options() const { return options_; }
  const TensorView& dlse() const { return dlse_; }
  /// Those of options.
  const AttentionGradients& gradients() const { return gradients_; }

 private:
  AttentionOptions options_;
  ScoreFunctions functions_;
  TensorView dlse_;
  AttentionGradients gradients_;
};

struct KvCacheOptionSet final : saccade_options {
  static constexpr saccade_options_kind kKind = SACCADE_KV_CACHE_OPTIONS;
  KvCacheOptionSet() : saccade_options(kKind) {}
  void set(std::string_view name, const Value& value) override;
  KvCacheOptions options;
};

struct InspectOptionSet final : saccade_options {
  static constexpr saccade_options_kind kKind = SACCADE_INSPECT_OPTIONS;
  InspectOptionSet() : saccade_options(kKind) {}
  void set(std::string_view name, const Value& value) override;
  InspectOptions options;
};

struct RopeOptionSet final : saccade_options {
  static constexpr saccade_options_kind kKind = SACCADE_ROPE_OPTIONS;
  RopeOptionSet() : saccade_options(kKind) {}
  void set(std::string_view name, const Value& value) override;
  RopeOptions options;
};

/// Options, or their defaults for NULL. Throws for another kind. `kind`: its constant's name.
template <class Set>
const Set& options_of(std::string_view function, std::string_view name, const saccade_options* options,
                      std::string_view kind) {
  static const Set defaults;
  if (options == nullptr) return defaults;
  if (options->kind == Set::kKind) return static_cast<const Set&>(*options);
  refuse(function, name, " must be of kind ", kind);
}

/// The same for attention.
inline const AttentionOptionSet& attention_options(std::string_view function, const saccade_options* options) {
  return options_of<AttentionOptionSet>(function, "options", options, "SACCADE_ATTENTION_OPTIONS");
}

}  // namespace saccade::c_api
