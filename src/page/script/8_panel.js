// The controls, the table beside each view, and files of what is seen.
function make(name, properties, ...children) {
  const element = Object.assign(document.createElement(name), properties);
  element.append(...children);
  return element;
}

// Each control has a function that makes it show the state.
const controls = { language: "", update: [] };
function shows(update) {
  controls.update.push(update);
}

function selectOf(key, values) {
  const select = make("select", { onchange: () => choose({ [key]: select.value }) }, ...values.map((v) => make("option", { value: v, textContent: say(v === "first" && key === "sort" ? "firstKey" : v) })));
  shows(() => { select.value = state[key]; });
  return make("label", {}, say(key) + " ", select);
}
function switchOf(key) {
  const button = make("button", { type: "button", textContent: say(key), onclick: () => choose({ [key]: state[key] ? 0 : 1 }) });
  shows(() => button.setAttribute("aria-pressed", String(Boolean(state[key]))));
  return button;
}
function headSelect() {
  const { layers, heads } = data.index;
  const select = make("select", { onchange: () => chooseHead(Number(select.value)) },
    ...Array.from({ length: layers * heads }, (_, head) => make("option", { value: head, textContent: nameOf(head) + (data.kept.has(head) ? "" : " ·") })));
  shows(() => { select.value = currentHead(); });
  return make("label", {}, say("head1") + " ", select);
}
function fieldOf(key, properties, valueOf) {
  const field = make("input", { ...properties, oninput: () => choose({ [key]: valueOf(field.value) }) });
  shows(() => { if (field.value !== String(state[key])) field.value = state[key]; });
  return make("label", {}, say(key) + " ", field);
}
function tabOf(view) {
  const tab = make("button", { type: "button", textContent: say(view), onclick: () => choose({ view }) });
  tab.setAttribute("role", "tab");
  tab.dataset.key = "view" + view;
  shows(() => tab.setAttribute("aria-selected", String(state.view === view)));
  return tab;
}

function makeControls() {
  controls.update = [];
  const button = (text, onclick) => make("button", { type: "button", textContent: text, onclick });
  $("views").replaceChildren(...VIEWS.map(tabOf));
  $("controls").replaceChildren(headSelect(), selectOf("of", ["head", "layerMean", "layerMax", "allMean"]), selectOf("dir", ["from", "to"]),
    selectOf("scale", ["log", "linear"]), fieldOf("min", { type: "range", min: 0, max: 0.5, step: 0.01 }, Number),
    ...(data.index.words.length > 0 ? [switchOf("words")] : []), ...(data.index.special.some(Boolean) ? [switchOf("special")] : []), switchOf("first"),
    fieldOf("find", { type: "search", size: 10 }, String), ...["csv", "png", "svg"].map((kind) => button(say(kind), () => save(kind))),
    button(language() === "zh" ? "English" : "中文", () => choose({ lang: language() === "zh" ? "en" : "zh" })),
    button(say("theme"), () => choose({ theme: isDark() ? "light" : "dark" })));
  $("sorting").replaceChildren(selectOf("sort", ["place", ...MEASURES, "similar"]));
  controls.language = language();
}
function drawControls() {
  if (controls.language !== language()) makeControls();
  for (const update of controls.update) update();
  document.documentElement.lang = language();
  document.documentElement.dataset.theme = state.theme;
}
const isDark = () => state.theme === "dark" || (state.theme !== "light" && matchMedia("(prefers-color-scheme: dark)").matches);

