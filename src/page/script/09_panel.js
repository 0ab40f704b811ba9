// The controls, the table beside each view, and files of what is seen.
function make(name, properties, ...children) {
  const element = Object.assign(document.createElement(name), properties);
  element.append(...children);
  return element;
}

// Each control has a function that makes it show the state.
const controls = { key: "", update: [] };
function shows(update) {
  controls.update.push(update);
}

function selectOf(key, values, nameOfValue = say) {
  const select = make("select", { onchange: () => choose({ [key]: select.value }) }, ...values.map((v) => make("option", { value: v, textContent: nameOfValue(v) })));
  shows(() => { select.value = state[key]; });
  return make("label", {}, say(key) + " ", select);
}
function switchOf(key) {
  const button = make("button", { type: "button", textContent: say(key), onclick: () => choose({ [key]: state[key] ? 0 : 1 }) });
  shows(() => button.setAttribute("aria-pressed", String(Boolean(state[key]))));
  return button;
}
// The layer and the head, each by its number; a dot marks heads of which the file has the thumbnail only.
function placeSelect(key, count, isKept) {
  const select = make("select", { onchange: () => choose({ [key]: Number(select.value) }) }, ...Array.from({ length: count }, (_, i) => make("option", { value: i })));
  shows(() => {
    for (const option of select.options) option.textContent = key.toUpperCase() + option.value + (isKept(Number(option.value)) ? "" : " ·");
    select.value = state[key];
  });
  return make("label", {}, say(key === "l" ? "layer" : "head1") + " ", select);
}
function headSelects() {
  const { layers, heads, keptHeads } = part();
  return [placeSelect("l", layers, () => true), placeSelect("h", heads, (h) => keptHeads.has(state.l * heads + h))];
}
function setSwitch() {
  const button = make("button", { type: "button", textContent: say("set"), onclick: () => choose({ set: toggled(state.set, currentHead()) }) });
  shows(() => button.setAttribute("aria-pressed", String(state.set.includes(currentHead()))));
  return button;
}
// The parts of the page: along a slider if they are states of one model, and a second one to compare with.
function partControls() {
  const { parts, sequence } = data.index;
  if (parts.length === 1) return [];
  const options = (numbers) => numbers.map((p) => make("option", { value: p, textContent: p < 0 ? say("none") : parts[p].name }));
  const others = parts.map((_, p) => p).filter(comparable), against = make("select", { onchange: () => choose({ b: Number(against.value) }) }, ...options([-1, ...others]));
  shows(() => { against.value = state.b; });
  const second = others.length > 0 ? [make("label", {}, say("against") + " ", against)] : [];
  if (!sequence) {
    const select = make("select", { onchange: () => choose({ p: Number(select.value) }) }, ...options(parts.map((_, p) => p)));
    shows(() => { select.value = state.p; });
    return [make("label", {}, say("part") + " ", select), ...second];
  }
  const slider = make("input", { type: "range", min: 0, max: parts.length - 1, step: 1, oninput: () => choose({ p: Number(slider.value) }) }), name = make("output", {});
  shows(() => { slider.value = state.p, name.textContent = part().name, slider.setAttribute("aria-valuetext", part().name); });
  return [make("label", {}, say("part") + " ", slider, name), ...second];
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
  const own = part(), any = (test) => !own.pooled && [own.queries, own.keys].some(test);
  $("controls").replaceChildren(...partControls(), ...headSelects(), setSwitch(), selectOf("of", sourcesOf(own), nameOfSource), selectOf("dir", CHOICES.dir),
    selectOf("scale", CHOICES.scale), fieldOf("min", { type: "range", min: 0, max: 0.5, step: 0.01 }, Number),
    ...(own.norms ? [switchOf("norm")] : []), ...(any(({ words }) => words.length > 0) ? [switchOf("words")] : []),
    ...(any(({ special }) => special.some(Boolean)) ? [switchOf("special")] : []), ...(own.pooled ? [] : [switchOf("first")]),
    fieldOf("find", { type: "search", size: 10 }, String), ...["csv", "png", "svg"].map((kind) => button(say(kind), () => save(kind))),
    button(language() === "zh" ? "English" : "中文", () => choose({ lang: language() === "zh" ? "en" : "zh" })),
    button(say("theme"), () => choose({ theme: isDark() ? "light" : "dark" })));
  $("sorting").replaceChildren(selectOf("sort", CHOICES.sort, (v) => say(v === "first" ? "firstKey" : v)));
}
function drawControls() {
  const key = language() + (data.index.sequence ? "" : state.p);
  if (controls.key !== key) makeControls();
  controls.key = key;
  for (const update of controls.update) update();
  document.documentElement.lang = language();
  document.documentElement.dataset.theme = state.theme;
}
const isDark = () => state.theme === "dark" || (state.theme !== "light" && matchMedia("(prefers-color-scheme: dark)").matches);

