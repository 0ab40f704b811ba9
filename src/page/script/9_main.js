// Draws what the state says, and begins.
async function draw() {
  for (const view of VIEWS) $("view-" + view).hidden = view !== state.view;
  drawControls();
  drawNotes();
  if (state.view === "model") drawModel();
  if (state.view === "map") await drawMap();
  if (state.view === "text") await drawText();
  if (state.view === "lines") await drawLines();
  drawDetail(await shownMatrix());
}

function complain(error) {
  const text = "This page could not be shown: " + (error && error.message ? error.message : error);
  $("status").textContent = text;
  document.querySelector("main").hidden = true;
}

async function begin() {
  if (typeof DecompressionStream === "undefined") throw new Error("this browser has no DecompressionStream; browsers since 2023 have it");
  await loadIndex();
  readAddress();
  listenModel(), listenMap(), listenText();
  listeners.push(() => draw().catch(complain));
  addEventListener("hashchange", () => { readAddress(); draw().catch(complain); });
  addEventListener("resize", () => { map.scale = 0; draw().catch(complain); });
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => draw().catch(complain));
  await draw();
  document.documentElement.dataset.ready = "yes";
}
// The weights of heads follow this script in the file.
if (document.readyState === "loading") addEventListener("DOMContentLoaded", () => begin().catch(complain));
else begin().catch(complain);
