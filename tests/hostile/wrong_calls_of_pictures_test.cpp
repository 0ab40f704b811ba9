// Wrong calls of heat maps, charts and pages.
#include "hostile/wrong_calls.h"
#include "saccade/chart.h"
#include "saccade/heatmap.h"
#include "saccade/page.h"

namespace saccade::test {
namespace {

std::vector<std::string> labels_of(Arguments& a, std::string_view name, std::size_t count) {
  std::vector<std::string> labels(count, "token");
  if (a.is_wrong(name)) labels[a.below(count)] = a.text(name, "a\x1b[31m<b>");
  if (a.is_wrong(name)) labels.resize(a.below(count));
  return labels;
}

/// Weights from 0 to 1.
Tensor weights_of(const Shape& shape) {
  Tensor weights = random_tensor(shape, 1);
  for (float& weight : weights.values<float>()) weight = std::min(std::abs(weight), 1.0F);
  return weights;
}

HeatmapOptions picture_of(Arguments& a) {
  const auto is_given = [&] { return a.below(4) == 0; };
  HeatmapOptions options;
  for (const char* name : {"queries", "keys", "matrix", "scale", "heads"}) a.name(name);
  if (is_given()) options.query_tokens = labels_of(a, "query_tokens", 4);
  if (is_given()) options.key_tokens = labels_of(a, "key_tokens", 5);
  if (is_given()) options.title = a.text("title", "a title");
  if (is_given()) options.caption = a.text("caption", "a caption");
  if (is_given()) options.panel_titles = labels_of(a, "panel_titles", 2);
  if (is_given()) options.query_axis = a.text("query_axis", "rows");
  if (is_given()) options.queries = a.number("queries", 40), options.keys = a.number("keys", 50);
  if (is_given()) options.low = a.real("low", 0.1);
  if (is_given()) options.high = a.real("high", 0.9);
  if (is_given()) options.scale = a.choice("scale", {ColorScale::automatic, ColorScale::linear});
  if (is_given()) options.decimals = a.small_number("decimals", 2);
  return options;
}

void call_pictures(Arguments& a) {
  const HeatmapOptions options = picture_of(a);
  const TensorView weights = a.view_of("weights", weights_of({2, 4, 5}));
  heatmap_svg(weights, options);
  attention_lines_svg(weights, options);
  heatmap_terminal(weights, options, a.choice("color", {TerminalColor::none, TerminalColor::ansi256}),
                   a.small_number("width", 80));
}

[[maybe_unused]] void call_png(Arguments& a) {
  a.name("PNG");
  a.name("picture");
  a.name("SVG");
  const std::string svg = "<svg xmlns='http://www.w3.org/2000/svg' width='9' height='9'></svg>";
  const std::vector<std::byte> png = png_of_svg(a.text("svg", svg), a.real("zoom", 1.0));
  const std::string bytes(reinterpret_cast<const char*>(png.data()), png.size());
  const std::string changed = a.text("png", bytes);
  pixels_of_png(std::as_bytes(std::span(changed)));
}

void call_chart(Arguments& a) {
  ChartSeries line{.name = a.text("name", "loss"), .x = {0, 1, 2, 3}, .y = {1, 2, 1, 3}};
  if (a.is_wrong("x")) line.x[a.below(4)] = a.real("x", -1.0);
  if (a.is_wrong("y")) line.y[a.below(4)] = a.real("y", -1.0);
  if (a.is_wrong("y")) line.y.pop_back();
  const std::vector<ChartSeries> series(a.is_wrong("series") ? 13 : 2, line);
  ChartOptions options{
      .title = a.text("title", "a title"), .x_label = a.text("x_label", "step"), .log_y = a.below(2) == 0};
  if (a.below(2) == 0) options.width = a.small_number("width", 400);
  if (a.below(2) == 0) options.height = a.small_number("height", 300);
  chart_svg(series, options);
}

// ---- Pages ---------------------------------------------------------------------------------------------------

PagePart part_of(Arguments& a) {
  PagePart part{.name = a.text("name", "a part"),
                .num_layers = a.number("num_layers", 1),
                .num_heads = a.number("num_heads", 2)};
  part.queries.tokens = labels_of(a, "tokens", 4);
  if (a.below(3) == 0) part.queries.gaps = labels_of(a, "gaps", 4);
  if (a.below(3) == 0) part.queries.ids = a.numbers("ids", {1, 2, 1, 2});
  if (a.below(3) == 0) part.queries.words = a.numbers("words", {0, 0, 1, 2});
  if (a.below(3) == 0) part.queries.special.assign(a.is_wrong("special") ? 3 : 4, false);
  if (a.below(3) == 0) part.num_kv_heads = a.number("num_kv_heads", 1);
  if (a.below(8) == 0) part.queries.seconds = a.real("seconds", 0.02);
  if (a.below(8) == 0)
    part.queries.image = {.png = a.text("image", "\x89PNG"),
                          .rows = a.number("image", 1),
                          .columns = a.number("image", 3),
                          .first = a.number("image", 1)};
  if (a.below(8) == 0 && a.is_wrong("tokens")) part.queries.tokens.clear();
  part.is_causal = a.below(2) == 0;
  return part;
}

PageOptions options_of_page(Arguments& a) {
  PageOptions options{.title = a.text("title", "a title"), .subtitle = a.text("subtitle", "below it")};
  if (a.below(3) == 0) options.max_size = static_cast<std::size_t>(a.number("max_size", 100'000));
  if (a.below(3) == 0) options.max_details_size = static_cast<std::size_t>(a.number("max_details_size", 1000));
  options.is_sequence = a.below(3) == 0;
  return options;
}

HeadDetails details_of(Arguments& a) {
  HeadDetails details;
  if (a.below(2) == 0) {
    details.q = a.tensor("q", {4, 8});
    details.k = a.tensor("k", {4, 8});
    details.lse = a.tensor("lse", {4});
    details.scale = a.real("scale", 0.5);
    details.softcap = a.real("softcap", 0.0);
  }
  if (a.below(4) == 0) details.bias = a.tensor("bias", {4, 4});
  details.is_chosen = a.below(2) == 0;
  return details;
}

void call_page(Arguments& a) {
  AttentionPage page(options_of_page(a));
  page.add_part(part_of(a));
  for (const std::int64_t head : {0, 1})
    page.add(a.number("part", 0), a.number("layer", 0), a.number("head", head),
             a.view_of("weights", weights_of({4, 4})), details_of(a));
  if (a.below(2) == 0)
    page.add_map(a.number("part", 0), a.text("name", "a map"), a.view_of("weights", weights_of({4, 4})));
  AttentionPage moved = std::move(page);
  moved.html();
  moved.html(static_cast<std::size_t>(a.number("max_size", 100'000)));
}

void call_pooled(Arguments& a) {
  a.name("tile");
  AttentionPage page({.title = "pooled"});
  PagePart part{.num_layers = 1, .num_heads = 1};
  part.queries.tokens = labels_of(a, "tokens", 4);
  page.add_part(part);
  PooledHead head;
  head.pooled = a.view_of("pooled", weights_of({2, 2}));
  head.top_keys = a.view_of("top_keys", Tensor::of<std::int64_t>({{0, 1}, {1, -1}, {2, 3}, {3, 0}}));
  head.top_weights = a.view_of("top_weights", weights_of({4, 2}));
  if (a.below(2) == 0)
    head.tiles.push_back({a.number("tiles", 1), a.number("tiles", 0), a.view_of("tiles", weights_of({2, 3}))});
  page.add_pooled(a.number("part", 0), a.number("layer", 0), a.number("head", 0), head);
  page.html();
}

void call_model(Arguments& a) {
  AttentionPage page({.title = "with a model"});
  PageModel model;
  model.files = {{a.text("files", "model.safetensors"), a.text("files", "weights")}};
  if (a.below(4) == 0 && a.is_wrong("files")) model.files.clear();
  model.num_heads = a.number("num_heads", 2);
  model.vocab_size = a.number("vocab_size", 256);
  model.max_length = a.number("max_length", 8);
  model.tokens = a.choice("tokens", {PageTokens::numbers, PageTokens::bytes});
  if (a.is_wrong("word_pieces"))
    model.tokens = PageTokens::word_pieces, model.word_pieces = a.text("word_pieces", "{}");
  model.text = a.text("text", "1 2 3");
  model.weight_type = a.text("weight_type", "f16");
  model.weight_error = a.real("weight_error", 0.0);
  page.set_model(model);
}

std::vector<Caller> picture_callers() {
  return {
      {{"heatmap_svg(weights)", "attention_lines_svg(weights)", "heatmap_terminal(weights, color, width)"},
       call_pictures},
      {{"terminal_color(is_terminal, no_color, colorterm, term)"},
       [](Arguments& a) {
         const std::string text = a.text("text", "xterm-256color");
         terminal_color(true, nullptr, text.c_str(), a.below(2) == 0 ? nullptr : text.c_str());
         display_width(text);
       }},
      {{"display_width(utf8)"}, [](Arguments& a) { display_width(a.text("utf8", "\xe6\xb0\xb4")); }},
#ifdef SACCADE_HAS_PNG
      {{"png_of_svg(svg, zoom)", "pixels_of_png(png)"}, call_png},
#else
      {{"png_of_svg(svg, zoom)", "pixels_of_png(png)"},
       [](Arguments&) { EXPECT_THROW(png_of_svg("<svg/>"), std::runtime_error); }},
#endif
      {{"chart_svg(series)"}, call_chart},
      {{"AttentionPage::AttentionPage()", "AttentionPage::add_part(part)",
        "AttentionPage::add(part, layer, head, weights, details)", "AttentionPage::add_map(part, name, weights)",
        "AttentionPage::html(max_size)"},
       call_page},
      {{"AttentionPage::add_pooled(part, layer, head, pooled)", "AttentionPage::html(max_size)",
        "AttentionPage::add_part(part)"},
       call_pooled},
      {{"AttentionPage::set_model(model)"}, call_model},
  };
}

TEST(WrongCallsOfPictures, AreRefusedInTheHousesForm) { make_wrong_calls(picture_callers(), 2000); }

TEST(WrongCallsOfPictures, CoverEveryFunction) {
  expect_all_called({"chart.h", "heatmap.h", "page.h"}, picture_callers(), {});
}

}  // namespace
}  // namespace saccade::test