// The chosen head in numbers, and the largest weights of the chosen tokens: what the views show, as tables.
async function drawDetail(matrix) {
  const box = $("detail"), values = part().statistics[currentHead()], number = (text) => make("td", { className: "number", textContent: text });
  const tableOf = (rows) => make("table", {}, make("tbody", {}, ...rows));
  const parts = [make("h2", { textContent: sourceName() })];
  if (state.of === "head")
    parts.push(tableOf(MEASURES.map((m, i) => make("tr", {}, make("th", { scope: "row", textContent: say(m === "first" ? "firstKey" : m) }), number(values[i] === null ? "–" : values[i].toFixed(3))))));
  const { places, reach } = matrix ? await reachOf(matrix, chosenTokens()) : { places: [], reach: null };
  if (!matrix) parts.push(make("p", { className: "hint", textContent: reasonOfNothing() }));
  else if (places.length === 0) parts.push(make("p", { className: "hint", textContent: say("pick") }));
  else {
    const isFrom = state.dir === "from", own = isFrom ? matrix.rowLabels : matrix.columnLabels, labels = isFrom ? matrix.columnLabels : matrix.rowLabels;
    const order = largestOf(reach, 10), most = Math.abs(reach[order[0]]);
    parts.push(make("h2", { textContent: say(isFrom ? "topKeys" : "topQueries") + " " + places.map((i) => visible(own[i])).join(" ") }));
    parts.push(tableOf(order.map((j) => make("tr", {}, make("td", {}, make("bdi", { textContent: visible(labels[j]) })), number(j), number(percent(reach[j])),
      make("td", {}, Object.assign(make("span", { className: "bar" }), { style: "width:" + Math.round((60 * Math.abs(reach[j])) / most) + "px" }))))));
  }
  box.replaceChildren(...parts);
}
function largestOf(numbers, count) {
  const found = [];
  numbers.forEach((value, i) => {
    const size = Math.abs(value);
    if (size === 0 || (found.length === count && size <= Math.abs(numbers[found[count - 1]]))) return;
    const at = found.findIndex((other) => Math.abs(numbers[other]) < size);
    found.splice(at < 0 ? found.length : at, 0, i);
    found.length = Math.min(found.length, count);
  });
  return found;
}

function drawNotes() {
  const { kept, layers, heads, pooled } = part(), notes = [say("rounded")];
  if (kept.length < layers * heads) notes.push(kept.length + " " + say("ofHeads") + " " + layers * heads + " " + say("keptHeads") + ". " + say("noWeights"));
  if (pooled) notes.push(say("pooledNote"));
  if (state.first || state.special) notes.push(say("renormalised"));
  if (state.words) notes.push(say("merged"));
  if (state.norm) notes.push(say("normed"));
  if (state.b >= 0) notes.push(say("signed"));
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
  const { n, m, isPooled } = matrix, size = 16, margin = 120, svg = svgElement("svg", { xmlns: SVG, width: margin + m * size, height: margin + n * size, "font-family": "sans-serif", "font-size": 11 });
  for (let i = 0; i < n && !isPooled; ++i) svg.append(svgElement("text", { x: margin - 4, y: margin + (i + 0.7) * size, "text-anchor": "end" }, clipped(matrix.rowLabels[i])));
  for (let j = 0; j < m && !isPooled; ++j) svg.append(svgElement("text", { transform: "translate(" + (margin + (j + 0.7) * size) + " " + (margin - 4) + ") rotate(-60)" }, clipped(matrix.columnLabels[j])));
  for (let i = 0; i < n; ++i)
    for (let j = 0; j < m; ++j) {
      const share = shareOf(matrix.weights[i * m + j]);
      if (share !== 0) svg.append(svgElement("rect", { x: margin + j * size, y: margin + i * size, width: size, height: size, fill: "rgb(" + colourOf(share).join(",") + ")" }));
    }
  return new XMLSerializer().serializeToString(svg);
}
