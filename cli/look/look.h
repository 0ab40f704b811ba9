// saccade look, for models of `saccade train` and of Hugging Face folders.
#pragma once

#include <saccade/io.h>
#include <saccade/model.h>
#include <saccade/page.h>

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "cli/models/model_file.h"

namespace saccade::cli {

struct LookArguments {
  std::string model;
  std::optional<std::string> text, pair, image, audio, target;
  std::optional<std::string> other_model, other_text;
  std::optional<std::string> output, title;
  std::optional<std::string> live_weights;  // f16, int8 or file
  std::optional<double> max_size;
  std::optional<std::int64_t> threads;
  std::vector<std::string> ablated, details, tiles;
  bool gradient = false, mean = false, json = false, live = false;

  /// Throws std::invalid_argument for an invalid --max-size.
  std::size_t max_bytes() const;
  int num_threads() const { return static_cast<int>(threads.value_or(0)); }
};

/// The form of `arguments.output`: a page, or pictures of the heads. Throws std::invalid_argument for another
/// ending.
bool wants_page(const LookArguments& arguments);

/// The tokens of --text, of which the model sees the first; a note on standard error says if there are more.
std::vector<std::int64_t> tokens_of_saved(const SavedModel& saved, const LookArguments& arguments);

/// "L17H4"; `option` for messages. Throws std::invalid_argument.
HeadPlace head_place(const std::string& name, const std::string& option);

/// A model's weights as a page carries them: matrices as f16, or as int8 with a scale for each row (quantize.h),
/// which is a tensor of its own; vectors as f16.
struct PageWeights {
  Safetensors tensors{};
  std::string type{};  // "f16" or "int8"
  /// The largest difference of a weight from the original, as a share of the largest in its tensor.
  double error = 0.0;
};
/// `type`: "f16" or "int8". Throws std::invalid_argument, naming the tensor, for a weight that f16 does not have.
PageWeights page_weights(const std::map<std::string, Tensor>& weights, const std::string& type);

/// Writes the page to --output; with --live a note says its size first.
void write_page(const LookArguments& arguments, const AttentionPage& page);

/// Writes the page of a training run: its final model, or all saved models with a slider.
void look_at_saved(const LookArguments& arguments);

/// Prints what each head of a training run's final model does, and shows or writes heat maps of all heads.
void print_heads_of_saved(const LookArguments& arguments);

/// Writes the page of a Hugging Face folder's model.
void look_at_pretrained(const LookArguments& arguments);

/// Prints what changes without some heads: of a Hugging Face folder's model, and of a training run's final one.
void print_ablation(const LookArguments& arguments);
void print_ablation_of_saved(const LookArguments& arguments);

}  // namespace saccade::cli
