// Post-processors: add the tokens that a model expects around a text or a pair of texts.
#pragma once

#include <nlohmann/json_fwd.hpp>

#include "tokenizer/models/word_model.h"

namespace saccade::tokenizer {

class PostProcessor {
 public:
  /// The post-processor that a part of tokenizer.json describes; null: adds nothing. Throws std::runtime_error
  /// for an unknown one.
  explicit PostProcessor(const nlohmann::json& description);

  /// Trims spaces at both ends from the ranges of byte-level tokens, if the description says so; `text` is the
  /// text that was tokenized.
  void trim(std::vector<Token>& tokens, const Characters& text) const;
  std::vector<Token> single(const std::vector<Token>& a, bool add_special) const;
  std::vector<Token> pair(const std::vector<Token>& a, const std::vector<Token>& b, bool add_special) const;

 private:
  /// A text, or added tokens.
  struct Part {
    int sequence = -1;  // 0: the first text, 1: the second, -1: tokens
    std::int64_t type = 0;
    std::vector<Token> tokens{};
  };
  using Template = std::vector<Part>;

  void read(const nlohmann::json& description);
  void read_trimming(const nlohmann::json& description);
  void read_template(const nlohmann::json& description);
  static Part added(const nlohmann::json& token_and_id);
  static std::vector<Token> filled(const Template& parts, const std::vector<const std::vector<Token>*>& texts,
                                   bool add_special);

  Template single_{{0, 0}}, pair_{{0, 0}, {1, 1}};
  bool trims_ = false, has_prefix_space_ = false;
};

}  // namespace saccade::tokenizer
