// Painting in the map, and the beginning.
// The keys of a cell get the weight of its row; of a merged word each piece has a row. `isFirst`: instead of what was painted there.
function paintCell(queries, keys, isFirst) {
  const head = currentHead(), old = live.edits.get(head);
  const change = old && old.by === "pattern" ? { ...old, name: "patternHand", painted: { ...old.painted } } : { by: "pattern", name: "patternHand", pattern: "hand", painted: {} };
  const seen = (query) => keys.filter((key) => live.isEncoder || key <= query);  // others are hidden by the mask
  const rows = queries.filter((query) => seen(query).length > 0);
  for (const query of rows) change.painted[query] = new Set([...((!isFirst && change.painted[query]) || []), ...seen(query)]);
  if (rows.length > 0) edit(head, change);
}
function listenPainting() {
  const view = $("view-map");
  let last = null;  // the cell under the pointer while it is down
  const isPainting = () => live.painting && state.of === "head" && state.p === live.part && state.b < 0;
  const paintAt = async (event, isFirst) => {
    const matrix = await shownMatrix(), cell = matrix && cellAt(event, matrix);
    if (!cell || (!isFirst && last && cell[0] === last[0] && cell[1] === last[1])) return;
    paintCell(matrix.rows[cell[0]], matrix.columns[cell[1]], isFirst || !last || cell[0] !== last[0]);
    last = cell;
  };
  // Before the map's own listeners, which move it.
  view.addEventListener("pointerdown", (event) => { if (isPainting() && event.button === 0) event.stopPropagation(), last = null, paintAt(event, true), live.isDown = true; }, true);
  view.addEventListener("pointermove", (event) => { if (live.painting && live.isDown) event.stopPropagation(), paintAt(event, false); }, true);
  for (const end of ["pointerup", "pointercancel"]) addEventListener(end, () => { live.isDown = false; });
  view.addEventListener("pointerup", (event) => { if (live.painting) event.stopPropagation(), live.isDown = false; }, true);
  $("map").addEventListener("keydown", async (event) => {
    if (event.key !== " " || !isPainting() || chosenQuery() < 0 || chosenKey() < 0) return;
    event.preventDefault();
    const matrix = await shownMatrix(), row = matrix.rows[rowOfToken(matrix, chosenQuery())], column = matrix.columns[columnOfToken(matrix, chosenKey())];
    if (row && column) paintCell(row, column, true);
  });
}
async function beginLive() {
  const place = make("section", { id: "live" });
  document.querySelector("main").before(place);
  document.body.classList.add("has-live");
  await loadModel();
  live.text = live.about.text;
  if (!readText()) throw new Error(live.wrong);
  compute();
  listenPainting();
  listeners.push(() => { if (live.now) showLive(); });
  showLive();
  // Only now there is the part that the address may name; one without a part means this one.
  DEFAULTS.p = live.part;
  readAddress(), choose({});
  document.documentElement.dataset.live = "yes";
}
