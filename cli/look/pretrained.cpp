// saccade look for models of Hugging Face folders: what a model reads, run once with every head written down.
#include <fmt/format.h>
#include <saccade/image.h>
#include <saccade/inspect.h>
#include <saccade/io.h>
#include <saccade/linear.h>
#include <saccade/log_mel.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <memory>

#include "cli/common/common.h"
#include "cli/models/media.h"
#include "cli/models/model_file.h"
#include "cli/models/pretrained.h"
#include "cli/output/progress.h"
#include "gradient.h"
#include "look.h"
#include "passage.h"

namespace saccade::cli {
namespace {

/// A run of a model: what it reads, and how a page shows that.
struct Reading {
  const Pretrained* pretrained = nullptr;
  std::string name{};            ///< before the names of its parts, where a page has two readings
  ModelInput source{}, input{};  ///< of an encoder-decoder what its halves read
  PageSequence source_shown{}, shown{};
  Tensor features{}, encoded{};  ///< what the inputs point to
};

// ---- What a model reads ---------------------------------------------------------------------------------------

void add_picture(Reading& reading, const LookArguments& arguments) {
  if (!arguments.image)
    refuse("--model is a {}, which reads pictures: give --image", reading.pretrained->model.sizes().family);
  const ModelSizes& sizes = reading.pretrained->model.sizes();
  PngFile picture = read_png(*arguments.image);
  ImageOptions options = ImageOptions::load(reading.pretrained->folder);
  options.size = sizes.image_size;
  if (sizes.num_channels != 3) refuse("--model reads pictures of {} channels, but PNG has 3", sizes.num_channels);
  reading.features = image_pixels(picture.pixels, options);
  reading.input.features = reading.features;
  const std::int64_t side = sizes.image_size / sizes.patch_size;
  reading.shown = {.image = {.png = std::move(picture.png), .rows = side, .columns = side, .first = 1}};
  reading.shown.tokens.assign(static_cast<std::size_t>(side * side + 1), "");
  reading.shown.tokens[0] = "[CLS]";
  reading.shown.special.assign(reading.shown.tokens.size(), false);
  reading.shown.special[0] = true;
}

/// The encoder hears 30 seconds; the page shows those that have sound.
void add_speech(Reading& reading, const LookArguments& arguments) {
  const ModelSizes& sizes = reading.pretrained->model.sizes();
  if (!arguments.sound) refuse("--model is a {}, which hears: give --sound", sizes.family);
  const std::vector<float> samples = read_sound(*arguments.sound);
  const Tensor features = log_mel(
      samples,
      {.num_bins = sizes.num_mel_bins, .num_frames = sizes.max_frames, .num_threads = arguments.num_threads()});
  reading.features = Tensor::copy_of(features.view().reshaped({1, sizes.num_mel_bins, sizes.max_frames}));
  reading.source.features = reading.features;
  const std::int64_t samples_of_token = 2 * kLogMelHop,
                     tokens = std::min((std::ssize(samples) + samples_of_token - 1) / samples_of_token,
                                       sizes.max_frames / 2);
  reading.source_shown.tokens.assign(static_cast<std::size_t>(tokens), "");
  reading.source_shown.seconds = static_cast<double>(samples_of_token) / static_cast<double>(kLogMelRate);
}

/// What the decoder is given: the target, or what the model makes of the source.
void add_target(Reading& reading, const LookArguments& arguments) {
  const Pretrained& pretrained = *reading.pretrained;
  reading.encoded = pretrained.model.encode(reading.source, {.num_threads = arguments.num_threads()});
  std::vector<std::int64_t> tokens = pretrained.first_tokens();
  if (arguments.target) {
    for (const Token& token : pretrained.tokenizer().encode(*arguments.target, false)) tokens.push_back(token.id);
  } else {
    const auto most_likely = [](std::span<const float> logits) {
      return static_cast<std::int64_t>(std::ranges::max_element(logits) - logits.begin());
    };
    continue_tokens(pretrained.model, tokens, reading.encoded, 200, most_likely,
                    [&](std::int64_t token) { tokens.push_back(token); });
  }
  const std::int64_t limit = pretrained.model.sizes().max_length;
  if (limit > 0 && std::ssize(tokens) > limit)
    refuse("the decoder would read {} tokens, but this model takes {}", tokens.size(), limit);
  reading.shown = sequence_of(pretrained.tokenizer(), tokens);
  reading.input.tokens = std::move(tokens);
  reading.input.encoder_states = reading.encoded;
}

std::unique_ptr<Reading> reading_of(const Pretrained& pretrained, const std::optional<std::string>& text,
                                    const LookArguments& arguments) {
  const ModelSizes& sizes = pretrained.model.sizes();
  auto reading = std::make_unique<Reading>();
  reading->pretrained = &pretrained;
  const bool has_encoder = sizes.num_encoder_layers > 0, hears = sizes.num_mel_bins > 0,
             sees = sizes.image_size > 0;
  if ((arguments.image && !sees) || (arguments.sound && !hears) || (arguments.target && !has_encoder) ||
      (text && (sees || hears)))
    refuse("--model is a {}, which does not read {}", sizes.family,
           arguments.image && !sees    ? "--image"
           : arguments.sound && !hears ? "--sound"
           : text && (sees || hears)   ? "--text"
                                       : "--target");
  if (sees) {
    add_picture(*reading, arguments);
  } else if (hears) {
    add_speech(*reading, arguments);
  } else {
    if (!text) refuse("give --text, which the model reads");
    const Passage passage = Passage::of(pretrained.tokenizer(), text_or_standard_input(*text), arguments.pair);
    (has_encoder ? reading->source : reading->input) = passage.input(sizes);
    (has_encoder ? reading->source_shown : reading->shown) = passage.sequence(pretrained.tokenizer());
  }
  if (has_encoder) add_target(*reading, arguments);
  return reading;
}

// ---- A head as the page keeps it ------------------------------------------------------------------------------

/// The first `count` rows of a view, or all of them.
TensorView first_rows(const TensorView& view, std::int64_t count) {
  return view.slice(0, 0, std::min(count, view.shape[0]));
}

/// Views of one head of a layer, each [tokens, 1, head_dim].
struct HeadViews {
  TensorView q, k, v;
  AttentionOptions options;

