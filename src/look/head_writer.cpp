#include "look/head_writer.h"

#include <algorithm>

#include "core/check.h"
#include "look/gradient.h"
#include "look/place.h"
#include "saccade/head_scores.h"
#include "saccade/inspect.h"

namespace saccade::heads {
namespace {

/// The first `count` rows of a view, or all of them.
TensorView first_rows(const TensorView& view, std::int64_t count) {
  return view.slice(0, 0, std::min(count, view.shape[0]));
}

}  // namespace

HeadWriter::HeadWriter(AttentionPage& page, const Reading& reading, const LookOptions& options,
                       std::function<void()> on_layer)
    : page_(page), reading_(reading), options_(options), on_layer_(std::move(on_layer)) {
  check_options();
  const ModelSizes& sizes = reading.sizes();
  if (sizes.num_encoder_layers > 0) {
    add_part(AttentionKind::cross, "cross-attention",
             {.queries = reading.shown,
              .keys = reading.source_shown,
              .num_layers = sizes.num_layers,
              .num_heads = sizes.num_heads,
              .num_kv_heads = sizes.num_kv_heads});
    add_part(AttentionKind::encoder, "encoder",
             {.queries = reading.source_shown,
              .num_layers = sizes.num_encoder_layers,
              .num_heads = sizes.num_encoder_heads,
              .num_kv_heads = sizes.num_encoder_heads});
  }
  add_part(sizes.is_causal ? AttentionKind::decoder : AttentionKind::encoder,
           sizes.num_encoder_layers > 0 ? "decoder" : "",
           {.queries = reading.shown,
            .num_layers = sizes.num_layers,
            .num_heads = sizes.num_heads,
            .num_kv_heads = sizes.num_kv_heads,
            .is_causal = sizes.is_causal});
}

void HeadWriter::check_options() const {
  const std::int64_t tokens = std::ssize(reading_.shown.tokens);
  for (const HeadPlace& place : options_.details) check_place(kLook, place, reading_.sizes());
  if (!options_.tiles.empty() && tokens <= kLookMaxMapTokens)
    refuse(kLook, "tiles are for texts of over ", kLookMaxMapTokens, " tokens; of this one, of ", tokens,
           ", heads are kept whole");
  if (options_.gradient && tokens > kLookMaxMapTokens)
    refuse(kLook, "gradient is for texts of up to ", kLookMaxMapTokens, " tokens; this one has ", tokens);
  for (const LookTile& tile : options_.tiles) {
    check_place(kLook, tile.place, reading_.sizes());
    for (const auto& [first, last] :
         {std::pair(tile.first_query, tile.last_query), std::pair(tile.first_key, tile.last_key)})
      if (first < 0 || first > last || last >= tokens)
        refuse(kLook, "a tile from ", first, " to ", last, " is no range of the ", tokens,
               " tokens, which count from 0");
  }
}

void HeadWriter::add_part(AttentionKind kind, const std::string& name, PagePart part) {
  part.name = reading_.name + (name.empty() || reading_.name.empty() ? "" : ", ") + name;
  const std::int64_t rows = std::ssize(part.queries.tokens),
                     columns = part.keys.tokens.empty() ? rows : std::ssize(part.keys.tokens);
  parts_[kind] = {.number = page_.add_part(part),
                  .queries = rows,
                  .keys = columns,
                  .is_long = std::max(rows, columns) > kLookMaxMapTokens};
}

bool HeadWriter::is_chosen(const HeadPlace& place) const {
  return std::ranges::find(options_.details, place) != options_.details.end();
}

bool HeadWriter::is_shown(const HeadPlace& place) const {
  return options_.details.empty() || is_chosen(place) ||
         std::ranges::find(options_.tiles, place, &LookTile::place) != options_.tiles.end();
}

void HeadWriter::run() {
  const ModelOptions options{.on_attention = [&](const LayerAttention& layer) { write(layer); },
                             .num_threads = options_.num_threads};
  if (reading_.sizes().num_encoder_layers > 0) reading_.model().encode(reading_.source, options);
  reading_.model().hidden_states(reading_.input, options);
  if (options_.gradient) add_gradient();
}

void HeadWriter::add_gradient() {
  const Gradient gradient =
      gradient_of_answer(*reading_.pretrained, reading_.source, reading_.input, options_.num_threads);
  for (const auto& [kind, maps] : gradient.maps) {
    const Part& part = parts_.at(kind);
    if (part.is_long) continue;
    const auto add = [&](const std::string& name, const Tensor& map) {
      if (map.rank() != 0)
        page_.add_map(part.number, name + " (" + gradient.answer + ")",
                      map.view().slice(0, 0, part.queries).slice(1, 0, part.keys));
    };
    add("gradient \u00d7 attention", maps.mean);
    add("relevance", maps.relevance);
  }
}

void HeadWriter::write(const LayerAttention& layer) {
  const Part& part = parts_.at(layer.kind);
  for (std::int64_t head = 0; head < layer.q.shape[1]; ++head) {
    if (!part.is_long)
      write_head(part, layer, head);
    else if (is_shown({layer.layer, head}))
      write_long_head(part, layer, head);
  }
  if (layer.kind != AttentionKind::cross) on_layer_();
}

void HeadWriter::write_head(const Part& part, const LayerAttention& layer, std::int64_t head) {
  OneHead one(layer, head, options_.num_threads);
  Tensor weights(DType::f32, {1, layer.q.shape[0], layer.k.shape[0]}), lse(DType::f32, {1, layer.q.shape[0]});
  one.options.weights = weights, one.options.lse = lse;
  attention(one.q, one.k, one.v, one.options);
  const Tensor norms = value_norms(layer, head, one), bias = one.bias();
  const auto rows = [&](const TensorView& view) { return first_rows(view, part.queries); };
  const auto keys = [&](const TensorView& view) { return first_rows(view, part.keys); };
  const auto cells = [&](const TensorView& view) { return rows(view).slice(1, 0, part.keys); };
  page_.add(part.number, layer.layer, head, cells(weights.view().select(0, 0)),
            {.q = rows(one.q.select(1, 0)),
             .k = keys(one.k.select(1, 0)),
             .lse = rows(lse.view().select(0, 0)),
             .scale = one.options.scale.value_or(1.0),
             .softcap = one.options.softcap,
             .bias = bias.rank() != 0 ? cells(bias) : TensorView(),
             .value_norms = keys(norms),
             .is_chosen = is_chosen({layer.layer, head})});
}

Tensor HeadWriter::weights_of(const LookTile& tile, const OneHead& one) const {
  // The queries of the tile over all keys, as a row's weights are normalized over all of them.
  const std::int64_t end = tile.last_query + 1;
  Tensor weights(DType::f32, {1, end - tile.first_query, one.k.shape[0]});
  AttentionOptions options = one.options;
  options.weights = weights;
  options.origin.row = tile.first_query;
  attention(one.q.slice(0, tile.first_query, end), one.k, one.v, options);
  return Tensor::copy_of(weights.view().select(0, 0).slice(1, tile.first_key, tile.last_key + 1));
}

void HeadWriter::write_long_head(const Part& part, const LayerAttention& layer, std::int64_t head) {
  constexpr std::int64_t kMapSide = 512, kTopKeys = 8;
  const OneHead one(layer, head, options_.num_threads);
  const std::int64_t rows = one.q.shape[0], keys = one.k.shape[0];
  Tensor lse(DType::f32, {1, rows});
  AttentionOptions with_lse = one.options;
  with_lse.lse = lse;
  attention(one.q, one.k, one.v, with_lse);
  const Inspection seen = inspect(one.q, one.k,
                                  {.top_k = kTopKeys,
                                   .entropy = true,
                                   .distance = true,
                                   .pool_rows = std::min(rows, kMapSide),
                                   .pool_keys = std::min(keys, kMapSide),
                                   .pooling = Pooling::max,
                                   .lse = lse},
                                  one.options);
  const auto flat = [](const Tensor& tensor, int rank) {  // drops the batch and head axes
    TensorView view = tensor.view();
    while (view.rank > rank) view = view.select(0, 0);
    return view;
  };
  PooledHead pooled{.pooled = flat(seen.pooled, 2),
                    .top_keys = flat(seen.top_keys, 2),
                    .top_weights = flat(seen.top_weights, 2)};
  if (one.options.score_modifier == nullptr && layer.kind != AttentionKind::cross) {
    const auto weight = [&](std::int64_t query, std::int64_t key) { return one.weight(lse, query, key); };
    pooled.statistics = head_statistics(weight, reading_.shown.ids);
    pooled.statistics.entropy = 0.0;
    for (std::int64_t i = 0; i < rows; ++i)
      pooled.statistics.entropy += seen.entropy.at<float>(0, i) / static_cast<double>(rows);
    pooled.statistics.distance = seen.mean_distance.at<float>(0);
  }
  std::vector<Tensor> tiles;
  for (const LookTile& tile : options_.tiles) {
    if (!(tile.place == HeadPlace{layer.layer, head})) continue;
    tiles.push_back(weights_of(tile, one));
    pooled.tiles.push_back({tile.first_query, tile.first_key, tiles.back()});
  }
  page_.add_pooled(part.number, layer.layer, head, pooled);
}

}  // namespace saccade::heads
