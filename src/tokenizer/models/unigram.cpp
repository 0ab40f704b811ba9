// Unigram: picks the tokens with the largest sum of scores, which are log probabilities
// (https://arxiv.org/abs/1804.10959).
#include <algorithm>
#include <limits>
#include <nlohmann/json.hpp>
#include <stdexcept>

#include "tokenizer/models/word_model.h"

namespace saccade::tokenizer {
namespace {

using Json = nlohmann::json;

class Unigram {
 public:
  Unigram(const Json& description, std::shared_ptr<Vocabulary> vocabulary) : vocabulary_(std::move(vocabulary)) {
    double least = std::numeric_limits<double>::infinity();
    for (const Json& entry : description.at("vocab")) {
      const auto text = entry.at(0).get<std::string>();
      vocabulary_->add(text, static_cast<std::int64_t>(scores_.size()));
      scores_.push_back(entry.at(1).get<double>());
      least = std::min(least, scores_.back());
      longest_ = std::max(longest_, codes_of(text).size());
    }
    if (const Json unknown = description.value("unk_id", Json()); !unknown.is_null()) {
      unknown_ = unknown.get<std::int64_t>();
      if (vocabulary_->text_of(*unknown_) == nullptr) throw std::runtime_error("the vocabulary lacks unk_id");
    }
    unknown_score_ = least - 10.0;
    falls_back_to_bytes_ = description.value("byte_fallback", false);
  }

  void operator()(const Characters& piece, std::vector<Token>& tokens) const {
    std::vector<Step> steps = best_steps(piece);
    std::vector<std::pair<std::size_t, std::size_t>> parts;  // from the last to the first
    for (std::size_t end = piece.size(); end > 0; end = steps[end].begin)
      parts.emplace_back(steps[end].begin, end);
    std::ranges::reverse(parts);
    for (std::size_t i = 0; i < parts.size();) {
      auto [begin, end] = parts[i++];
      const bool is_unknown = !steps[end].id;
      while (is_unknown && i < parts.size() && !steps[parts[i].second].id) end = parts[i++].second;
      add(Characters(piece.begin() + static_cast<std::ptrdiff_t>(begin),
                     piece.begin() + static_cast<std::ptrdiff_t>(end)),
          tokens);
    }
  }

 private:
  /// The last token of the best segmentation up to a character.
  struct Step {
    double score = 0.0;
    std::size_t begin = 0;
    std::optional<std::int64_t> id;  // empty: unknown
    bool exists = false;
  };

  std::vector<Step> best_steps(const Characters& piece) const {
    std::vector<Step> steps(piece.size() + 1);
    const auto offer = [&](std::size_t begin, std::size_t end, std::optional<std::int64_t> id, double score) {
      const double total = steps[begin].score + score;
      if (!steps[end].exists || total > steps[end].score) steps[end] = {total, begin, id, true};
    };
    for (std::size_t begin = 0; begin < piece.size(); ++begin) {
      std::string text;
      bool knows_character = false;
      for (std::size_t end = begin + 1; end <= std::min(piece.size(), begin + longest_); ++end) {
        append_utf8(text, piece[end - 1].code);
        const auto id = vocabulary_->id_of(text);
        if (!id) continue;
        offer(begin, end, id, scores_[static_cast<std::size_t>(*id)]);
        knows_character = knows_character || end == begin + 1;
      }
      if (!knows_character) offer(begin, begin + 1, std::nullopt, unknown_score_);
    }
    return steps;
  }

  void add(const Characters& part, std::vector<Token>& tokens) const {
    const std::string text = utf8_of(part);
    if (const auto id = vocabulary_->id_of(text)) {
      tokens.push_back({*id, text, range_of(part)});
      return;
    }
    if (falls_back_to_bytes_) {
      std::vector<Token> bytes;
      for (const Character& c : part)
        for (Token& byte : byte_tokens(*vocabulary_, c)) bytes.push_back(std::move(byte));
      for (Token& byte : bytes) byte.range = range_of(part);
      if (bytes.size() == text.size()) {
        tokens.insert(tokens.end(), bytes.begin(), bytes.end());
        return;
      }
    }
    if (!unknown_) throw std::runtime_error("the vocabulary has no token for '" + text + "', and no unk_id");
    tokens.push_back({*unknown_, text, range_of(part)});
  }

  std::shared_ptr<Vocabulary> vocabulary_;
  std::vector<double> scores_;
  std::size_t longest_ = 0;  // in code points
  std::optional<std::int64_t> unknown_;
  double unknown_score_ = 0.0;
  bool falls_back_to_bytes_ = false;
};

}  // namespace

WordModel unigram(const Json& description, const std::shared_ptr<Vocabulary>& vocabulary) {
  const auto model = std::make_shared<Unigram>(description, vocabulary);
  return [model](const Characters& piece, std::vector<Token>& tokens) { (*model)(piece, tokens); };
}

}  // namespace saccade::tokenizer
