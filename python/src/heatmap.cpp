#include "saccade/heatmap.h"

#include <nanobind/stl/optional.h>
#include <nanobind/stl/string.h>

#include <cstdlib>
#include <type_traits>

#include "array.h"
#include "bind.h"

namespace saccade::python {
namespace {

ColorScale scale_named(const std::string& name) {
  if (name == "automatic") return ColorScale::automatic;
  if (name == "linear") return ColorScale::linear;
  if (name == "logarithmic") return ColorScale::logarithmic;
  refuse("scale", "expected 'automatic', 'linear' or 'logarithmic', got '" + name + "'");
}

/// Calls set(value) with the entry of that name, if there is one that is not None.
template <class Value, class Set>
void with(const nb::dict& given, const char* name, Set set) {
  if (!given.contains(name) || given[name].is_none()) return;
  if constexpr (std::is_same_v<Value, std::string>) {
    set(shown_text(given[name], name));
  } else if constexpr (std::is_same_v<Value, std::vector<std::string>>) {
    set(shown_texts(given[name], name));
  } else {
    Value value;
    if (!nb::try_cast(given[name], value)) refuse(name, "cannot be " + shown(given[name]));
    set(value);
  }
}

HeatmapOptions options_from(const nb::dict& given) {
  using Names = std::vector<std::string>;
  HeatmapOptions options;
  with<Names>(given, "tokens", [&](Names v) { options.query_tokens = std::move(v); });
  with<Names>(given, "key_tokens", [&](Names v) { options.key_tokens = std::move(v); });
  with<Names>(given, "panel_titles", [&](Names v) { options.panel_titles = std::move(v); });
  with<std::string>(given, "title", [&](std::string v) { options.title = std::move(v); });
  with<std::string>(given, "caption", [&](std::string v) { options.caption = std::move(v); });
  with<std::string>(given, "query_axis", [&](std::string v) { options.query_axis = std::move(v); });
  with<std::string>(given, "key_axis", [&](std::string v) { options.key_axis = std::move(v); });
  with<std::string>(given, "value_name", [&](std::string v) { options.value_name = std::move(v); });
  with<std::string>(given, "scale", [&](const std::string& v) { options.scale = scale_named(v); });
  with<std::int64_t>(given, "queries", [&](std::int64_t v) { options.queries = v; });
  with<std::int64_t>(given, "keys", [&](std::int64_t v) { options.keys = v; });
  with<double>(given, "low", [&](double v) { options.low = v; });
  with<double>(given, "high", [&](double v) { options.high = v; });
  with<bool>(given, "show_values", [&](bool v) { options.show_values = v; });
  with<int>(given, "decimals", [&](int v) { options.decimals = v; });
  return options;
}

using Draw = std::string (*)(const TensorView&, const HeatmapOptions&);

template <Draw draw>
std::string svg(nb::handle weights, const nb::dict& given) {
  const Array array(weights, "weights");
  const HeatmapOptions options = options_from(given);
  const nb::gil_scoped_release unlocked;
  return draw(array.view(), options);
}

std::string terminal(nb::handle weights, const nb::dict& given, int width, nb::handle color_name) {
  const Array array(weights, "weights");
  const HeatmapOptions options = options_from(given);
  const std::string color = text(color_name, "color");
  const TerminalColor colors = color == "truecolor" ? TerminalColor::truecolor
                               : color == "ansi256" ? TerminalColor::ansi256
                                                    : TerminalColor::none;
  return heatmap_terminal(array.view(), options, colors, width);
}

std::string color_of(bool is_terminal) {
  switch (terminal_color(is_terminal, std::getenv("NO_COLOR"), std::getenv("COLORTERM"), std::getenv("TERM"))) {
    case TerminalColor::truecolor:
      return "truecolor";
    case TerminalColor::ansi256:
      return "ansi256";
    case TerminalColor::none:
      break;
  }
  return "none";
}

}  // namespace

void bind_heatmap(nb::module_& module) {
  using namespace nb::literals;
  module.def("heatmap_svg", &svg<&heatmap_svg>, "weights"_a.none(), "options"_a);
  module.def("attention_lines_svg", &svg<&attention_lines_svg>, "weights"_a.none(), "options"_a);
  module.def("heatmap_terminal", &terminal, "weights"_a.none(), "options"_a, "width"_a, "color"_a);
  module.def("terminal_color", &color_of, "is_terminal"_a);
}

}  // namespace saccade::python
