#include "page/state.h"

#include <algorithm>
#include <functional>

#include "core/check.h"
#include "page/encode.h"

namespace saccade {

using namespace page;

namespace {

std::span<const std::uint8_t> bytes_of(const std::string& text) {
  return {reinterpret_cast<const std::uint8_t*>(text.data()), text.size()};
}

std::size_t size_of(const std::vector<Element>& elements) {
  std::size_t sum = 0;
  for (const Element& element : elements) sum += element.size();
  return sum;
}

}  // namespace

StoredPart& AttentionPage::State::part(std::int64_t number) {
  if (number < 0 || number >= std::ssize(parts))
    refuse(kPage, "part must be below ", parts.size(), ", but it is ", number);
  return parts[static_cast<std::size_t>(number)];
}

std::vector<Place> AttentionPage::State::ranked() const {
  std::vector<Place> order;
  for (std::size_t part = 0; part < parts.size(); ++part)
    for (std::size_t i = 0; i < parts[part].heads().size(); ++i) order.push_back({part, i});
  std::ranges::stable_sort(order, std::greater(), [&](const Place& place) {
    return std::pair(head(place).is_chosen, head(place).interest);
  });
  return order;
}

Selection AttentionPage::State::selected(std::size_t room) const {
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

Element AttentionPage::State::index(const Selection& selection) const {
  Json list = Json::array();
  for (std::size_t i = 0; i < parts.size(); ++i)
    list.push_back(parts[i].index(selection.kept[i], selection.detailed[i]));
  if (list.size() > 1)
    for (Json& part : list)
      if (part["name"].get_ref<const std::string&>().empty()) part["name"] = options.title;
  Json index{{"title", options.title}, {"sequence", options.is_sequence}, {"parts", list}};
  if (model) index["model"] = model->about;
  return {"index", deflated(bytes_of(index.dump(-1, ' ', false, Json::error_handler_t::replace)))};
}

}  // namespace saccade
