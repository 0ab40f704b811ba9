#include "bench/caches/models.h"

#include <saccade/io.h>
#include <saccade/log_mel.h>
#include <saccade/pretrained.h>
#include <saccade/runtime.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstring>
#include <ctime>
#include <map>
#include <stdexcept>

#include "cases/caches/cache_errors.h"

namespace saccade::cache_errors {
namespace {

using cases::CacheFormat;
using cases::SquaredError;

constexpr std::int64_t kTokens = 4096;

std::vector<std::int64_t> tokens_of(const PretrainedModel& pretrained, const std::string& file,
                                    std::int64_t count) {
  const std::vector<std::byte> bytes = read_file(file);
  const std::string_view text(reinterpret_cast<const char*>(bytes.data()), bytes.size());
  std::vector<std::int64_t> tokens = pretrained.ids_of(text);
  if (std::ssize(tokens) < count)
    throw std::runtime_error(file + " has only " + std::to_string(tokens.size()) + " tokens");
  tokens.resize(static_cast<std::size_t>(count));
  return tokens;
}

std::int64_t largest_of(std::span<const float> numbers) {
  return std::ranges::max_element(numbers) - numbers.begin();
}

// ---- Attention from a cache ----------------------------------------------------------------------------------

/// [tokens, heads, dim] as a batch of one.
TensorView as_batch(const TensorView& x) {
  return {x.data, x.dtype, Shape{1, x.shape[0], x.shape[1], x.shape[2]},
          Shape{0, x.strides[0], x.strides[1], x.strides[2]}};
}

/// The o of a layer whose keys and values are stored in a cache first, [1, tokens, heads, dim].
Tensor attend_from_cache(const CacheFormat& format, const LayerAttention& layer) {
  const bool is_causal = layer.options.causal != Causal::none;
  KvCache cache(options_of(format, layer.k.shape[1], layer.k.shape[2], is_causal));
  cache.append(0, layer.k, layer.v, Layout::bshd);
  AttentionOptions options = layer.options;
  options.causal = Causal::none;  // as the cache says
  return attention(as_batch(layer.q), cache, options);
}

// ---- Errors of o ---------------------------------------------------------------------------------------------

/// The errors of each format in each layer, over all texts.
class LayerErrors {
 public:
  void add(const LayerAttention& layer) {
    const Tensor exact = cases::exact_attention(layer.q, layer.k, layer.v, layer.options);
    for (std::size_t i = 0; i < cases::cache_formats().size(); ++i) {
      std::vector<SquaredError>& errors = errors_[i];
      errors.resize(std::max(errors.size(), static_cast<std::size_t>(layer.layer + 1)));
      const Tensor o = attend_from_cache(cases::cache_formats()[i], layer);
      errors[static_cast<std::size_t>(layer.layer)] += cases::compare_squares(o, as_batch(exact));
    }
  }

  void print(const char* title) const {
    std::printf("\n%s\n\n| cache | median of the layers | worst |\n|---|---:|---:|\n", title);
    for (const auto& [format, errors] : errors_) {
      std::vector<double> relative;
      for (const SquaredError& error : errors) relative.push_back(error.relative());
      const auto worst = std::ranges::max_element(relative);
      const std::size_t layer = static_cast<std::size_t>(worst - relative.begin());
      const double largest = *worst;
      std::ranges::sort(relative);
      std::printf("| %s | %.4f | %.4f, layer %zu |\n", name_of(cases::cache_formats()[format]).c_str(),
                  (relative[(relative.size() - 1) / 2] + relative[relative.size() / 2]) / 2, largest, layer);
    }
    std::fflush(stdout);
  }

