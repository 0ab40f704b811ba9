// Byte-pair encoding: merges adjacent pairs, lowest rank first, leftmost first among equal ranks
// (https://arxiv.org/abs/1508.07909).
#include <nlohmann/json.hpp>
#include <queue>
#include <span>
#include <stdexcept>

#include "tokenizer/models/word_model.h"

namespace saccade::tokenizer {
namespace {

using Json = nlohmann::json;
using Pair = std::pair<std::int64_t, std::int64_t>;

struct HashOfPair {
  std::size_t operator()(const Pair& pair) const {
    return std::hash<std::int64_t>()(pair.first * 0x9E3779B97F4A7C15LL + pair.second);
  }
};

struct Merge {
  std::int64_t rank = 0, id = 0;  // of the result
};

class BytePairEncoding {
 public:
  BytePairEncoding(const Json& description, std::shared_ptr<Vocabulary> vocabulary)
      : vocabulary_(std::move(vocabulary)) {
    for (const char* const name : {"continuing_subword_prefix", "end_of_word_suffix"}) {
      const Json affix = description.value(name, Json());
      const bool is_empty = affix.is_string() && affix.get_ref<const std::string&>().empty();
      if (!affix.is_null() && !is_empty)
        throw std::runtime_error(std::string("BPE with ") + name + " is not supported");
    }
    if (const Json unknown = description.value("unk_token", Json()); !unknown.is_null())
      unknown_ = unknown.get<std::string>();
    fuses_unknown_ = description.value("fuse_unk", false);
    falls_back_to_bytes_ = description.value("byte_fallback", false);
    ignores_merges_ = description.value("ignore_merges", false);
    for (const Json& merge : description.at("merges")) add(merge);
  }

  void operator()(const Characters& piece, std::vector<Token>& tokens) const {
    if (ignores_merges_) {
      const std::string text = utf8_of(piece);
      if (const auto id = vocabulary_->id_of(text)) {
        tokens.push_back({*id, text, range_of(piece)});
        return;
      }
    }
    std::vector<Symbol> symbols = symbols_of(piece);
    merge_all(symbols);
    const auto first = static_cast<std::ptrdiff_t>(tokens.size());
    for (const Symbol& symbol : symbols)
      if (symbol.exists) tokens.push_back({symbol.id, *vocabulary_->text_of(symbol.id), symbol.range});
    if (unknown_.empty() && !falls_back_to_bytes_)
      close_gaps(piece, std::span(tokens).subspan(static_cast<std::size_t>(first)));
  }

 private:
  /// If characters without a token were dropped, assigns the remaining tokens consecutive byte ranges from the
  /// start of the piece, each as long as its spelling, as the tokenizers library does.
  static void close_gaps(const Characters& piece, std::span<Token> tokens) {
    std::vector<TextRange> bytes;  // source range of each UTF-8 byte of the piece
    for (const Character& c : piece) bytes.insert(bytes.end(), utf8_of(Characters{c}).size(), c.range);
    std::size_t spelled = 0;
    for (const Token& token : tokens) spelled += token.text.size();
    if (spelled >= bytes.size()) return;
    std::size_t at = 0;
    for (Token& token : tokens) {
      const std::size_t end = at + token.text.size();
      token.range = {bytes[at].begin, bytes[end - 1].end};
      at = end;
    }
  }

  struct Symbol {
    std::int64_t id = 0;
    TextRange range{};
    std::ptrdiff_t previous = -1, next = -1;
    bool exists = true;
    bool is_unknown = false;
  };

  /// ["a", "b"], or "a b" in older files.
  void add(const Json& merge) {
    std::string first, second;
    if (merge.is_array()) {
      first = merge.at(0).get<std::string>(), second = merge.at(1).get<std::string>();
    } else {
      const auto text = merge.get<std::string>();
      const std::size_t space = text.find(' ', 1);
      if (space == std::string::npos) throw std::runtime_error("the merge '" + text + "' has no space");
      first = text.substr(0, space), second = text.substr(space + 1);
    }
    const Merge result{static_cast<std::int64_t>(merges_.size()), vocabulary_->require(first + second)};
    merges_[{vocabulary_->require(first), vocabulary_->require(second)}] = result;
  }

  std::vector<Symbol> symbols_of(const Characters& piece) const {
    std::vector<Symbol> symbols;
    const auto add = [&](std::int64_t id, TextRange range) { symbols.push_back({.id = id, .range = range}); };
    for (const Character& c : piece) {
      if (const auto id = vocabulary_->id_of(utf8_of(Characters{c}))) {
        add(*id, c.range);
        continue;
      }
      const std::vector<Token> bytes = falls_back_to_bytes_ ? byte_tokens(*vocabulary_, c) : std::vector<Token>();
      for (const Token& byte : bytes) add(byte.id, byte.range);
      if (!bytes.empty() || unknown_.empty()) continue;
      if (fuses_unknown_ && !symbols.empty() && symbols.back().is_unknown) {
        symbols.back().range.end = c.range.end;
        continue;
      }
      add(vocabulary_->require(unknown_), c.range);
      symbols.back().is_unknown = true;
    }
    for (std::size_t i = 0; i < symbols.size(); ++i) {
      symbols[i].previous = static_cast<std::ptrdiff_t>(i) - 1;
      symbols[i].next = i + 1 < symbols.size() ? static_cast<std::ptrdiff_t>(i) + 1 : -1;
    }
    return symbols;
  }

  void merge_all(std::vector<Symbol>& symbols) const {
    struct Candidate {
      Merge merge;
      std::ptrdiff_t left;
      Pair pair;
      bool operator>(const Candidate& other) const {
        return std::pair(merge.rank, left) > std::pair(other.merge.rank, other.left);
      }
    };
    std::priority_queue<Candidate, std::vector<Candidate>, std::greater<>> candidates;
    const auto at = [&](std::ptrdiff_t i) -> Symbol& { return symbols[static_cast<std::size_t>(i)]; };
    const auto consider = [&](std::ptrdiff_t left) {
      if (left < 0 || at(left).next < 0) return;
      const Pair pair{at(left).id, at(at(left).next).id};
      const auto found = merges_.find(pair);
      if (found != merges_.end()) candidates.push({found->second, left, pair});
    };
    for (std::size_t i = 0; i < symbols.size(); ++i) consider(static_cast<std::ptrdiff_t>(i));
    while (!candidates.empty()) {
      const Candidate best = candidates.top();
      candidates.pop();
      Symbol& left = at(best.left);
      if (!left.exists || left.next < 0 || Pair(left.id, at(left.next).id) != best.pair) continue;
      Symbol& right = at(left.next);
      left.id = best.merge.id;
      left.range.end = right.range.end;
      left.next = right.next;
      right.exists = false;
      if (left.next >= 0) at(left.next).previous = best.left;
      consider(left.previous);
      consider(best.left);
    }
  }

  std::shared_ptr<Vocabulary> vocabulary_;
  std::unordered_map<Pair, Merge, HashOfPair> merges_;
  std::string unknown_;
  bool fuses_unknown_ = false, falls_back_to_bytes_ = false, ignores_merges_ = false;
};

}  // namespace

WordModel byte_pair_encoding(const Json& description, const std::shared_ptr<Vocabulary>& vocabulary) {
  const auto model = std::make_shared<BytePairEncoding>(description, vocabulary);
  return [model](const Characters& piece, std::vector<Token>& tokens) { (*model)(piece, tokens); };
}

}  // namespace saccade::tokenizer
