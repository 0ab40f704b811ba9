// Heat maps for JavaScript.
#include "glue.h"
#include "saccade/heatmap.h"

using namespace saccade;
using namespace saccade::web;

namespace {

ColorScale scale_named(std::string_view function, const std::string& name) {
  if (name == "automatic") return ColorScale::automatic;
  if (name == "linear") return ColorScale::linear;
  if (name == "logarithmic") return ColorScale::logarithmic;
  refuse(function, "scale must be automatic, linear or logarithmic, but it is '", name, "'");
}

HeatmapOptions options_of(std::string_view function, const char* texts, std::size_t bytes) {
  Fields fields(function, texts, bytes);
  HeatmapOptions options;
  fields.take("query_tokens", options.query_tokens), fields.take("key_tokens", options.key_tokens);
  fields.take("title", options.title), fields.take("caption", options.caption);
  fields.take("panel_titles", options.panel_titles);
  fields.take("query_axis", options.query_axis), fields.take("key_axis", options.key_axis);
  fields.take("value_name", options.value_name);
  fields.take("queries", options.queries), fields.take("keys", options.keys);
  fields.take("low", options.low), fields.take("high", options.high);
  std::string scale = "automatic";
  fields.take("scale", scale), options.scale = scale_named(function, scale);
  fields.take("show_values", options.show_values);
  if (std::int64_t decimals = 0; fields.has("decimals"))
    fields.take("decimals", decimals), options.decimals = static_cast<int>(decimals);
  fields.check_all_taken();
  return options;
}

using Draw = std::string (*)(const TensorView&, const HeatmapOptions&);

saccade_status draw(std::string_view function, Draw picture, const saccade_tensor* weights, const char* texts,
                    std::size_t bytes) {
  return c_api::guarded([&] {
    give_text(picture(c_api::view_of(function, "weights", weights), options_of(function, texts, bytes)));
  });
}

}  // namespace

SACCADE_WEB_API(web_heatmap_svg)
saccade_status web_heatmap_svg(const saccade_tensor* weights, const char* texts, std::size_t bytes) {
  return draw("heatmapSvg", heatmap_svg, weights, texts, bytes);
}
SACCADE_WEB_API(web_attention_lines_svg)
saccade_status web_attention_lines_svg(const saccade_tensor* weights, const char* texts, std::size_t bytes) {
  return draw("attentionLinesSvg", attention_lines_svg, weights, texts, bytes);
}
