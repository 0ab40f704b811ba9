#include "saccade/look.h"

#include <memory>

#include "core/check.h"
#include "look/head_writer.h"
#include "look/reading.h"

namespace saccade {
namespace {

using heads::kLook;
using heads::Reading;

std::string shortened(const std::string& text) {
  constexpr std::size_t kMaxBytes = 40;
  if (text.size() <= kMaxBytes) return text;
  std::size_t end = kMaxBytes - 3;
  while (end > 0 && (static_cast<unsigned char>(text[end]) & 0xC0) == 0x80) --end;  // not within a character
  return text.substr(0, end) + "...";
}

/// The name that tells a reading from the others on a page.
std::string name_of(const LookReading& reading, bool several_models) {
  if (!reading.name.empty()) return reading.name;
  if (several_models || !reading.input.text) return reading.pretrained->name();
  return "\u201c" + shortened(*reading.input.text) + "\u201d";
}

std::string subtitle_of(const Reading& reading) {
  const ModelSizes& sizes = reading.sizes();
  return sizes.family + ": " + std::to_string(sizes.num_layers) + " layers of " + std::to_string(sizes.num_heads) +
         " heads, " + std::to_string(reading.shown.tokens.size()) + " tokens";
}

}  // namespace

AttentionPage look(const PretrainedModel& pretrained, const LookInput& input, const LookOptions& options) {
  const LookReading reading{.pretrained = &pretrained, .input = input};
  return look(std::span(&reading, 1), options);
}

AttentionPage look(std::span<const LookReading> readings, const LookOptions& options) {
  if (readings.empty()) refuse(kLook, "no text, image or sound was given");
  std::vector<std::unique_ptr<Reading>> read;
  std::int64_t layers = 0, done = 0;
  bool several_models = false;
  for (const LookReading& reading : readings) {
    if (reading.pretrained == nullptr) refuse(kLook, "a reading has no model");
    several_models = several_models || reading.pretrained != readings.front().pretrained;
    read.push_back(heads::read(*reading.pretrained, reading.input, options.num_threads));
    layers += read.back()->sizes().num_layers + read.back()->sizes().num_encoder_layers;
  }
  for (std::size_t i = 0; i < readings.size(); ++i)
    read[i]->name = readings.size() > 1 ? name_of(readings[i], several_models) : readings[i].name;
  PageOptions page_options = options.page;
  if (page_options.title.empty()) page_options.title = readings.front().pretrained->name();
  if (page_options.subtitle.empty()) page_options.subtitle = subtitle_of(*read.front());
  AttentionPage page(page_options);
  const auto on_layer = [&] {
    ++done;
    if (options.on_layer) options.on_layer(done, layers);
  };
  for (const auto& reading : read) heads::HeadWriter(page, *reading, options, on_layer).run();
  return page;
}

}  // namespace saccade
