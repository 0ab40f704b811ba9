// What a page has collected, and which of its heads fit into a file.
#pragma once

#include <optional>
#include <vector>

#include "page/live.h"
#include "page/part.h"
#include "saccade/page.h"

namespace saccade {
namespace page {

/// A head of one of the parts.
struct Place {
  std::size_t part, head;
};

/// The heads whose weights, and those whose arithmetic, a file contains, by part.
struct Selection {
  explicit Selection(std::size_t parts) : kept(parts), detailed(parts) {}

  std::vector<std::vector<std::size_t>> kept, detailed;
};

}  // namespace page

struct AttentionPage::State {
  PageOptions options;
  std::vector<page::StoredPart> parts;
  std::optional<page::LiveModel> model{};

  page::StoredPart& part(std::int64_t number);
  const page::StoredHead& head(const page::Place& place) const { return *parts[place.part].heads()[place.head]; }

  /// All heads, with chosen and most informative ones first.
  std::vector<page::Place> ranked() const;
  /// The heads that fit into this many bytes.
  page::Selection selected(std::size_t room) const;
  page::Element index(const page::Selection& selection) const;
};

}  // namespace saccade
