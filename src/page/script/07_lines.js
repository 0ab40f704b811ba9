// Lines between two columns of the text, as in Vaswani et al. 2017: thicker for larger weights.
const SVG = "http://www.w3.org/2000/svg";
function svgElement(name, attributes, text) {
  const element = document.createElementNS(SVG, name);
  for (const [key, value] of Object.entries(attributes)) element.setAttribute(key, value);
  if (text !== undefined) element.textContent = text;
  return element;
}
const canDrawLines = (matrix) => matrix.rows.length <= 120 && matrix.columns.length <= 120;

async function drawLines() {
  const box = $("lines"), matrix = await shownMatrix();
  if (!matrix) return void (box.textContent = reasonOfNothing());
  if (!canDrawLines(matrix)) return void (box.textContent = say("tooMany"));
  const step = 20, width = 560, left = 190, right = width - 190, { n, m, weights } = matrix, { places } = await reachOf(matrix, chosenTokens());
  const svg = svgElement("svg", { xmlns: SVG, width, height: (Math.max(n, m) + 1) * step, role: "img", "aria-label": say("lines") + ": " + sourceName() });
  const y = (i) => (i + 0.8) * step;
  for (let i = 0; i < n; ++i)
    for (let j = 0; j < m; ++j) {
      const weight = weights[i * m + j], size = Math.abs(weight), isShown = places.length === 0 || places.includes(state.dir === "from" ? i : j);
      if (!isShown || size < Math.max(state.min, 0.01)) continue;
      svg.append(svgElement("line", { x1: left, y1: y(i), x2: right, y2: y(j), stroke: weight < 0 ? "#2c66a6" : "#b3430f", "stroke-width": 0.5 + 3 * size, "stroke-opacity": Math.min(1, 0.15 + size) }));
    }
  for (const [side, labels, groups, x, anchor] of [["queries", matrix.rowLabels, matrix.rows, left - 8, "end"], ["keys", matrix.columnLabels, matrix.columns, right + 8, "start"]])
    labels.forEach((text, i) => {
      const isChosen = places.includes(i) && (part().isSquare || side === chosenSide());
      const label = svgElement("text", { x, y: y(i) + 4, "text-anchor": anchor, "font-weight": isChosen ? "bold" : "normal", cursor: "pointer" }, clipped(text));
      label.addEventListener("click", () => choose({ dir: directionOf(side), k: -1, q: isChosen ? [] : [groups[i][0]] }));
      svg.append(label);
    });
  box.replaceChildren(svg);
}
