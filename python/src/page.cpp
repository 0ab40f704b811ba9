// Pages of attention.
#include "saccade/page.h"

#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>
#include <nanobind/stl/string.h>

#include <string>
#include <vector>

#include "array.h"
#include "bind.h"

namespace saccade::python {
namespace {

namespace nb = nanobind;

using Weights = nb::ndarray<const float, nb::c_contig, nb::device::cpu>;

TensorView view_of(const Weights& weights) {
  Shape shape;
  for (std::size_t i = 0; i < weights.ndim(); ++i) shape.push_back(static_cast<std::int64_t>(weights.shape(i)));
  return TensorView(weights.data(), DType::f32, shape);
}

/// (the bytes of a PNG file, rows, columns, first patch)
PageImage image_of(const nb::dict& given) {
  if (!given.contains("image")) return {};
  const auto image = nb::cast<nb::tuple>(given["image"]);
  const auto png = nb::cast<nb::bytes>(image[0]);
  return {.png = std::string(png.c_str(), png.size()),
          .rows = nb::cast<std::int64_t>(image[1]),
          .columns = nb::cast<std::int64_t>(image[2]),
          .first = nb::cast<std::int64_t>(image[3])};
}

PageSequence sequence_of(const nb::dict& given) {
  PageSequence sequence{.tokens = shown_texts(given["tokens"], "tokens"),
                        .gaps = shown_texts(given["gaps"], "gaps")};
  for (const nb::handle word : given["words"]) sequence.words.push_back(integer(word, "words"));
  for (const nb::handle is_special : given["special"]) sequence.special.push_back(boolean(is_special, "special"));
  sequence.image = image_of(given);
  sequence.seconds = nb::cast<double>(given["seconds"]);
  return sequence;
}

std::int64_t add_part(AttentionPage& page, const nb::dict& given) {
  const nb::object keys = given["keys"];
  return page.add_part({.name = shown_text(given["name"], "name"),
                        .queries = sequence_of(nb::cast<nb::dict>(given["queries"])),
                        .keys = keys.is_none() ? PageSequence{} : sequence_of(nb::cast<nb::dict>(keys)),
                        .num_layers = nb::cast<std::int64_t>(given["num_layers"]),
                        .num_heads = nb::cast<std::int64_t>(given["num_heads"]),
                        .num_kv_heads = nb::cast<std::int64_t>(given["num_kv_heads"]),
                        .is_causal = nb::cast<bool>(given["is_causal"])});
}

/// weights: [heads, queries, keys]
void add_layer(AttentionPage& page, std::int64_t part, std::int64_t layer, const Weights& weights) {
  const TensorView heads = view_of(weights);
  const nb::gil_scoped_release unlocked;
  for (std::int64_t head = 0; head < heads.shape[0]; ++head) page.add(part, layer, head, heads.select(0, head));
}

void add_map(AttentionPage& page, std::int64_t part, nb::handle name, const Weights& weights) {
  page.add_map(part, shown_text(name, "name"), view_of(weights));
}

}  // namespace

void bind_page(nb::module_& module) {
  using namespace nb::literals;
  nb::class_<AttentionPage>(module, "AttentionPage")
      .def(
          "__init__",
          [](AttentionPage* self, nb::handle title, nb::handle subtitle, std::size_t max_size, bool is_sequence) {
            new (self) AttentionPage({.title = shown_text(title, "title"),
                                      .subtitle = shown_text(subtitle, "subtitle"),
                                      .max_size = max_size,
                                      .is_sequence = is_sequence});
          },
          "title"_a, "subtitle"_a, "max_size"_a, "is_sequence"_a)
      .def("add_part", &add_part, "part"_a)
      .def("add_layer", &add_layer, "part"_a, "layer"_a, "weights"_a)
      .def("add_map", &add_map, "part"_a, "name"_a, "weights"_a)
      .def("html", nb::overload_cast<>(&AttentionPage::html, nb::const_), nb::call_guard<nb::gil_scoped_release>())
      .def("html", nb::overload_cast<std::size_t>(&AttentionPage::html, nb::const_), "max_size"_a,
           nb::call_guard<nb::gil_scoped_release>());
}

}  // namespace saccade::python
