// Lines between two columns of the text, as in Vaswani et al. 2017: thicker for larger weights.
const SVG = "http://www.w3.org/2000/svg";
function svgElement(name, attributes, text) {
  const element = document.createElementNS(SVG, name);
  for (const [key, value] of Object.entries(attributes)) element.setAttribute(key, value);
  if (text !== undefined) element.textContent = text;
  return element;
}
// A drawing that keeps its looks in a file.
function svgDrawing(width, height, size, label) {
  const looks = { fill: inkOf("--ink"), "font-family": FONT, "font-size": size };
  return svgElement("svg", { xmlns: SVG, viewBox: "0 0 " + width + " " + height, width, height, ...looks, role: "img", "aria-label": label });
}
const canDrawLines = (matrix) => matrix.rows.length <= 120 && matrix.columns.length <= 120;
const LEAST_LINE = 0.01;
const lineLook = (weight) => ({ stroke: inkOf(weight < 0 ? "--less" : "--mark"), "stroke-width": 0.8 + 5 * Math.abs(weight), "stroke-opacity": Math.min(1, 0.2 + 0.8 * Math.sqrt(Math.abs(weight))) });

async function drawLines() {
  const box = $("lines"), matrix = await shownMatrix();
  if (!matrix) return void (box.textContent = reasonOfNothing());
  if (!canDrawLines(matrix)) return void (box.textContent = say("tooMany"));
  const most = Math.max(matrix.n, matrix.m) + 2, step = isNarrow() ? 20 : Math.max(20, Math.min(40, Math.floor(box.clientHeight / most)));
  const width = Math.max(300, Math.min(Math.max(30 * step, box.clientHeight), box.clientWidth - 8)), side = Math.min(190, width * 0.31), top = 24;
  const { n, m, weights } = matrix, { places } = await reachOf(matrix, chosenTokens()), height = (Math.max(n, m) + 1) * step + top;
  const svg = svgDrawing(width, height, 13, say("lines") + ": " + $("sentence").textContent);
  const y = (i) => top + (i + 0.8) * step, left = side, right = width - side, middle = (left + right) / 2;
  for (let i = 0; i < n; ++i)
    for (let j = 0; j < m; ++j) {
      const weight = weights[i * m + j], isShown = places.length === 0 || places.includes(state.dir === "from" ? i : j);
      if (!isShown || Math.abs(weight) < Math.max(state.min, LEAST_LINE)) continue;
      svg.append(svgElement("path", { d: "M" + left + " " + y(i) + "C" + middle + " " + y(i) + " " + middle + " " + y(j) + " " + right + " " + y(j), fill: "none", ...lineLook(weight) }));
    }
  const sides = [["queryAxis", matrix.rowLabels, matrix.rows, left - 8, "end", "from"], ["keyAxis", matrix.columnLabels, matrix.columns, right + 8, "start", "to"]];
  for (const [name, labels, groups, x, anchor, dir] of sides) {
    svg.append(svgElement("text", { x, y: 14, "text-anchor": anchor, class: "quiet" }, say(name)));
    labels.forEach((text, i) => {
      const isChosen = dir === state.dir && places.includes(i);
      const label = svgElement("text", { x, y: y(i) + 4, "text-anchor": anchor, "font-weight": isChosen ? "bold" : "normal", cursor: "pointer" }, clipped(text));
      if (isChosen) label.style.fill = "var(--accent)";
      label.addEventListener("click", () => choose({ dir, k: -1, q: dir === state.dir && state.q.includes(groups[i][0]) ? [] : [groups[i][0]] }));
      label.addEventListener("mouseenter", () => dir === state.dir && hoverToken(groups[i][0]));
      svg.append(label);
    });
  }
  svg.addEventListener("mouseleave", () => hoverToken(-1));
  box.replaceChildren(svg);
}
