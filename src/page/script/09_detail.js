// Beside each view: the chosen head in small, its numbers, and the largest weights of the chosen tokens.
const cellOf = (text, className = "") => make("td", { className, textContent: text });
const headerOf = (...texts) => make("thead", {}, make("tr", {}, ...texts.map(([text, className = "", colSpan = 1]) => make("th", { scope: "col", className, colSpan, textContent: text }))));
const tableOf = (header, rows, title) => make("table", {}, ...(title ? [make("caption", { textContent: title })] : []), header, make("tbody", {}, ...rows));
const headButton = (head) => make("button", { type: "button", textContent: nameOf(head), onclick: () => choose({ of: "head", l: layerOf(head), h: headInLayer(head) }) });
const UNITS = { induction: "repeated", entropy: "nats", distance: "tokensUnit" };
const DIGITS = { entropy: 2, distance: 1 };

// The head's statistics, and for each the head of this part that has most of it.
function statisticsTable() {
  const own = part(), all = own.statistics.map((_, head) => head);
  const rows = MEASURES.map((measure, m) => {
    const shown = (head) => (own.statistics[head][m] === null ? "–" : own.statistics[head][m].toFixed(DIGITS[measure] ?? 2)), unit = UNITS[measure];
    const [most] = largestOf(all.map((head) => own.statistics[head][m] ?? 0), 1), label = make("th", { scope: "row", textContent: nameOfMeasure(measure) });
    if (unit) label.append(make("span", { className: "unit", textContent: " " + say(unit) }));
    const best = most === undefined ? [cellOf(""), cellOf("")] : [make("td", { className: "number" }, headButton(most)), cellOf(shown(most), "number")];
    return make("tr", {}, label, cellOf(shown(currentHead()), "number"), ...best);
  });
  return tableOf(headerOf([say("statisticColumn")], [nameOf(currentHead()), "number"], [say("mostOf"), "number", 2]), rows, say("statistics"));
}
function differencesTable() {
  const rows = differingHeads(6).map(({ head, difference }) => make("tr", {}, make("td", {}, headButton(head)), cellOf(percent(difference), "number")));
  return tableOf(headerOf([say("headColumn")], [say("differenceColumn"), "number"]), rows, say("differs"));
}
function topTable(matrix, { places, reach }) {
  const isFrom = state.dir === "from", own = isFrom ? matrix.rowLabels : matrix.columnLabels, labels = isFrom ? matrix.columnLabels : matrix.rowLabels;
  const order = largestOf(reach, 10), most = Math.abs(reach[order[0]]);
  const rows = order.map((j) => {
    const meter = make("span", { className: "meter" + (reach[j] < 0 ? " less" : "") });
    meter.style.width = Math.round((60 * Math.abs(reach[j])) / most) + "px";
    return make("tr", {}, make("td", {}, make("bdi", { textContent: visible(labels[j]) })), cellOf(j, "number"), cellOf(percent(reach[j]), "number"), make("td", {}, meter));
  });
  const names = matrix.isSigned ? ["topDifferences", "topQueryDifferences"] : ["topKeys", "topQueries"], title = say(names[isFrom ? 0 : 1]) + " " + places.map((i) => visible(own[i])).join(" ");
  return tableOf(headerOf([say("tokenColumn")], [say("placeColumn"), "number"], [say(matrix.isSigned ? "differenceShort" : "weightColumn"), "number"], [""]), rows, title);
}

// The chosen head beside the thumbnails: a map that opens in full.
function preview(matrix, width) {
  const canvas = make("canvas", { id: "preview", onclick: () => choose({ view: "map" }), title: say("map") }), height = Math.round(Math.min(width * 1.02, innerHeight * (isNarrow() ? 0.4 : 0.5)));
  canvas.setAttribute("role", "img");
  canvas.setAttribute("aria-label", say("map") + ": " + $("sentence").textContent + ". " + say("queryAxis") + ", " + say("keyAxis"));
  canvas.style.height = height + "px";
  const context = sized(canvas, width, height), frame = frameOf(context, { width, height }, matrix, 11, 62), look = fitted(matrix, frame, part().isSquare);
  drawMatrix(context, matrix, look, { q: rowOfToken(matrix, chosenQuery()), k: columnOfToken(matrix, chosenKey()) });
  canvas.addEventListener("mousemove", async (event) => {
    const box = canvas.getBoundingClientRect(), i = Math.floor((event.clientY - box.top - frame.top) / look.sy), j = Math.floor((event.clientX - box.left - frame.left) / look.sx);
    if (i >= 0 && j >= 0 && i < matrix.rows.length && j < matrix.columns.length) $("status").textContent = await describeCell(matrix, i, j);
  });
  return canvas;
}

async function drawDetail(matrix) {
  const box = $("detail"), chosen = matrix ? await reachOf(matrix, chosenTokens()) : { places: [] };
  const hint = (text) => make("p", { className: "hint", textContent: text }), numbers = [...(state.b >= 0 ? [differencesTable()] : []), ...(state.of === "head" ? [statisticsTable()] : [])];
  const top = !matrix ? hint(reasonOfNothing()) : chosen.places.length > 0 ? topTable(matrix, chosen) : hint(say("pick"));
  $("preview")?.remove();
  if (state.view !== "model") return box.replaceChildren(top, ...numbers);
  box.replaceChildren(...numbers, top);
  // On a phone it stays in sight above the thumbnails.
  if (matrix) (isNarrow() ? $("view-model") : box).prepend(preview(matrix, Math.max(200, box.clientWidth - 18)));
}

function drawNotes() {
  const { kept, layers, heads, pooled } = part(), notes = part().exact ? [] : [say("rounded")];
  if (kept.length < layers * heads) notes.push(kept.length + " " + say("ofHeads") + " " + layers * heads + " " + say("keptHeads") + ". " + say("noWeights"));
  if (pooled) notes.push(say("pooledNote"));
  if (state.first || state.special) notes.push(say("renormalised"));
  if (state.words) notes.push(say("merged"));
  if (state.norm) notes.push(say("normed"));
  if (state.b >= 0) notes.push(say("signed"));
  $("notes").textContent = notes.join(" ");
  const hint = state.view + (isTouch() && state.view !== "cell" ? "Touch" : "Hint");
  $("hint").textContent = say(state.view === "text" && state.dir === "to" ? hint + "To" : hint);
}