function drawDetail(matrix) {
  const box = $("detail"), values = data.index.statistics[currentHead()];
  const parts = [make("h2", { textContent: sourceName() })];
  if (state.of === "head")
    parts.push(make("table", {}, make("tbody", {}, ...MEASURES.map((m, i) => make("tr", {}, make("th", { scope: "row", textContent: say(m === "first" ? "firstKey" : m) }), make("td", { className: "number", textContent: values[i] === null ? "–" : values[i].toFixed(3) }))))));
  const rows = matrix ? chosenRows(matrix) : [];
  if (!matrix) parts.push(make("p", { className: "hint", textContent: say("noWeights") }));
  else if (rows.length === 0) parts.push(make("p", { className: "hint", textContent: say("pick") }));
  else {
    const row = rowOf(matrix, rows), order = Array.from(row.keys()).sort((a, b) => row[b] - row[a]).slice(0, 10).filter((j) => row[j] > 0);
    const name = rows.map((i) => visible(matrix.labels[i])).join(" ");
    parts.push(make("h2", { textContent: say(state.dir === "from" ? "topKeys" : "topQueries") + " " + name }));
    parts.push(make("table", {}, make("tbody", {}, ...order.map((j) => make("tr", {}, make("td", {}, make("bdi", { textContent: visible(matrix.labels[j]) })), make("td", { className: "number", textContent: j }), make("td", { className: "number", textContent: percent(row[j]) }),
      make("td", {}, Object.assign(make("span", { className: "bar" }), { style: "width:" + Math.round(60 * row[j] / row[order[0]]) + "px" })))))));
  }
  box.replaceChildren(...parts);
}

function drawNotes() {
  const { kept, layers, heads } = data.index, notes = [say("rounded")];
  if (kept.length < layers * heads) notes.push(kept.length + " " + say("ofHeads") + " " + layers * heads + " " + say("keptHeads") + ". " + say("noWeights"));
  if (state.first || state.special) notes.push(say("renormalised"));
  if (state.words) notes.push(say("merged"));
  $("notes").textContent = notes.join(" ");
}

function download(name, blob) {
  const link = make("a", { href: URL.createObjectURL(blob), download: name });
  link.click();
  setTimeout(() => URL.revokeObjectURL(link.href), 1000);
}
async function save(kind) {
  const matrix = await shownMatrix(), name = (state.of === "head" ? nameOf(currentHead()) : state.of) + "." + kind;
  if (kind === "csv" && matrix) {
    const field = (text) => '"' + text.replace(/"/g, '""') + '"';
    const lines = [["", ...matrix.labels.map(field)].join(",")];
    for (let i = 0; i < matrix.n; ++i) lines.push([field(matrix.labels[i]), ...Array.from(matrix.weights.subarray(i * matrix.n, (i + 1) * matrix.n), (w) => w.toPrecision(4))].join(","));
    download(name, new Blob([lines.join("\n") + "\n"], { type: "text/csv" }));
  }
  if (kind === "png") (state.view === "model" ? $("grid") : $("map")).toBlob((blob) => blob && download(name, blob));
  if (kind === "svg" && matrix) download(name, new Blob([state.view === "lines" && matrix.n <= 120 ? $("lines").innerHTML : svgOfMap(matrix)], { type: "image/svg+xml" }));
}
function svgOfMap(matrix) {
  const size = 16, margin = 120, side = margin + matrix.n * size, svg = svgElement("svg", { xmlns: SVG, width: side, height: side, "font-family": "sans-serif", "font-size": 11 });
  for (let i = 0; i < matrix.n; ++i) {
    svg.append(svgElement("text", { x: margin - 4, y: margin + (i + 0.7) * size, "text-anchor": "end" }, clipped(matrix.labels[i])));
    svg.append(svgElement("text", { transform: "translate(" + (margin + (i + 0.7) * size) + " " + (margin - 4) + ") rotate(-60)" }, clipped(matrix.labels[i])));
    for (let j = 0; j < matrix.n; ++j) {
      const share = shareOf(matrix.weights[i * matrix.n + j]);
      if (share > 0) svg.append(svgElement("rect", { x: margin + j * size, y: margin + i * size, width: size, height: size, fill: "rgb(" + colourOf(share).join(",") + ")" }));
    }
  }
  return new XMLSerializer().serializeToString(svg);
}