  HeadViews(const LayerAttention& layer, std::int64_t head, int threads) : options(layer.options) {
    const std::int64_t kv_head = head / (layer.q.shape[1] / layer.k.shape[1]);
    q = layer.q.slice(1, head, head + 1);
    k = layer.k.slice(1, kv_head, kv_head + 1), v = layer.v.slice(1, kv_head, kv_head + 1);
    options.num_threads = threads;
    options.origin.head = head;  // a bias by distance has one for each head
    options.origin.num_heads = layer.q.shape[1];
  }
};

/// What a score modifier adds, which depends on the place only: [queries, keys].
Tensor bias_of(const HeadViews& views, std::int64_t head) {
  const std::int64_t rows = views.q.shape[0], keys = views.k.shape[0];
  Tensor bias(DType::f32, {rows, keys});
  ScoreTile tile;
  tile.head = head, tile.rows = rows, tile.keys = keys;
  tile.scores = bias.values<float>().data(), tile.stride = keys;
  views.options.score_modifier(views.options.score_context, tile);
  return bias;
}

/// The length of what each key adds to the states, |v W_O|.
Tensor value_norms(const LayerAttention& layer, std::int64_t head, const TensorView& v, int threads) {
  const Tensor weight = Tensor::copy_of(layer.output_weight.select(0, head), DType::f32);
  const Tensor values = Tensor::copy_of(v.select(1, 0));
  const Tensor moved = linear(values, weight, {.weight_layout = WeightLayout::in_out, .num_threads = threads});
  Tensor norms(DType::f32, {moved.shape(0)});
  for (std::int64_t i = 0; i < moved.shape(0); ++i) {
    double sum = 0.0;
    for (std::int64_t d = 0; d < moved.shape(1); ++d) sum += std::pow(moved.at<float>(i, d), 2);
    norms.at<float>(i) = static_cast<float>(std::sqrt(sum));
  }
  return norms;
}

/// A region of a head: "L17H4:9000-9255:0-255".
struct Tile {
  HeadPlace place;
  std::int64_t first_query, last_query, first_key, last_key;
};

Tile tile_of(const std::string& text, std::int64_t layers, std::int64_t heads, std::int64_t tokens) {
  const std::size_t first = text.find(':'), second = text.find(':', first + 1);
  const auto range = [&](const std::string& part) -> std::pair<std::int64_t, std::int64_t> {
    const std::size_t dash = part.find('-');
    if (dash != std::string::npos) {
      const auto begin = parse_integer(part.substr(0, dash)), end = parse_integer(part.substr(dash + 1));
      if (begin && end && *begin >= 0 && *begin <= *end && *end < tokens) return {*begin, *end};
    }
    refuse("--tile {}: '{}' is no range of the {} tokens, which count from 0", text, part, tokens);
  };
  if (first == std::string::npos || second == std::string::npos)
    refuse("--tile {}: a head, queries and keys are wanted, as in L17H4:9000-9255:0-255", text);
  const auto queries = range(text.substr(first + 1, second - first - 1)), keys = range(text.substr(second + 1));
  return {head_place(text.substr(0, first), "--tile", layers, heads), queries.first, queries.second, keys.first,
          keys.second};
}

/// Writes the heads of a reading into a page.
class HeadWriter {
 public:
  HeadWriter(AttentionPage& page, const Reading& reading, const LookArguments& arguments);

