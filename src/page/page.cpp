#include "saccade/page.h"

#include <algorithm>

#include "core/check.h"
#include "page/assets.h"
#include "page/encode.h"
#include "page/part.h"
#include "page/state.h"

namespace saccade {
namespace {

using namespace page;

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

/// The text, with U+FFFD for what is not UTF-8: the name of a model's folder may be any bytes.
std::string utf8(const std::string& text) {
  return Json::parse(Json(text).dump(-1, ' ', false, Json::error_handler_t::replace)).get<std::string>();
}

std::string html_of(const Element& element) {
  return "<script type=\"text/plain\" id=\"" + element.name + "\">" + base64(element.deflated) + "</script>\n";
}

}  // namespace

AttentionPage::AttentionPage(const PageOptions& options) : state_(std::make_unique<State>()) {
  state_->options = options;
  state_->options.title = utf8(options.title);
  state_->options.subtitle = utf8(options.subtitle);
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
  html += "<meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; script-src 'unsafe-inline'" +
          std::string(state.model ? " 'wasm-unsafe-eval'" : "") +
          "; style-src 'unsafe-inline'; img-src data: blob:\">\n";
  html += "<meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n";
  html += "<title>" + escaped(state.options.title) + "</title>\n<style>\n";
  html += kPageStyle;
  if (state.model) html += state.model->style;
  html += "</style>\n</head>\n<body>\n<header><h1>" + escaped(state.options.title) + "</h1><p id=\"subtitle\">" +
          escaped(state.options.subtitle) + "</p></header>\n";
  html += kPageBody;
  html += html_of(state.index(selection)) + fixed;
  if (state.model) {
    for (const Element& file : state.model->files) html += html_of(file);
    html += "<script>\n" + std::string(state.model->library) + "</script>\n";
  }
  html += "<script>\n";
  html += kPageScript;
  if (state.model) html += state.model->script;
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
