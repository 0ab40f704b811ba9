// Pages of a model's heads, from its folder.
#include "saccade/look.h"

#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>
#include <nanobind/stl/array.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include <array>
#include <optional>
#include <string>
#include <vector>

#include "bind.h"

namespace saccade::python {
namespace {

namespace nb = nanobind;

using Pixels = nb::ndarray<const std::uint8_t, nb::shape<-1, -1, 3>, nb::c_contig, nb::device::cpu>;
using Samples = nb::ndarray<const float, nb::shape<-1>, nb::c_contig, nb::device::cpu>;
using Text = std::optional<std::string>;

AttentionPage look_at(const nb::bytes& model, const Text& text, const Text& pair, const Text& target,
                      const std::optional<Pixels>& rgb, const nb::bytes& png, const std::optional<Samples>& sound,
                      const std::optional<nb::bytes>& other_model, const Text& other_text,
                      const std::string& title, std::size_t max_size,
                      const std::vector<std::array<std::int64_t, 2>>& details,
                      const std::vector<std::array<std::int64_t, 6>>& tiles, bool gradient, int num_threads) {
  LookInput input{.text = text, .pair = pair, .png = std::string(png.c_str(), png.size()), .target = target};
  if (rgb)
    input.rgb = TensorView(rgb->data(), {static_cast<std::int64_t>(rgb->shape(0)),
                                         static_cast<std::int64_t>(rgb->shape(1)), std::int64_t{3}});
  if (sound) input.sound.assign(sound->data(), sound->data() + sound->shape(0));
  LookOptions options{
      .page = {.title = title, .max_size = max_size}, .gradient = gradient, .num_threads = num_threads};
  for (const auto& [layer, head] : details) options.details.push_back({layer, head});
  for (const auto& [layer, head, first_query, last_query, first_key, last_key] : tiles)
    options.tiles.push_back({{layer, head}, first_query, last_query, first_key, last_key});

  const std::string folder(model.c_str(), model.size());
  std::optional<std::string> other_folder;
  if (other_model) other_folder.emplace(other_model->c_str(), other_model->size());

  const nb::gil_scoped_release unlocked;
  const PretrainedModel first = PretrainedModel::load(folder);
  std::optional<PretrainedModel> second;
  if (other_folder) second = PretrainedModel::load(*other_folder);
  std::vector<LookReading> readings{{.pretrained = &first, .input = input}};
  if (other_model || other_text) {
    readings.push_back({.pretrained = second ? &*second : &first, .input = input});
    if (other_text) readings.back().input.text = other_text;
  }
  return look(readings, options);
}

}  // namespace

void bind_look(nb::module_& module) {
  using namespace nb::literals;
  module.def("look", &look_at, "model"_a, "text"_a.none(), "pair"_a.none(), "target"_a.none(), "rgb"_a.none(),
             "png"_a, "sound"_a.none(), "other_model"_a.none(), "other_text"_a.none(), "title"_a, "max_size"_a,
             "details"_a, "tiles"_a, "gradient"_a, "num_threads"_a);
}

}  // namespace saccade::python
