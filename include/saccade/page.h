// Attention as one HTML file: all heads of a model, one head cell by cell, the text, picture or sound itself, and
// the arithmetic of a cell. The file needs no network and no server, and opens in any current browser.
//
//     AttentionPage page({.title = "SmolLM2"});
//     page.add_part({.queries = {.tokens = labels}, .num_layers = 30, .num_heads = 9});
//     page.add(0, layer, head, weights);      // of each head, in any order
//     write_file("page.html", page.html());
//
// Link saccade::page for this header.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "saccade/head_scores.h"
#include "saccade/tensor.h"

#pragma GCC visibility push(default)
namespace saccade {

/// Options of a page; fill it with designated initializers.
struct PageOptions {
  std::string title{};  ///< the heading; U+FFFD stands for bytes that are not UTF-8, here and in the subtitle
  /// One line below the title: the model, its file, the command.
  std::string subtitle{};
  /// The maximum size of the file in bytes. The most informative heads are kept whole, the others as thumbnails;
  /// the page says so.
  std::size_t max_size = 25'000'000;
  /// The maximum size in bytes of the arithmetic of heads (HeadDetails), which the most informative heads get
  /// first. Chosen heads always have theirs.
  std::size_t max_details_size = 1'000'000;
  /// The parts are successive states of one model, such as checkpoints of a training run, shown along a slider.
  bool is_sequence = false;
};

/// A picture that a page shows, with tokens that are patches of it.
struct PageImage {
  std::string png{};                   ///< the bytes of a PNG file; empty: no picture
  std::int64_t rows = 0, columns = 0;  ///< patches, one row of them after the other
  std::int64_t first = 0;              ///< the token of the first patch; tokens before it are not patches
};

/// A sequence of tokens as a reader should see it.
struct PageSequence {
  /// The text of each token, UTF-8.
  std::vector<std::string> tokens{};
  /// The text before each token that belongs to no token, such as a space; empty: none.
  std::vector<std::string> gaps{};
  /// Which tokens are the same, for induction scores; empty: those with the same text, which patches of a picture
  /// do not have.
  std::vector<std::int64_t> ids{};
  /// The word that each token is a part of, so that tokens of a word can be merged; empty: each token is a word.
  std::vector<std::int64_t> words{};
  /// The tokens that are not part of the text, such as [CLS], so that they can be hidden; empty: none.
  std::vector<bool> special{};
  PageImage image{};     ///< the picture that tokens are patches of
  double seconds = 0.0;  ///< for sound: the duration of a token; 0: no sound
};

/// Heads that attend from one sequence to another: those of a model, of its encoder, or of one of two models being
/// compared.
struct PagePart {
  std::string name{};                          ///< empty: the page's title, if there are several parts
  PageSequence queries{};                      ///< the sequence that attends
  PageSequence keys{};                         ///< without tokens: self-attention over `queries`
  std::int64_t num_layers = 0, num_heads = 0;  ///< heads: of each layer
  std::int64_t num_kv_heads = 0;               ///< 0: num_heads
  bool is_causal = false;                      ///< keys after the query are not stored; only without `keys`
};

/// What a page needs to show how a head computes its weights; fill it with designated initializers. Views are read
/// during the call.
struct HeadDetails {
  /// f32 [queries, head_dim] and [keys, head_dim], as they were multiplied, to show the arithmetic of a cell. Give
  /// both, and `lse`, or neither.
  TensorView q{}, k{};
  TensorView lse{};                   ///< f32 [queries]: AttentionOptions::lse
  double scale = 1.0, softcap = 0.0;  ///< as in AttentionOptions
  TensorView bias{};                  ///< f32 [queries, keys]: what was added to the scores; default: nothing
  /// f32 [keys]: the norm of each key's contribution to the states, |v W_O|, for norm-based weights
  /// (arXiv:2004.10102). Give it for all heads of a part or for none.
  TensorView value_norms{};
  /// Keep this head before others, however informative they are.
  bool is_chosen = false;
};

/// Exact weights of a region of a head whose sequences are long.
struct PageTile {
  std::int64_t first_query = 0, first_key = 0;  ///< where it begins
  TensorView weights{};                         ///< f32 [rows, keys]
};

/// A head over sequences that are too long for a matrix (see inspect.h); fill it with designated initializers.
/// Views are read during the call.
struct PooledHead {
  TensorView pooled{};            ///< f32 [rows, columns]: the largest weight of each cell of a map of the whole
  TensorView top_keys{};          ///< i64 [queries, n]: the keys with the largest weights; -1: none
  TensorView top_weights{};       ///< f32 [queries, n]
  HeadStatistics statistics{};    ///< head_statistics() of the head
  std::vector<PageTile> tiles{};  ///< regions to keep exactly
};

/// How a page that carries a model makes tokens of a text.
enum class PageTokens : std::uint8_t {
  numbers,      ///< numbers with spaces between them
  bytes,        ///< the bytes of UTF-8
  word_pieces,  ///< BERT's: PageModel::word_pieces
};

/// The most bytes of files of a model that a page carries: a browser opens no page that is much larger.
inline constexpr std::size_t kPageMaxModelSize = 200'000'000;

/// A small model that a page carries, so that its reader can run it: on other texts, without some heads or with
/// other weights in them. Fill it with designated initializers.
struct PageModel {
  /// Files by name: model.safetensors of a GPTModel (gpt_model.h), or the config.json and model.safetensors of a
  /// Hugging Face folder with an encoder; together at most kPageMaxModelSize bytes. Weights of f16 take half the
  /// room of f32.
  std::vector<std::pair<std::string, std::string>> files{};
  std::int64_t num_heads = 0;               ///< of each layer
  std::int64_t vocab_size = 0;              ///< its tokens are below
  std::int64_t max_length = 0;              ///< the most tokens that it reads
  PageTokens tokens = PageTokens::numbers;  ///< how a text becomes tokens
  std::string word_pieces{};                ///< the tokenizer.json of a WordPiece tokenizer as BERT has it
  std::string text{};                       ///< the text to begin with
  /// Of the weights, for the reader, such as "f16". With "int8" each tensor of i8 is multiplied, row by row, by a
  /// tensor of f32 [..., rows, 1] with its name and ".scale", as quantize() makes them (quantize.h).
  std::string weight_type{};
  /// The largest difference of a weight from the model's own, as a share of the largest weight in its matrix.
  double weight_error = 0.0;
  /// Leave model.safetensors out: the reader chooses it on their own disk, and the page knows it by its size and
  /// CRC-32.
  bool asks_for_weights = false;
};

/// Collects the heads of a page. Takes about as much memory as the file.
class AttentionPage {
 public:
  explicit AttentionPage(const PageOptions& options);
  ~AttentionPage();
  AttentionPage(AttentionPage&&) noexcept;
  AttentionPage& operator=(AttentionPage&&) noexcept;

