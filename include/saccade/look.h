// Runs a model over an input and makes a page that shows every head: weights, arithmetic, and what an answer rests
// on.
//
//     const auto pretrained = PretrainedModel::load("SmolLM2-135M");
//     const AttentionPage page = look(pretrained, {.text = "K Q A V K Q A V"});
//     write_file("page.html", page.html());
//
// Link saccade::look for this header.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "saccade/model.h"
#include "saccade/page.h"
#include "saccade/pretrained.h"
#include "saccade/tensor.h"

#pragma GCC visibility push(default)
namespace saccade {

/// Sequences up to this length are shown cell by cell, longer ones as pooled maps (page.h).
inline constexpr std::int64_t kLookMaxMapTokens = 4096;

/// What a model reads, one of `text`, `rgb` and `sound`; fill it with designated initializers.
struct LookInput {
  std::optional<std::string> text{};  ///< UTF-8
  std::optional<std::string> pair{};  ///< a second text, for models that take two
  /// For models of images: u8 [height, width, 3], and the bytes of a PNG file of the same picture, which the page
  /// shows; empty: the page shows none. The view is read during the call.
  TensorView rgb{};
  std::string png{};  ///< see rgb
  /// For models of speech: one channel, kLogMelRate samples a second (log_mel.h), from -1 to 1.
  std::vector<float> sound{};
  /// What the decoder of an encoder-decoder reads after its first tokens; default: the model's own greedy output
  /// for the source, up to 200 tokens.
  std::optional<std::string> target{};
};

/// A region of a head over a long text, kept exactly. Indices count from 0; both ends are included.
struct LookTile {
  HeadPlace place{};                             ///< the head
  std::int64_t first_query = 0, last_query = 0;  ///< its rows
  std::int64_t first_key = 0, last_key = 0;      ///< its columns
};

/// What a page shows; fill it with designated initializers.
struct LookOptions {
  /// The default title is the name of the model's folder, the default subtitle the model's sizes and the number of
  /// tokens.
  PageOptions page{};
  /// Heads to keep cell by cell, with their arithmetic, however informative they are. Over a long text the page
  /// keeps no others.
  std::vector<HeadPlace> details{};
  /// For texts of more than kLookMaxMapTokens tokens.
  std::vector<LookTile> tiles{};
  /// Adds maps of gradient times attention and of relevance (arXiv:2103.15679): the weights on which the model's
  /// answer rests. For texts of up to kLookMaxMapTokens tokens. The answer is the most likely next token of a
  /// decoder, the class of a picture, the target of an encoder-decoder, the embedding of an encoder without
  /// logits, or else the text's own tokens; the map's name says which.
  bool gradient = false;
  /// Called after each layer; counts the layers of all readings.
  std::function<void(std::int64_t done, std::int64_t total)> on_layer{};
  int num_threads = 0;  ///< 0: num_threads() of runtime.h; the page does not depend on it
};

/// One of several readings that a page compares.
struct LookReading {
  const PretrainedModel* pretrained = nullptr;  ///< the model; must be given
  LookInput input{};                            ///< what it reads
  /// Precedes the names of its parts. Default: the name of the model's folder if there are several models,
  /// otherwise the beginning of the text, in quotation marks.
  std::string name{};
};

/// Runs a model, `pretrained`, over an input and collects each of its heads. More parts may be added to the page.
/// Throws std::invalid_argument for inputs that the model does not read or that are too long for it, and for heads
/// and tiles that do not exist.
AttentionPage look(const PretrainedModel& pretrained, const LookInput& input, const LookOptions& options = {});

/// The same for several readings, of one model over several texts or of several models: each attention of each
/// reading is a part. Throws std::invalid_argument as above, and for no readings.
AttentionPage look(std::span<const LookReading> readings, const LookOptions& options = {});

}  // namespace saccade
#pragma GCC visibility pop
