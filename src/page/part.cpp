#include "page/part.h"

#include <algorithm>
#include <cmath>
#include <map>

#include "core/check.h"
#include "page/encode.h"
#include "saccade/head_scores.h"

namespace saccade::page {
namespace {

constexpr std::int64_t kThumbnail = 32;

void check_sequence(const char* name, const PageSequence& sequence) {
  const std::size_t tokens = sequence.tokens.size();
  const auto check_length = [&](const char* list, std::size_t length) {
    if (length != 0 && length != tokens)
      refuse(kPage, name, ".", list, " must be as many as tokens, ", tokens, ", but there are ", length);
  };
  check_length("gaps", sequence.gaps.size());
  check_length("ids", sequence.ids.size());
  check_length("words", sequence.words.size());
  check_length("special", sequence.special.size());
  if (!(sequence.seconds >= 0 && std::isfinite(sequence.seconds)))
    refuse(kPage, name, ".seconds must be 0 or more, got ", sequence.seconds);
  const PageImage& image = sequence.image;
  const auto count = static_cast<std::int64_t>(tokens);
  if (!image.png.empty() && (image.rows < 1 || image.columns < 1 || image.first < 0 || image.rows > count ||
                             image.columns > count || image.first + image.rows * image.columns > count))
    refuse(kPage, name, ".image has ", image.rows, " x ", image.columns, " patches from token ", image.first,
           " on, but there are ", tokens, " tokens");
}

Json number(double value) { return std::isfinite(value) ? Json(std::round(value * 1e5) / 1e5) : Json(nullptr); }

Json json_of(const PageSequence& sequence) {
  Json special = Json::array();
  for (const bool is_special : sequence.special) special.push_back(is_special ? 1 : 0);
  Json result{{"tokens", sequence.tokens},
              {"gaps", sequence.gaps},
              {"words", sequence.words},
              {"special", special},
              {"seconds", sequence.seconds}};
  if (const PageImage& image = sequence.image; !image.png.empty())
    result["image"] = {{"source", "data:image/png;base64," + base64(image.png)},
                       {"rows", image.rows},
                       {"columns", image.columns},
                       {"first", image.first}};
  return result;
}

/// How informative a head is: one that copies a pattern, or that picks a few keys other than the first.
double interest_of(const HeadStatistics& s, std::int64_t keys) {
  const double most = std::log(static_cast<double>(std::max<std::int64_t>(keys, 2)));
  const auto or_none = [](double score) { return std::isnan(score) ? 0.0 : score; };
  const double sharp = (1.0 - std::min(1.0, s.entropy / most)) * (1.0 - std::min(1.0, or_none(s.first)));
  return std::max({or_none(s.previous), or_none(s.induction), sharp, 0.0});
}

/// Norms relative to the largest: 255 + 16 log2(norm / largest), and 0 for those far below it.
std::vector<std::uint8_t> codes_of_norms(const TensorView& norms) {
  const Tensor contiguous = Tensor::copy_of(norms);
  const std::span<const float> values = contiguous.values<float>();
  const float largest = values.empty() ? 0.0f : *std::ranges::max_element(values);
  std::vector<std::uint8_t> codes;
  for (const float norm : values) codes.push_back(largest > 0 ? code_of(norm / largest) : 0);
  return codes;
}

/// The largest weights of each query: i32 keys, then codes of weights.
std::string coded_top(const TensorView& keys, const TensorView& weights) {
  const Tensor top_keys = Tensor::copy_of(keys), top_weights = Tensor::copy_of(weights);
  std::vector<std::uint8_t> bytes;
  for (const std::int64_t key : top_keys.values<std::int64_t>())
    for (int i = 0; i < 4; ++i)
      bytes.push_back(static_cast<std::uint8_t>(static_cast<std::uint64_t>(key) >> (8 * i)));
  for (const float weight : top_weights.values<float>()) bytes.push_back(code_of(weight));
  return deflated(bytes);
}

}  // namespace

StoredPart::StoredPart(const PagePart& part, std::size_t number) : part_(part), number_(number) {
  if (part.queries.tokens.empty()) refuse(kPage, "queries.tokens must not be empty");
  if (part.num_layers < 1 || part.num_heads < 1)
    refuse(kPage, "num_layers and num_heads must be at least 1, but they are ", part.num_layers, " and ",
           part.num_heads);
  constexpr std::int64_t kMostHeads = 1 << 20;
  if (part.num_layers > kMostHeads / part.num_heads)
    refuse(kPage, "num_layers and num_heads must give at most 2^20 heads, but they are ", part.num_layers, " and ",
           part.num_heads);
  check_sequence("queries", part.queries);
  check_sequence("keys", part.keys);
  if (part.is_causal && !attends_to_itself()) refuse(kPage, "is_causal is for queries that attend to themselves");
  if (part_.num_kv_heads == 0) part_.num_kv_heads = part.num_heads;
  if (part_.queries.ids.empty()) {
    std::map<std::string, std::int64_t> first;
    for (const std::string& token : part.queries.tokens) {
      const std::int64_t id = std::ssize(part_.queries.ids);
      part_.queries.ids.push_back(token.empty() ? id : first.emplace(token, id).first->second);
    }
  }
  thumbnail_rows_ = std::min<std::int64_t>(std::ssize(part_.queries.tokens), kThumbnail);
  thumbnail_columns_ = std::min<std::int64_t>(std::ssize(keys().tokens), kThumbnail);
  heads_.resize(static_cast<std::size_t>(part.num_layers * part.num_heads));
  shape_of_details_.resize(heads_.size());
}

std::optional<StoredHead>& StoredPart::place_of(std::int64_t layer, std::int64_t head) {
  if (layer < 0 || layer >= part_.num_layers || head < 0 || head >= part_.num_heads)
    refuse(kPage, "layer and head must be below ", part_.num_layers, " and ", part_.num_heads, ", but they are ",
           layer, " and ", head);
  std::optional<StoredHead>& place = heads_[static_cast<std::size_t>(layer * part_.num_heads + head)];
  if (place) refuse(kPage, "layer ", layer, ", head ", head, " was added before");
  return place;
}

std::string StoredPart::details_of(const HeadDetails& details) const {
  const std::int64_t rows = std::ssize(part_.queries.tokens), columns = std::ssize(keys().tokens);
  if (details.q.rank != 2) refuse(kPage, "details.q must have rank 2, but it has rank ", details.q.rank);
  const std::int64_t dim = details.q.shape[1];
  const auto check = [&](const char* name, const TensorView& view, std::initializer_list<std::int64_t> shape) {
    check_dtype(kPage, name, view, DType::f32);
    check_shape(kPage, name, view, shape);
    check_memory(kPage, name, view);
  };
  check("details.q", details.q, {rows, dim});
  check("details.k", details.k, {columns, dim});
  check("details.lse", details.lse, {rows});
  std::vector<std::uint8_t> bytes;
  append_scaled(bytes, details.q);
  append_scaled(bytes, details.k);
  append_scaled(bytes, details.lse);
  if (details.bias.rank != 0) {
    check("details.bias", details.bias, {rows, columns});
    append_scaled(bytes, details.bias);
  }
  return deflated(bytes);
}

HeadStatistics StoredPart::add(std::int64_t layer, std::int64_t head, const TensorView& weights,
                               const HeadDetails& details) {
  const std::int64_t rows = std::ssize(part_.queries.tokens), columns = std::ssize(keys().tokens);
  check_dtype(kPage, "weights", weights, DType::f32);
  check_shape(kPage, "weights", weights, {rows, columns});
  check_memory(kPage, "weights", weights);
  std::optional<StoredHead>& place = place_of(layer, head);
  if (pooled_) refuse(kPage, "other heads of this part are pooled");
  StoredHead stored{.is_chosen = details.is_chosen};
  const Tensor contiguous = weights.strides[1] == 1 ? Tensor() : Tensor::copy_of(weights);
  const TensorView all = weights.strides[1] == 1 ? weights : contiguous.view();
  if (details.value_norms.rank != 0) {
    check_dtype(kPage, "details.value_norms", details.value_norms, DType::f32);
    check_shape(kPage, "details.value_norms", details.value_norms, {columns});
    stored.norms = codes_of_norms(details.value_norms);
  }
  if (details.q.rank != 0 || details.k.rank != 0) {
    stored.details = details_of(details);
    shape_of_details_[static_cast<std::size_t>(layer * part_.num_heads + head)] = {
        {"dim", details.q.shape[1]},
        {"scale", details.scale},
        {"softcap", details.softcap},
        {"bias", details.bias.rank != 0}};
  }
  stored.statistics =
      head_statistics(all, attends_to_itself() ? std::span(part_.queries.ids) : std::span<const std::int64_t>());
  stored.thumbnail = thumbnail_of(all, thumbnail_rows_, thumbnail_columns_);
  stored.weights = coded(all, part_.is_causal);
  stored.interest = interest_of(stored.statistics, columns);
  place = std::move(stored);
  return place->statistics;
}

void StoredPart::add_pooled(std::int64_t layer, std::int64_t head, const PooledHead& pooled) {
  const std::int64_t rows = std::ssize(part_.queries.tokens), columns = std::ssize(keys().tokens);
  const auto check_matrix = [&](const char* name, const TensorView& view, DType dtype) {
    check_dtype(kPage, name, view, dtype);
    if (view.rank != 2) refuse(kPage, name, " must have rank 2, but it has rank ", view.rank);
    check_memory(kPage, name, view);
  };
  check_matrix("pooled", pooled.pooled, DType::f32);
  constexpr std::int64_t kMostCells = 1 << 13;  // of a side: more than any screen shows
  if (pooled.pooled.shape[0] > kMostCells || pooled.pooled.shape[1] > kMostCells)
    refuse(kPage, "pooled must have at most ", kMostCells, " rows and columns, but it has shape ",
           to_string(pooled.pooled.dims()));
  check_matrix("top_keys", pooled.top_keys, DType::i64);
  const std::int64_t most = pooled.top_keys.shape[1];
  check_shape(kPage, "top_keys", pooled.top_keys, {rows, most});
  check_dtype(kPage, "top_weights", pooled.top_weights, DType::f32);
  check_shape(kPage, "top_weights", pooled.top_weights, {rows, most});
  check_memory(kPage, "top_weights", pooled.top_weights);
  const Json shape{{"rows", pooled.pooled.shape[0]}, {"columns", pooled.pooled.shape[1]}, {"top", most}};
  std::optional<StoredHead>& place = place_of(layer, head);
  if (pooled_ ? *pooled_ != shape
              : std::ranges::any_of(heads_, [](const auto& other) { return other.has_value(); }))
    refuse(kPage, "all heads of a part must be pooled to maps of the same shape");
  if (!maps_.empty()) refuse(kPage, "this part has maps over all heads, so its heads cannot be pooled");
  const auto index = static_cast<std::size_t>(layer * part_.num_heads + head);
  for (const PageTile& tile : pooled.tiles) {
    check_matrix("tile", tile.weights, DType::f32);
    if (tile.first_query < 0 || tile.first_key < 0 || tile.weights.shape[0] > rows - tile.first_query ||
        tile.weights.shape[1] > columns - tile.first_key)
      refuse(kPage, "a tile of shape ", to_string(tile.weights.dims()), " at ", tile.first_query, ", ",
             tile.first_key, " is not within ", rows, " queries and ", columns, " keys");
  }
  for (const PageTile& tile : pooled.tiles)
    tiles_.push_back({index, tile.first_query, tile.first_key, tile.weights.shape[0], tile.weights.shape[1],
                      coded(tile.weights, false)});
  pooled_ = shape;
  place = StoredHead{.statistics = pooled.statistics,
                     .thumbnail = thumbnail_of(pooled.pooled, std::min(thumbnail_rows_, pooled.pooled.shape[0]),
                                               std::min(thumbnail_columns_, pooled.pooled.shape[1])),
                     .weights = coded(pooled.pooled, false),
                     .top = coded_top(pooled.top_keys, pooled.top_weights),
                     .interest = interest_of(pooled.statistics, columns)};
}

void StoredPart::add_map(const std::string& name, const TensorView& weights) {
  if (pooled_) refuse(kPage, "the heads of this part are pooled, so it has no map over all heads");
  check_dtype(kPage, "weights", weights, DType::f32);
  check_shape(kPage, "weights", weights, {std::ssize(part_.queries.tokens), std::ssize(keys().tokens)});
  check_memory(kPage, "weights", weights);
  maps_.emplace_back(name, coded(weights, part_.is_causal));
}

void StoredPart::complete() {
  if (pooled_) {
    const double none = std::nan("");
    const auto with = std::ranges::find_if(heads_, [](const auto& head) { return head.has_value(); });
    const StoredHead blank{.statistics = {none, none, none, none, none, none},
                           .thumbnail = std::vector<std::uint8_t>((*with)->thumbnail.size()),
                           .interest = -1.0};
    for (std::optional<StoredHead>& head : heads_)
      if (!head) head = blank;
  }
  for (std::size_t i = 0; i < heads_.size(); ++i)
    if (!heads_[i])
      refuse(kPage, "part ", number_, ", layer ", static_cast<std::int64_t>(i) / part_.num_heads, ", head ",
             static_cast<std::int64_t>(i) % part_.num_heads, " is missing");
  const auto has_norms = [](const std::optional<StoredHead>& head) { return !head->norms.empty(); };
  if (std::ranges::any_of(heads_, has_norms) && !std::ranges::all_of(heads_, has_norms))
    refuse(kPage, "value_norms were given for some heads of part ", number_, " only");
}

std::string StoredPart::name_of(const char* kind, std::size_t index) const {
  return std::string(kind) + "-" + std::to_string(number_) + "-" + std::to_string(index);
}

std::vector<Element> StoredPart::fixed() const {
  std::vector<std::uint8_t> thumbnails, norms;
  for (const std::optional<StoredHead>& head : heads_) {
    thumbnails.insert(thumbnails.end(), head->thumbnail.begin(), head->thumbnail.end());
    norms.insert(norms.end(), head->norms.begin(), head->norms.end());
  }
  std::vector<Element> result{{name_of("thumbnails", 0), deflated(thumbnails)}};
  if (!norms.empty()) result.push_back({name_of("norms", 0), deflated(norms)});
  for (std::size_t i = 0; i < maps_.size(); ++i) result.push_back({name_of("map", i), maps_[i].second});
  for (std::size_t i = 0; i < tiles_.size(); ++i) result.push_back({name_of("tile", i), tiles_[i].weights});
  return result;
}

std::vector<Element> StoredPart::elements_of(std::size_t head) const {
  std::vector<Element> result{{name_of("head", head), heads_[head]->weights}};
  if (pooled_) result.push_back({name_of("top", head), heads_[head]->top});
  return result;
}

Json StoredPart::index(const std::vector<std::size_t>& kept, const std::vector<std::size_t>& detailed) const {
  Json statistics = Json::array(), details = Json::object(), maps = Json::array(), tiles = Json::array();
  for (const std::optional<StoredHead>& head : heads_) {
    const HeadStatistics& s = head->statistics;
    statistics.push_back({number(s.previous), number(s.first), number(s.self), number(s.induction),
                          number(s.entropy), number(s.distance)});
  }
  for (const std::size_t head : detailed) details[std::to_string(head)] = shape_of_details_[head];
  for (const auto& [name, weights] : maps_) maps.push_back(name);
  for (const Tile& tile : tiles_)
    tiles.push_back({tile.head, tile.first_query, tile.first_key, tile.rows, tile.keys});
  Json result{{"name", part_.name}, {"queries", json_of(part_.queries)}};
  if (!attends_to_itself()) result["keys"] = json_of(part_.keys);
  const Json shape = pooled_ ? *pooled_ : Json(nullptr);
  const auto side = [&](std::int64_t length, const char* name) {
    return pooled_ ? std::min(length, (*pooled_)[name].get<std::int64_t>()) : length;
  };
  result.update({{"layers", part_.num_layers},
                 {"heads", part_.num_heads},
                 {"kvHeads", part_.num_kv_heads},
                 {"causal", part_.is_causal},
                 {"thumbnail", {side(thumbnail_rows_, "rows"), side(thumbnail_columns_, "columns")}},
                 {"norms", !heads_.front()->norms.empty()},
                 {"kept", kept},
                 {"details", details},
                 {"maps", maps},
                 {"pooled", shape},
                 {"tiles", tiles},
                 {"statistics", statistics}});
  return result;
}

}  // namespace saccade::page
