// Files of what is seen.
function download(name, blob) {
  const link = make("a", { href: URL.createObjectURL(blob), download: name });
  link.click();
  setTimeout(() => URL.revokeObjectURL(link.href), 1000);
}
async function save(kind) {
  const matrix = await shownMatrix(), name = (state.of === "head" ? nameOf(currentHead()) : state.of) + "." + kind;
  if (kind === "csv" && matrix) {
    const field = (text) => '"' + text.replace(/"/g, '""') + '"', { n, m, isPooled } = matrix;
    const blocks = (length, count) => Array.from({ length: count }, (_, i) => Math.ceil((i * length) / count) + "+");
    const rows = isPooled ? blocks(matrix.rows.length, n) : matrix.rowLabels, columns = isPooled ? blocks(matrix.columns.length, m) : matrix.columnLabels;
    const lines = [["", ...columns.map(field)].join(",")];
    for (let i = 0; i < n; ++i) lines.push([field(rows[i]), ...Array.from(matrix.weights.subarray(i * m, (i + 1) * m), (w) => w.toPrecision(4))].join(","));
    download(name, new Blob([lines.join("\n") + "\n"], { type: "text/csv" }));
  }
  if (kind === "png") pictureToSave(matrix).toBlob((blob) => blob && download(name, blob));
  if (kind === "svg") {
    const drawn = ["lines", "cell"].includes(state.view) ? $("view-" + state.view).querySelector("svg") : null;
    if (drawn || matrix) download(name, new Blob([drawn ? new XMLSerializer().serializeToString(drawn) : svgOfMap(matrix)], { type: "image/svg+xml" }));
  }
}
// The view's picture, or the map of a view that has none, below its sentence and the scale of its colors.
function pictureToSave(matrix) {
  const seen = state.view === "model" ? wholeModel() : $("view-" + state.view).querySelector("canvas") || wholeMap(matrix), ratio = devicePixelRatio || 1;
  const canvas = make("canvas", {}), context = canvas.getContext("2d"), margin = 12, head = 74;
  canvas.width = Math.max(seen.width, 420 * ratio) + 2 * margin * ratio, canvas.height = seen.height + (head + margin) * ratio;
  context.fillStyle = inkOf("--paper");
  context.fillRect(0, 0, canvas.width, canvas.height);
  context.drawImage(seen, margin * ratio, head * ratio);
  context.scale(ratio, ratio);
  context.fillStyle = inkOf("--ink");
  context.font = "600 " + fontOf(15);
  context.fillText($("sentence").textContent, margin, 22, canvas.width / ratio - 2 * margin);
  if (state.view !== "text" || !$("view-text").querySelector("canvas")) drawScale(context, margin);
  return canvas;
}
function drawScale(context, margin) {
  const isSigned = state.b >= 0, from = isSigned ? -1 : 0, width = 240;
  context.font = fontOf(11);
  for (let x = 0; x < width; ++x) {
    context.fillStyle = cssOf(colorOf(shareOf(weightAt(Math.abs(from + ((1 - from) * x) / width))) * (isSigned && x < width / 2 ? -1 : 1), isSigned));
    context.fillRect(margin + x, 36, 1.5, 12);
  }
  context.fillStyle = inkOf("--quiet");
  for (const weight of ticksOf(isSigned)) {
    context.textAlign = weight === 1 ? "right" : Math.abs(weight) === 1 || (weight === 0 && !isSigned) ? "left" : "center";
    context.fillText(textOfTick(weight), margin + ((placeOfTick(weight) - from) / (1 - from)) * width, 61);
  }
  context.textAlign = "left";
  context.fillText(titleOfScale(isSigned), margin + width + 10, 46);
}
function wholeMap(matrix) {
  const canvas = make("canvas", {}), side = 900, context = sized(canvas, side, side);
  if (matrix) drawMatrix(context, matrix, fitted(matrix, frameOf(context, { width: side, height: side }, matrix, 13, 110), part().isSquare));
  return canvas;
}
// The map as rectangles; of a pooled one its blocks.
function svgOfMap(matrix) {
  const { n, m, isPooled, isHidden, isSigned } = matrix, size = 16, left = 124, top = 30, height = top + n * size + 130, width = left + m * size + 20;
  const svg = svgElement("svg", { xmlns: SVG, width, height, "font-family": FONT, "font-size": 11, fill: inkOf("--ink") }), nothing = inkOf("--nothing");
  svg.append(svgElement("rect", { width, height, fill: inkOf("--paper") }), svgElement("rect", { x: left, y: top, width: m * size, height: n * size, fill: cssOf(colorOf(0, isSigned)) }));
  svg.append(svgElement("text", { x: left - 4, y: top - 10, "text-anchor": "end" }, say("queryAxis")), svgElement("text", { x: left, y: height - 8 }, say("keyAxis")));
  for (let i = 0; i < n && !isPooled; ++i) svg.append(svgElement("text", { x: left - 4, y: top + (i + 0.7) * size, "text-anchor": "end" }, clipped(matrix.rowLabels[i])));
  const below = top + n * size, slanted = (j) => "translate(" + (left + (j + 0.7) * size) + " " + (below + 10) + ") rotate(-60)";
  for (let j = 0; j < m && !isPooled; ++j) svg.append(svgElement("text", { "text-anchor": "end", transform: slanted(j) }, clipped(matrix.columnLabels[j])));
  for (let i = 0; i < n; ++i)
    for (let j = 0; j < m; ++j) {
      const share = shareOf(matrix.weights[i * m + j]), isMasked = isHidden && isHidden(i, j);
      const fill = isMasked ? nothing : cssOf(colorOf(share, isSigned));
      if (share !== 0 || isMasked) svg.append(svgElement("rect", { x: left + j * size, y: top + i * size, width: size, height: size, fill }));
    }
  return new XMLSerializer().serializeToString(svg);
}