 private:
  std::map<std::size_t, std::vector<SquaredError>> errors_;
};

/// Samples of 16 bits as features of the first 30 seconds.
Tensor features_of(const Model& model, const std::string& file) {
  const std::vector<std::byte> bytes = read_file(file);
  std::vector<float> samples;
  for (std::size_t i = 0; i + 1 < bytes.size(); i += 2) {
    std::int16_t sample = 0;
    std::memcpy(&sample, bytes.data() + i, 2);
    samples.push_back(static_cast<float>(sample) / 32768);
  }
  const ModelSizes& sizes = model.sizes();
  const Tensor features = log_mel(samples, {.num_bins = sizes.num_mel_bins, .num_frames = sizes.max_frames});
  return features.reshaped({1, sizes.num_mel_bins, sizes.max_frames});
}

// ---- Losses --------------------------------------------------------------------------------------------------

/// What a model says of the tokens of a text, given those before.
struct Predictions {
  std::vector<double> losses;
  std::vector<std::int64_t> likeliest;
};

Predictions predict(const Model& model, const std::vector<std::int64_t>& tokens, const ModelOptions& options) {
  constexpr std::int64_t kRows = 128;  // their logits are held at once
  const Tensor states = model.hidden_states({.tokens = tokens}, options);
  Predictions result;
  for (std::int64_t begin = 0; begin + 1 < std::ssize(tokens); begin += kRows) {
    const std::int64_t end = std::min(begin + kRows, std::ssize(tokens) - 1);
    const Tensor logits = model.logits(states.view().slice(0, begin, end));
    for (std::int64_t row = begin; row < end; ++row) {
      const std::span<const float> of_row = logits.values<float>().subspan(
          static_cast<std::size_t>((row - begin) * logits.shape(1)), static_cast<std::size_t>(logits.shape(1)));
      const std::int64_t likeliest = largest_of(of_row);
      const double largest = of_row[static_cast<std::size_t>(likeliest)];
      double sum = 0;
      for (const float x : of_row) sum += std::exp(double{x} - largest);
      const auto next = static_cast<std::size_t>(tokens[static_cast<std::size_t>(row + 1)]);
      result.losses.push_back(std::log(sum) + largest - double{of_row[next]});
      result.likeliest.push_back(likeliest);
    }
  }
  return result;
}

void append(Predictions& to, const Predictions& from) {
  to.losses.insert(to.losses.end(), from.losses.begin(), from.losses.end());
  to.likeliest.insert(to.likeliest.end(), from.likeliest.begin(), from.likeliest.end());
}

double mean(std::span<const double> numbers) {
  double sum = 0;
  for (const double x : numbers) sum += x;
  return sum / static_cast<double>(numbers.size());
}

void print_losses_beside(const std::string& name, const Predictions& found, const Predictions& exact) {
  std::vector<double> changes, squares;
  std::size_t same = 0;
  for (std::size_t i = 0; i < found.losses.size(); ++i) {
    changes.push_back(found.losses[i] - exact.losses[i]);
    same += found.likeliest[i] == exact.likeliest[i] ? 1U : 0U;
  }
  const double change = mean(changes), count = static_cast<double>(changes.size());
  for (const double x : changes) squares.push_back((x - change) * (x - change));
  std::printf("| %s | %.4f | %+.4f | %.4f | %.1f %% |\n", name.c_str(), mean(found.losses), change,
              std::sqrt(mean(squares) / count), 100 * static_cast<double>(same) / count);
  std::fflush(stdout);
}

// ---- Generated text ------------------------------------------------------------------------------------------

struct Continuation {
  DType dtype;
  ModelCache cache;
  std::int64_t next = 0;
  std::vector<std::int64_t> tokens{};
  std::vector<double> seconds{};
};

/// Appends tokens to the cache, and remembers the likeliest after them. Returns seconds of the processor, which do
/// not count other programs.
double step(const Model& model, Continuation& text, const std::vector<std::int64_t>& tokens) {
  const std::clock_t begin = std::clock();
  const Tensor states = model.hidden_states({.tokens = tokens}, {.cache = &text.cache, .num_threads = 1});
  const Tensor logits = model.logits(states.view().select(0, states.shape(0) - 1), 1);
  text.next = largest_of(logits.values<float>());
  return static_cast<double>(std::clock() - begin) / CLOCKS_PER_SEC;
}

}  // namespace

void print_text_errors(const std::string& model, const std::vector<std::string>& files) {
  const PretrainedModel pretrained = PretrainedModel::load(model);
  LayerErrors errors;
  for (const std::string& file : files)
    pretrained.model().hidden_states({.tokens = tokens_of(pretrained, file, kTokens)},
                                     {.on_attention = [&](const LayerAttention& layer) { errors.add(layer); }});
  errors.print("Errors of o");
}

void print_speech_errors(const std::string& model, const std::string& samples) {
  const PretrainedModel pretrained = PretrainedModel::load(model);
  const Model& whisper = pretrained.model();
  std::map<AttentionKind, LayerErrors> errors;
  const ModelOptions options{.on_attention = [&](const LayerAttention& layer) { errors[layer.kind].add(layer); }};
  const Tensor features = features_of(whisper, samples);
  const Tensor source = whisper.encode({.features = features}, options);
  std::vector<std::int64_t> tokens = pretrained.first_tokens();
  continue_tokens(whisper, tokens, source, 400, largest_of, [&](std::int64_t token) { tokens.push_back(token); });
  whisper.hidden_states({.tokens = tokens, .encoder_states = source}, options);
  std::printf("%zu tokens: %s\n", tokens.size(), pretrained.tokenizer().decode(tokens).c_str());
  errors[AttentionKind::encoder].print("Errors of o in the encoder");
  errors[AttentionKind::decoder].print("Errors of o in the decoder");
  errors[AttentionKind::cross].print("Errors of o in cross-attention");
}

void print_losses(const std::string& model, const std::vector<std::string>& files) {
  const PretrainedModel pretrained = PretrainedModel::load(model);
  std::vector<std::vector<std::int64_t>> texts;
  for (const std::string& file : files) texts.push_back(tokens_of(pretrained, file, kTokens));
  const auto predictions = [&](const ModelOptions& options) {
    Predictions all;
    for (const auto& tokens : texts) append(all, predict(pretrained.model(), tokens, options));
    return all;
  };
  std::printf("| cache | loss | change | standard error | same likeliest token |\n|---|---:|---:|---:|---:|\n");
  const Predictions exact = predictions({});
  print_losses_beside("f32", exact, exact);
  for (const CacheFormat& format : cases::cache_formats())
    print_losses_beside(name_of(format),
                        predictions({.on_attention =
                                         [&](const LayerAttention& layer) {
                                           copy(attend_from_cache(format, layer).view().select(0, 0), layer.o);
                                         }}),
                        exact);
}

void print_generated(const std::string& model, const std::string& file) {
  constexpr std::int64_t kPrompt = 4000, kNew = 96;
  const PretrainedModel pretrained = PretrainedModel::load(model);
  const std::vector<std::int64_t> prompt = tokens_of(pretrained, file, kPrompt);
  std::vector<Continuation> texts;
  for (const DType dtype : {DType::f32, DType::bf16, DType::i8, DType::i4, DType::f8e4m3}) {
    texts.push_back({.dtype = dtype, .cache = pretrained.model().make_cache({.dtype = dtype}, kPrompt + kNew)});
    step(pretrained.model(), texts.back(), prompt);
  }
  for (std::int64_t i = 0; i < kNew; ++i)  // by turns
    for (Continuation& text : texts) {
      text.tokens.push_back(text.next);
      text.seconds.push_back(step(pretrained.model(), text, {text.next}));
    }
  std::printf("| cache | MB | ms a token, best (median) | tokens a second |\n|---|---:|---:|---:|\n");
  for (Continuation& text : texts) {
    std::ranges::sort(text.seconds);
    const double best = text.seconds.front(), median = text.seconds[text.seconds.size() / 2];
    std::printf("| %s | %.1f | %.2f (%.2f) | %.1f (%.1f) |\n", std::string(name_of(text.dtype)).c_str(),
                static_cast<double>(text.cache.bytes()) / 1e6, 1e3 * best, 1e3 * median, 1 / best, 1 / median);
  }
  for (const Continuation& text : texts)
    std::printf("\n%s: %s\n", std::string(name_of(text.dtype)).c_str(),
                pretrained.tokenizer().decode(text.tokens).c_str());
}

}  // namespace saccade::cache_errors
