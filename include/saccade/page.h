// Attention as one HTML file: all heads of a model, one head cell by cell, and the text itself. The file needs no
// network and no server, and shows itself in any current browser.
//
//     AttentionPage page({.title = "SmolLM2", .tokens = labels, .num_layers = 30, .num_heads = 9});
//     page.add(layer, head, weights);      // of each head, in any order
//     write_file("page.html", page.html());
//
// Link saccade::page for this header.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "saccade/tensor.h"

namespace saccade {

/// What a page says about its heads; fill it with designated initialisers.
struct PageOptions {
  std::string title{};
  /// One line below the title: the model, its file, the command.
  std::string subtitle{};
  /// The text of each token, UTF-8, as a reader should see it.
  std::vector<std::string> tokens{};
  /// The text before each token that belongs to none, such as a space; empty: none.
  std::vector<std::string> gaps{};
  /// Which tokens are the same, for induction scores; empty: those with the same text.
  std::vector<std::int64_t> ids{};
  /// The word that each token is a part of, so that pieces of a word can be merged; empty: each its own.
  std::vector<std::int64_t> words{};
  /// The tokens that are not part of the text, such as [CLS], so that they can be hidden; empty: none.
  std::vector<bool> special{};
  std::int64_t num_layers = 0, num_heads = 0;
  std::int64_t num_kv_heads = 0;  ///< 0: num_heads
  bool is_causal = false;         ///< keys after the query are not stored
  /// The most bytes of the file. The most telling heads are kept whole, the others as thumbnails; the page says
  /// so.
  std::size_t max_size = 25'000'000;
};

/// What a head does, in numbers, each a mean over its queries.
struct HeadStatistics {
  double previous = 0.0;  ///< the weight of the token before; NaN: none
  double first = 0.0;     ///< the weight of the first token
  double self = 0.0;      ///< the weight of the token itself
  double induction =
      0.0;  ///< the weight of what followed the token's earlier occurrence (see head_scores.h); NaN: none
  double entropy = 0.0;   ///< in nats
  double distance = 0.0;  ///< in tokens
};

/// Collects the heads of a page. Memory is that of the file.
class AttentionPage {
 public:
  /// Throws std::invalid_argument for no tokens, layers or heads, and for lists of another length than tokens.
  explicit AttentionPage(const PageOptions& options);
  ~AttentionPage();
  AttentionPage(AttentionPage&&) noexcept;
  AttentionPage& operator=(AttentionPage&&) noexcept;

  /// Adds the weights of a head, f32 [tokens, tokens]: rows are queries. Returns what they do. Throws
  /// std::invalid_argument for another shape or type, and for a head that does not exist or was added before.
  HeadStatistics add(std::int64_t layer, std::int64_t head, const TensorView& weights);

  /// The file: the same bytes for the same input. Throws std::invalid_argument if heads are missing.
  std::string html() const;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace saccade
