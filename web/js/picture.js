// Pictures of weights.

/// Names and values as the functions of web/glue take them: texts that end with 0. Values of a list repeat its name.
function fields(call, values) {
  const texts = [];
  for (const [name, value] of Object.entries(values)) {
    if (value === undefined || value === null) continue;
    for (const one of Array.isArray(value) ? value : [value])
      texts.push(snakeCase(name), typeof one === "boolean" ? String(Number(one)) : String(one).replaceAll("\0", "\ufffd"));
  }
  const bytes = new TextEncoder().encode(texts.map((text) => `${text}\0`).join(""));
  return [call.copy(bytes), bytes.length];
}

function picture(draw, weights, options) {
  return Call.run((call) => {
    check(draw(call.input(weights), ...fields(call, options)));
    return textAt(library.web_text());
  });
}

/// A heat map as an SVG document.
function heatmapSvg(weights, options = {}) {
  return picture(library.web_heatmap_svg, weights, options);
}

/// Tokens joined by lines, as an SVG document.
function attentionLinesSvg(weights, options = {}) {
  return picture(library.web_attention_lines_svg, weights, options);
}
