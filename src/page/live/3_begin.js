// Painting in the map, and the beginning.
function paintCell(row, column, isFirst) {
  const head = currentHead(), old = live.edits.get(head);
  const change = old && old.by === "pattern" ? { ...old, name: "patternHand", painted: { ...old.painted } } : { by: "pattern", name: "patternHand", pattern: "hand", painted: {} };
  if (!live.isEncoder && column > row) return;  // hidden by the mask
  change.painted[row] = isFirst ? new Set([column]) : new Set([...(change.painted[row] || []), column]);
  edit(head, change);
}
function listenPainting() {
  const view = $("view-map");
  let last = null;  // the cell under the pointer while it is down
  const isPainting = () => live.painting && state.of === "head" && state.p === live.part && state.b < 0;
  const paintAt = async (event, isFirst) => {
    const matrix = await shownMatrix(), cell = matrix && cellAt(event, matrix);
    if (!cell || (!isFirst && last && cell[0] === last[0] && cell[1] === last[1])) return;
    paintCell(matrix.rows[cell[0]][0], matrix.columns[cell[1]][0], isFirst || !last || cell[0] !== last[0]);
    last = cell;
  };
  // Before the map's own listeners, which move it.
  view.addEventListener("pointerdown", (event) => { if (isPainting() && event.button === 0) event.stopPropagation(), last = null, paintAt(event, true), live.isDown = true; }, true);
  view.addEventListener("pointermove", (event) => { if (live.painting && live.isDown) event.stopPropagation(), paintAt(event, false); }, true);
  for (const end of ["pointerup", "pointercancel"]) addEventListener(end, () => { live.isDown = false; });
  view.addEventListener("pointerup", (event) => { if (live.painting) event.stopPropagation(), live.isDown = false; }, true);
  $("map").addEventListener("keydown", (event) => {
    if (event.key !== " " || !live.painting || chosenQuery() < 0 || chosenKey() < 0) return;
    event.preventDefault();
    paintCell(chosenQuery(), chosenKey(), true);
  });
}
async function beginLive() {
  const place = make("section", { id: "live" });
  document.querySelector("main").before(place);
  document.body.classList.add("has-live");
  await loadModel();
  live.text = live.about.text;
  compute();
  listenPainting();
  listeners.push(() => { if (live.now) showLive(); });
  showLive();
  if (!location.hash.includes("p=")) choose({ p: live.part });
  document.documentElement.dataset.live = "yes";
}
