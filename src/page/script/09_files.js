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
  if (kind === "png") (state.view === "model" ? wholeModel() : $("view-" + state.view).querySelector("canvas") || $("map")).toBlob((blob) => blob && download(name, blob));
  if (kind === "svg") {
    const drawn = ["lines", "cell"].includes(state.view) ? $("view-" + state.view).querySelector("svg") : null;
    if (drawn || matrix) download(name, new Blob([drawn ? new XMLSerializer().serializeToString(drawn) : svgOfMap(matrix)], { type: "image/svg+xml" }));
  }
}
// The map as rectangles; of a pooled one its blocks.
function svgOfMap(matrix) {
  const { n, m, isPooled, isHidden, isSigned } = matrix, size = 16, left = 124, top = 30, height = top + n * size + 130, width = left + m * size + 20;
  const svg = svgElement("svg", { xmlns: SVG, width, height, "font-family": FONT, "font-size": 11, fill: inkOf("--ink") }), below = top + n * size;
  svg.append(svgElement("rect", { width, height, fill: inkOf("--paper") }), svgElement("rect", { x: left, y: top, width: m * size, height: n * size, fill: cssOf(colorOf(0, isSigned)) }));
  svg.append(svgElement("text", { x: left - 4, y: top - 10, "text-anchor": "end" }, say("queryAxis")), svgElement("text", { x: left, y: height - 8 }, say("keyAxis")));
  for (let i = 0; i < n && !isPooled; ++i) svg.append(svgElement("text", { x: left - 4, y: top + (i + 0.7) * size, "text-anchor": "end" }, clipped(matrix.rowLabels[i])));
  for (let j = 0; j < m && !isPooled; ++j) svg.append(svgElement("text", { "text-anchor": "end", transform: "translate(" + (left + (j + 0.7) * size) + " " + (below + 10) + ") rotate(-60)" }, clipped(matrix.columnLabels[j])));
  for (let i = 0; i < n; ++i)
    for (let j = 0; j < m; ++j) {
      const share = shareOf(matrix.weights[i * m + j]), isMasked = isHidden && isHidden(i, j);
      if (share !== 0 || isMasked) svg.append(svgElement("rect", { x: left + j * size, y: top + i * size, width: size, height: size, fill: isMasked ? inkOf("--nothing") : cssOf(colorOf(share, isSigned)) }));
    }
  return new XMLSerializer().serializeToString(svg);
}