  /// Adds a part and returns its index, starting at 0. Throws std::invalid_argument for no tokens, layers or
  /// heads, and for lists whose length differs from tokens.
  std::int64_t add_part(const PagePart& part);

  /// Adds the weights of a head of a part and a layer, all by index from 0: f32 [queries, keys]. `details`: what
  /// shows how they follow from q and k. Returns head_statistics() of them. Throws std::invalid_argument for
  /// another shape or type, and for a head that does not exist or was added before.
  HeadStatistics add(std::int64_t part, std::int64_t layer, std::int64_t head, const TensorView& weights,
                     const HeadDetails& details = {});

  /// Adds a head of a layer of a part whose sequences are long, as `pooled` describes it; all heads of a part are
  /// added in the same way, and their maps have the same shape. Throws std::invalid_argument as add() does.
  void add_pooled(std::int64_t part, std::int64_t layer, std::int64_t head, const PooledHead& pooled);

  /// Adds a map over all heads of a part under a name: `weights`, f32 [queries, keys], such as rollout() or
  /// gradient times attention. Throws std::invalid_argument for another shape or type, and for a part whose heads
  /// are pooled.
  void add_map(std::int64_t part, const std::string& name, const TensorView& weights);

  /// Makes the page carry a model: the file grows by the model and by saccade.js (0.7 MB), which
  /// PageOptions::max_size does not count, and runs WebAssembly. Throws std::invalid_argument without files, for
  /// files of more than kPageMaxModelSize bytes together, for an empty text, for sizes below 1, and for
  /// word_pieces that are not a tokenizer as BERT has it.
  void set_model(const PageModel& model);

  /// The file: the same bytes for the same input. Throws std::invalid_argument if there are no parts or heads are
  /// missing.
  std::string html() const;

  /// The same file within `max_size` bytes instead of PageOptions::max_size, for a place that takes less.
  std::string html(std::size_t max_size) const;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace saccade
#pragma GCC visibility pop