  /// Runs the model.
  void run();

 private:
  /// A part of the page: one of the model's attentions.
  struct Part {
    std::int64_t number = 0, queries = 0, keys = 0;
    bool is_long = false;
  };

  void add_part(AttentionKind kind, const std::string& name, const PageSequence& queries, const PageSequence* keys,
                std::int64_t layers, std::int64_t heads, std::int64_t kv_heads, bool is_causal);
  void write(const LayerAttention& layer);
  void add_gradient();
  void write_head(const Part& part, const LayerAttention& layer, std::int64_t head);
  void write_long_head(const Part& part, const LayerAttention& layer, std::int64_t head);
  bool is_chosen(std::int64_t layer, std::int64_t head) const {
    return std::ranges::count(chosen_, HeadPlace{layer, head}) > 0;
  }
  /// Of the heads over a long text: all, or those that were named.
  bool is_shown(std::int64_t layer, std::int64_t head) const {
    const auto has_tile = [&](const Tile& tile) { return tile.place == HeadPlace{layer, head}; };
    return chosen_.empty() || is_chosen(layer, head) || std::ranges::any_of(tiles_, has_tile);
  }

  AttentionPage& page_;
  const Reading& reading_;
  const LookArguments& arguments_;
  std::map<AttentionKind, Part> parts_;
  std::vector<HeadPlace> chosen_;
  std::vector<Tile> tiles_;
  ProgressBar bar_;
  std::int64_t done_ = 0;
};

HeadWriter::HeadWriter(AttentionPage& page, const Reading& reading, const LookArguments& arguments)
    : page_(page),
      reading_(reading),
      arguments_(arguments),
      bar_(reading.pretrained->model.sizes().num_layers + reading.pretrained->model.sizes().num_encoder_layers) {
  const ModelSizes& sizes = reading.pretrained->model.sizes();
  const auto named = [&](const std::string& part) {
    return part.empty() || reading.name.empty() ? reading.name + part : reading.name + ", " + part;
  };
  if (sizes.num_encoder_layers > 0) {
    add_part(AttentionKind::cross, named("cross-attention"), reading.shown, &reading.source_shown,
             sizes.num_layers, sizes.num_heads, sizes.num_kv_heads, false);
    add_part(AttentionKind::encoder, named("encoder"), reading.source_shown, nullptr, sizes.num_encoder_layers,
             sizes.num_encoder_heads, sizes.num_encoder_heads, false);
  }
  add_part(sizes.is_causal ? AttentionKind::decoder : AttentionKind::encoder,
           named(sizes.num_encoder_layers > 0 ? "decoder" : ""), reading.shown, nullptr, sizes.num_layers,
           sizes.num_heads, sizes.num_kv_heads, sizes.is_causal);
  for (const std::string& name : arguments.details)
    chosen_.push_back(head_place(name, "--details", sizes.num_layers, sizes.num_heads));
  const std::int64_t tokens = std::ssize(reading.shown.tokens);
  if (!arguments.tiles.empty() && tokens <= kMaxTokensOfMap)
    refuse("--tile is for texts of over {} tokens; of this one, of {}, heads are kept whole", kMaxTokensOfMap,
           tokens);
  if (arguments.gradient && tokens > kMaxTokensOfMap)
    refuse("--gradient is for texts of up to {} tokens; this one has {}", kMaxTokensOfMap, tokens);
  for (const std::string& text : arguments.tiles)
    tiles_.push_back(tile_of(text, sizes.num_layers, sizes.num_heads, tokens));
}

void HeadWriter::add_part(AttentionKind kind, const std::string& name, const PageSequence& queries,
                          const PageSequence* keys, std::int64_t layers, std::int64_t heads, std::int64_t kv_heads,
                          bool is_causal) {
  const std::int64_t rows = std::ssize(queries.tokens), columns = keys ? std::ssize(keys->tokens) : rows;
  parts_[kind] = {.number = page_.add_part({.name = name,
                                            .queries = queries,
                                            .keys = keys ? *keys : PageSequence{},
                                            .num_layers = layers,
                                            .num_heads = heads,
                                            .num_kv_heads = kv_heads,
                                            .is_causal = is_causal}),
                  .queries = rows,
                  .keys = columns,
                  .is_long = std::max(rows, columns) > kMaxTokensOfMap};
}

void HeadWriter::run() {
  const Model& model = reading_.pretrained->model;
  const ModelOptions options{.on_attention = [&](const LayerAttention& layer) { write(layer); },
                             .num_threads = arguments_.num_threads()};
  if (model.sizes().num_encoder_layers > 0) model.encode(reading_.source, options);
  model.hidden_states(reading_.input, options);
  if (arguments_.gradient) add_gradient();
}

void HeadWriter::add_gradient() {
  const Gradient gradient =
      gradient_of_answer(*reading_.pretrained, reading_.source, reading_.input, arguments_.num_threads());
  for (const auto& [kind, maps] : gradient.maps) {
    const Part& part = parts_.at(kind);
    if (part.is_long) continue;
    const auto add = [&](const std::string& name, const Tensor& map) {
      if (map.rank() != 0)
        page_.add_map(part.number, fmt::format("{} ({})", name, gradient.answer),
                      map.view().slice(0, 0, part.queries).slice(1, 0, part.keys));
    };
    add("gradient × attention", maps.mean);
    add("relevance", maps.relevance);
  }
}

void HeadWriter::write(const LayerAttention& layer) {
  const Part& part = parts_.at(layer.kind);
  for (std::int64_t head = 0; head < layer.q.shape[1]; ++head) {
    if (!part.is_long)
      write_head(part, layer, head);
    else if (is_shown(layer.layer, head))
      write_long_head(part, layer, head);
  }
  if (layer.kind != AttentionKind::cross) bar_.show(++done_, "layers");
}

void HeadWriter::write_head(const Part& part, const LayerAttention& layer, std::int64_t head) {
  HeadViews views(layer, head, arguments_.num_threads());
  Tensor weights(DType::f32, {1, layer.q.shape[0], layer.k.shape[0]}), lse(DType::f32, {1, layer.q.shape[0]});
  views.options.weights = weights, views.options.lse = lse;
  attention(views.q, views.k, views.v, views.options);
  const Tensor norms = value_norms(layer, head, views.v, arguments_.num_threads());
  const Tensor bias = views.options.score_modifier ? bias_of(views, head) : Tensor();
  const auto rows = [&](const TensorView& view) { return first_rows(view, part.queries); };
  const auto keys = [&](const TensorView& view) { return first_rows(view, part.keys); };
  const auto cell = [&](const TensorView& view) { return rows(view).slice(1, 0, part.keys); };
  page_.add(part.number, layer.layer, head, cell(weights.view().select(0, 0)),
            {.q = rows(views.q.select(1, 0)),
             .k = keys(views.k.select(1, 0)),
             .lse = rows(lse.view().select(0, 0)),
             .scale = views.options.scale.value_or(1.0),
             .softcap = views.options.softcap,
             .bias = bias.rank() != 0 ? cell(bias) : TensorView(),
             .value_norms = keys(norms),
             .is_chosen = is_chosen(layer.layer, head)});
}

/// The weight of one key for one query, of a head without anything but a scale, a mask and a softcap.
double weight_of(const HeadViews& views, const Tensor& lse, std::int64_t query, std::int64_t key) {
  const std::int64_t dim = views.q.shape[2];
  const float* const q = views.q.as<float>() + query * views.q.strides[0];
  const float* const k = views.k.as<float>() + key * views.k.strides[0];
  double score = 0.0;
  for (std::int64_t d = 0; d < dim; ++d) score += static_cast<double>(q[d]) * k[d];
  score *= views.options.scale.value_or(1.0);
  if (const double cap = views.options.softcap; cap > 0) score = cap * std::tanh(score / cap);
  return std::exp(score - lse.at<float>(0, query));
}

/// What a long head does, from the weights of a few keys of each query. Keys outside a window count as 0.
HeadStatistics statistics_of(const HeadViews& views, const Tensor& lse, const Inspection& seen,
                             const std::vector<std::int64_t>& ids) {
  const std::int64_t n = views.q.shape[0], window = views.options.window_left;
  const auto weight = [&](std::int64_t query, std::int64_t key) {
    return window >= 0 && key < query - window ? 0.0 : weight_of(views, lse, query, key);
  };
  HeadStatistics result;
  std::map<std::int64_t, std::pair<std::int64_t, int>>
      earlier;  // of each token: where it stood last, and how often
  std::int64_t counted = 0;
  for (std::int64_t i = 0; i < n; ++i) {
    result.self += weight(i, i) / static_cast<double>(n);
    result.entropy += seen.entropy.at<float>(0, i) / static_cast<double>(n);
    auto& [place, times] = earlier[ids[static_cast<std::size_t>(i)]];
    if (i > 0) {
      result.previous += weight(i, i - 1) / static_cast<double>(n - 1);
      result.first += weight(i, 0) / static_cast<double>(n - 1);
    }
    if (times == 1) result.induction += weight(i, place + 1), ++counted;
    place = i, ++times;
  }
  result.induction = counted > 0 ? result.induction / static_cast<double>(counted) : std::nan("");
  result.distance = seen.mean_distance.at<float>(0);
  return result;
}

void HeadWriter::write_long_head(const Part& part, const LayerAttention& layer, std::int64_t head) {
  constexpr std::int64_t kMapSide = 512, kTopKeys = 8;
  HeadViews views(layer, head, arguments_.num_threads());
  const std::int64_t rows = views.q.shape[0], keys = views.k.shape[0];
  Tensor lse(DType::f32, {1, rows});
  AttentionOptions with_lse = views.options;
  with_lse.lse = lse;
  attention(views.q, views.k, views.v, with_lse);
  const Inspection seen = inspect(views.q, views.k,
                                  {.top_k = kTopKeys,
                                   .entropy = true,
                                   .distance = true,
                                   .pool_rows = std::min(rows, kMapSide),
                                   .pool_keys = std::min(keys, kMapSide),
                                   .pooling = Pooling::max,
                                   .lse = lse},
                                  views.options);
  const auto flat = [](const Tensor& tensor, int from) {  // without the axes of batch and head
    TensorView view = tensor.view();
    while (view.rank > from) view = view.select(0, 0);
    return view;
  };
  PooledHead pooled{.pooled = flat(seen.pooled, 2),
                    .top_keys = flat(seen.top_keys, 2),
                    .top_weights = flat(seen.top_weights, 2)};
  if (views.options.score_modifier == nullptr && layer.kind != AttentionKind::cross)
    pooled.statistics = statistics_of(views, lse, seen, reading_.shown.ids);
  std::vector<Tensor> tiles;
  for (const Tile& tile : tiles_) {
    if (!(tile.place == HeadPlace{layer.layer, head})) continue;
    // The queries of the tile over all keys: the weights of a row belong together.
    Tensor weights(DType::f32, {1, tile.last_query - tile.first_query + 1, keys});
    AttentionOptions options = views.options;
    options.weights = weights;
    options.origin.row = tile.first_query;
    const std::int64_t end = tile.last_query + 1;
    attention(views.q.slice(0, tile.first_query, end), views.k, views.v, options);
    tiles.push_back(Tensor::copy_of(weights.view().select(0, 0).slice(1, tile.first_key, tile.last_key + 1)));
    pooled.tiles.push_back({tile.first_query, tile.first_key, tiles.back()});
  }
  page_.add_pooled(part.number, layer.layer, head, pooled);
}

std::string shortened(const std::string& text) { return text.size() > 40 ? text.substr(0, 37) + "..." : text; }

}  // namespace

void look_at_pretrained(const LookArguments& arguments) {
  const Pretrained first = Pretrained::load(arguments.model);
  std::optional<Pretrained> second;
  if (arguments.other_model) second = Pretrained::load(*arguments.other_model);
  std::vector<std::unique_ptr<Reading>> readings;
  readings.push_back(reading_of(first, arguments.text, arguments));
  if (arguments.other_model || arguments.other_text) {
    readings.push_back(reading_of(second ? *second : first,
                                  arguments.other_text ? arguments.other_text : arguments.text, arguments));
    const bool by_model = arguments.other_model.has_value();
    readings[0]->name = by_model ? name_of_file(arguments.model) : "“" + shortened(*arguments.text) + "”";
    readings[1]->name =
        by_model ? name_of_file(*arguments.other_model) : "“" + shortened(*arguments.other_text) + "”";
  }
  const ModelSizes& sizes = first.model.sizes();
  AttentionPage page({.title = arguments.title_of_page(),
                      .subtitle = fmt::format("{}: {} layers of {} heads, {} tokens", sizes.family,
                                              sizes.num_layers, sizes.num_heads, readings[0]->shown.tokens.size()),
                      .max_size = arguments.max_bytes()});
  for (const auto& reading : readings) HeadWriter(page, *reading, arguments).run();
  write_file(*arguments.output, std::string_view(page.html()));
}

}  // namespace saccade::cli
