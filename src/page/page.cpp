#include "saccade/page.h"

#include <algorithm>

#include "core/check.h"
#include "page/assets.h"
#include "page/encode.h"
#include "page/part.h"

namespace saccade {
namespace {

using namespace page;

constexpr std::string_view kPage = "AttentionPage";

/// Escapes text for HTML.
std::string escaped(const std::string& text) {
  std::string result;
  for (const char c : text) {
    if (c == '&')
      result += "&amp;";
    else if (c == '<')
      result += "&lt;";
    else if (c == '"')
      result += "&quot;";
    else
      result += c;
  }
  return result;
}

std::string html_of(const Element& element) {
  return "<script type=\"text/plain\" id=\"" + element.name + "\">" + base64(element.deflated) + "</script>\n";
}

std::span<const std::uint8_t> bytes_of(const std::string& text) {
  return {reinterpret_cast<const std::uint8_t*>(text.data()), text.size()};
}

std::size_t size_of(const std::vector<Element>& elements) {
  std::size_t sum = 0;
  for (const Element& element : elements) sum += element.size();
  return sum;
}

/// A head of one of the parts.
struct Place {
  std::size_t part, head;
};

/// The heads whose weights, and those whose arithmetic, a file contains, by part.
struct Selection {
  explicit Selection(std::size_t parts) : kept(parts), detailed(parts) {}

  std::vector<std::vector<std::size_t>> kept, detailed;
};

}  // namespace

struct AttentionPage::State {
  PageOptions options;
  std::vector<StoredPart> parts;

  StoredPart& part(std::int64_t number) {
    if (number < 0 || number >= std::ssize(parts))
      refuse(kPage, "part must be below ", parts.size(), ", but it is ", number);
    return parts[static_cast<std::size_t>(number)];
  }
  const StoredHead& head(const Place& place) const { return *parts[place.part].heads()[place.head]; }

  /// All heads, with chosen and most informative ones first.
  std::vector<Place> ranked() const {
    std::vector<Place> order;
    for (std::size_t part = 0; part < parts.size(); ++part)
      for (std::size_t i = 0; i < parts[part].heads().size(); ++i) order.push_back({part, i});
    std::ranges::stable_sort(order, std::greater(), [&](const Place& place) {
      return std::pair(head(place).is_chosen, head(place).interest);
    });
    return order;
  }

  /// The heads that fit into this many bytes.
  Selection selected(std::size_t room) const {
    Selection result(parts.size());
    const std::vector<Place> order = ranked();
    std::size_t details = std::min(room, options.max_details_size);
    for (const Place& place : order) {
      const StoredHead& stored = head(place);
      const std::size_t size = Element{"detail-00-0000", stored.details}.size();
      if (stored.details.empty() || size > (stored.is_chosen ? room : details)) continue;
      details -= std::min(size, details), room -= size;
      result.detailed[place.part].push_back(place.head);
    }
    for (const Place& place : order) {
      const std::size_t size = size_of(parts[place.part].elements_of(place.head));
      if (head(place).weights.empty()) continue;  // left out
      if (size > room) break;
      room -= size;
      result.kept[place.part].push_back(place.head);
    }
    return result;
  }

  Element index(const Selection& selection) const {
    Json list = Json::array();
    for (std::size_t i = 0; i < parts.size(); ++i)
      list.push_back(parts[i].index(selection.kept[i], selection.detailed[i]));
    const Json index{{"title", options.title}, {"sequence", options.is_sequence}, {"parts", list}};
    return {"index", deflated(bytes_of(index.dump(-1, ' ', false, Json::error_handler_t::replace)))};
  }
};

AttentionPage::AttentionPage(const PageOptions& options) : state_(std::make_unique<State>()) {
  state_->options = options;
}
AttentionPage::~AttentionPage() = default;
AttentionPage::AttentionPage(AttentionPage&&) noexcept = default;
AttentionPage& AttentionPage::operator=(AttentionPage&&) noexcept = default;

std::int64_t AttentionPage::add_part(const PagePart& part) {
  state_->parts.emplace_back(part, state_->parts.size());
  return std::ssize(state_->parts) - 1;
}

HeadStatistics AttentionPage::add(std::int64_t part, std::int64_t layer, std::int64_t head,
                                  const TensorView& weights, const HeadDetails& details) {
  return state_->part(part).add(layer, head, weights, details);
}

void AttentionPage::add_pooled(std::int64_t part, std::int64_t layer, std::int64_t head,
                               const PooledHead& pooled) {
  state_->part(part).add_pooled(layer, head, pooled);
}

void AttentionPage::add_map(std::int64_t part, const std::string& name, const TensorView& weights) {
  state_->part(part).add_map(name, weights);
}

std::string AttentionPage::html() const { return html(state_->options.max_size); }

std::string AttentionPage::html(std::size_t max_size) const {
  const State& state = *state_;
  if (state.parts.empty()) refuse(kPage, "there are no parts");
  std::string fixed;
  for (StoredPart& part : state_->parts) {
    part.complete();
    for (const Element& element : part.fixed()) fixed += html_of(element);
  }
  // The index names the heads that are kept, so it is a little longer with more of them.
  Selection all(state.parts.size());
  for (std::size_t i = 0; i < state.parts.size(); ++i)
    for (std::size_t head = 0; head < state.parts[i].heads().size(); ++head) all.kept[i].push_back(head);
  const std::size_t without_heads = kPageStyle.size() + kPageScript.size() + kPageBody.size() + fixed.size() +
                                    state.index(all).size() + 64 * 256 +
                                    6 * (2 * state.options.title.size() + state.options.subtitle.size());
  const Selection selection = state.selected(max_size - std::min(without_heads, max_size));

  std::string html = "<!DOCTYPE html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n";
  html +=
      "<meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; script-src 'unsafe-inline'; "
      "style-src 'unsafe-inline'; img-src data: blob:\">\n";
  html += "<meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n";
  html += "<title>" + escaped(state.options.title) + "</title>\n<style>\n";
  html += kPageStyle;
  html += "</style>\n</head>\n<body>\n<header><h1>" + escaped(state.options.title) + "</h1><p id=\"subtitle\">" +
          escaped(state.options.subtitle) + "</p></header>\n";
  html += kPageBody;
  html += html_of(state.index(selection)) + fixed;
  html += "<script>\n";
  html += kPageScript;
  html += "</script>\n";
  for (std::size_t i = 0; i < state.parts.size(); ++i) {
    const StoredPart& part = state.parts[i];
    for (const std::size_t head : selection.detailed[i])
      html += html_of({part.name_of("detail", head), part.heads()[head]->details});
    for (const std::size_t head : selection.kept[i])
      for (const Element& element : part.elements_of(head)) html += html_of(element);
  }
  html += "</body>\n</html>\n";
  return html;
}

}  // namespace saccade
