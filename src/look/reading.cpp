#include "look/reading.h"

#include <algorithm>

#include "core/check.h"
#include "look/passage.h"
#include "saccade/log_mel.h"

namespace saccade::heads {
namespace {

void add_picture(Reading& reading, const LookInput& input) {
  const ModelSizes& sizes = reading.sizes();
  if (sizes.num_channels != 3)
    refuse(kLook, "the model reads pictures of ", sizes.num_channels, " channels, but rgb has 3");
  reading.features = image_pixels(input.rgb, reading.pretrained->image_options());
  reading.input.features = reading.features;
  const std::int64_t side = sizes.image_size / sizes.patch_size;
  reading.shown = {.image = {.png = input.png, .rows = side, .columns = side, .first = 1}};
  reading.shown.tokens.assign(static_cast<std::size_t>(side * side + 1), "");
  reading.shown.tokens[0] = "[CLS]";
  reading.shown.special.assign(reading.shown.tokens.size(), false);
  reading.shown.special[0] = true;
}

/// The encoder reads 30 seconds; the page shows only those with sound.
void add_speech(Reading& reading, const LookInput& input, int num_threads) {
  const ModelSizes& sizes = reading.sizes();
  const Tensor features = log_mel(
      input.sound, {.num_bins = sizes.num_mel_bins, .num_frames = sizes.max_frames, .num_threads = num_threads});
  reading.features = Tensor::copy_of(features.view().reshaped({1, sizes.num_mel_bins, sizes.max_frames}));
  reading.source.features = reading.features;
  const std::int64_t samples_of_token = 2 * kLogMelHop,
                     tokens = std::min((std::ssize(input.sound) + samples_of_token - 1) / samples_of_token,
                                       sizes.max_frames / 2);
  reading.source_shown.tokens.assign(static_cast<std::size_t>(tokens), "");
  reading.source_shown.seconds = static_cast<double>(samples_of_token) / static_cast<double>(kLogMelRate);
}

/// Sets the decoder's input: the target, or what the model generates from the source.
void add_target(Reading& reading, const std::optional<std::string>& target, int num_threads) {
  constexpr std::int64_t kMaxTokens = 200;
  const PretrainedModel& pretrained = *reading.pretrained;
  reading.encoded = reading.model().encode(reading.source, {.num_threads = num_threads});
  std::vector<std::int64_t> tokens = pretrained.first_tokens();
  if (target) {
    for (const Token& token : pretrained.tokenizer().encode(*target, false)) tokens.push_back(token.id);
  } else {
    const auto most_likely = [](std::span<const float> logits) {
      return static_cast<std::int64_t>(std::ranges::max_element(logits) - logits.begin());
    };
    continue_tokens(
        reading.model(), tokens, reading.encoded, kMaxTokens, most_likely,
        [&](std::int64_t token) { tokens.push_back(token); }, num_threads);
  }
  const std::int64_t limit = reading.sizes().max_length;
  if (limit > 0 && std::ssize(tokens) > limit)
    refuse(kLook, "the decoder would read ", tokens.size(), " tokens, but this model takes ", limit);
  reading.shown = sequence_of(pretrained.tokenizer(), tokens);
  reading.input.tokens = std::move(tokens);
  reading.input.encoder_states = reading.encoded;
}

/// Throws for inputs that the model does not read, and for missing ones that it needs.
void check_input(const ModelSizes& sizes, const LookInput& input) {
  const bool sees = sizes.image_size > 0, hears = sizes.num_mel_bins > 0;
  const auto allow = [&](bool is_given, bool is_read, const char* what) {
    if (is_given && !is_read) refuse(kLook, "the model is a ", sizes.family, ", which does not read ", what);
  };
  const bool has_picture = input.rgb.rank != 0 || !input.png.empty();
  allow(has_picture, sees, "images");
  allow(!input.sound.empty(), hears, "sound");
  allow(input.target.has_value(), sizes.num_encoder_layers > 0, "a target");
  allow(input.text || input.pair, !sees && !hears, "text");
  const auto need = [&](bool is_given, const char* reads, const char* what) {
    if (!is_given) refuse(kLook, "the model is a ", sizes.family, ", which reads ", reads, ": give ", what);
  };
  if (sees)
    need(input.rgb.rank != 0, "images", "one");
  else if (hears)
    need(!input.sound.empty(), "sound", "some");
  else
    need(input.text.has_value(), "text", "one");
}

}  // namespace

std::unique_ptr<Reading> read(const PretrainedModel& pretrained, const LookInput& input, int num_threads) {
  auto reading = std::make_unique<Reading>();
  reading->pretrained = &pretrained;
  const ModelSizes& sizes = reading->sizes();
  check_input(sizes, input);
  const bool has_encoder = sizes.num_encoder_layers > 0;
  if (sizes.image_size > 0) {
    add_picture(*reading, input);
  } else if (sizes.num_mel_bins > 0) {
    add_speech(*reading, input, num_threads);
  } else {
    const Passage passage = Passage::of(kLook, pretrained.tokenizer(), *input.text, input.pair);
    (has_encoder ? reading->source : reading->input) = passage.input(kLook, sizes);
    (has_encoder ? reading->source_shown : reading->shown) = passage.sequence(pretrained.tokenizer());
  }
  if (has_encoder) add_target(*reading, input.target, num_threads);
  return reading;
}

}  // namespace saccade::heads
