// A part of a page: its stored heads, and their entries in the index.
#pragma once

#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "saccade/page.h"

namespace saccade::page {

using Json = nlohmann::ordered_json;

constexpr std::string_view kPage = "AttentionPage";  // in messages

/// A piece of data that a script of the page unpacks by its name.
struct Element {
  std::string name, deflated;

  /// Its length in the file.
  std::size_t size() const { return (deflated.size() + 2) / 3 * 4 + name.size() + 48; }
};

/// A head as the page stores it.
struct StoredHead {
  HeadStatistics statistics{};
  std::vector<std::uint8_t> thumbnail{}, norms{};
  std::string weights{}, top{}, details{};  // deflated
  bool is_chosen = false;
  double interest = 0.0;
};

class StoredPart {
 public:
  /// Throws std::invalid_argument as add_part() documents.
  StoredPart(const PagePart& part, std::size_t number);

  /// Throws std::invalid_argument as add() and similar functions document.
  HeadStatistics add(std::int64_t layer, std::int64_t head, const TensorView& weights, const HeadDetails& details);
  void add_pooled(std::int64_t layer, std::int64_t head, const PooledHead& pooled);
  void add_map(const std::string& name, const TensorView& weights);

  /// Throws std::invalid_argument if heads are missing. In a part with pooled heads, omitted ones become empty.
  void complete();

  const std::vector<std::optional<StoredHead>>& heads() const { return heads_; }
  /// The data that the file always contains.
  std::vector<Element> fixed() const;
  std::string name_of(const char* kind, std::size_t index) const;
  /// The weights of a head, and their accompanying data.
  std::vector<Element> elements_of(std::size_t head) const;

  /// The part's entry in the index: heads whose weights and details the file contains.
  Json index(const std::vector<std::size_t>& kept, const std::vector<std::size_t>& detailed) const;

 private:
  struct Tile {
    std::size_t head;
    std::int64_t first_query, first_key, rows, keys;
    std::string weights;
  };

  const PageSequence& keys() const { return part_.keys.tokens.empty() ? part_.queries : part_.keys; }
  bool attends_to_itself() const { return part_.keys.tokens.empty(); }
  std::optional<StoredHead>& place_of(std::int64_t layer, std::int64_t head);
  std::string details_of(const HeadDetails& details) const;

  PagePart part_;
  std::size_t number_;
  std::int64_t thumbnail_rows_, thumbnail_columns_;
  std::vector<std::optional<StoredHead>> heads_;
  std::vector<Json> shape_of_details_;  // of each head
  std::vector<std::pair<std::string, std::string>> maps_;
  std::vector<Tile> tiles_;
  std::optional<Json> pooled_;  // of pooled heads: the shape of their maps
};

}  // namespace saccade::page
