// Draws what the state says, and begins.
async function draw() {
  await loadPart(state.p);
  if (state.b >= 0) await loadPart(state.b);
  for (const view of VIEWS) $("view-" + view).hidden = view !== state.view;
  drawControls();
  drawNotes();
  drawLegend();
  const matrix = await shownMatrix();
  drawSentence(matrix);
  if (state.view === "model") drawModel();
  if (state.view === "map") await drawMap();
  if (state.view === "text") await drawText();
  if (state.view === "lines") await drawLines();
  if (state.view === "cell") await drawCell();
  if (state.view !== "text") await drawDetail(matrix);
}

// One drawing at a time: what changes meanwhile is drawn after it.
let drawing = null, changed = false;
function redraw() {
  changed = true;
  drawing = drawing || (async () => {
    while (changed) {
      changed = false;
      try {
        await draw();
      } catch (error) {
        if (!changed) complain(error);
      }
    }
    drawing = null;
  })();
  return drawing;
}

function complain(error) {
  const text = "This page could not be shown: " + (error && error.message ? error.message : error);
  $("status").textContent = text;
  document.querySelector("main").hidden = true;
}

async function begin() {
  if (typeof DecompressionStream === "undefined") throw new Error("this browser has no DecompressionStream; browsers since 2023 have it");
  await loadIndex();
  const isPlain = location.hash.length < 2;
  Object.assign(DEFAULTS, openingChoice());
  readAddress();
  listenModel(), listenMap(), listenText(), listenKeys();
  listeners.push((changes) => { if (!("q" in changes || "k" in changes)) $("status").textContent = ""; redraw(); });
  addEventListener("hashchange", () => { readAddress(); redraw(); });
  addEventListener("resize", () => { map.sx = 0; redraw(); });
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", redraw);
  await draw();
  if (isPlain) showTourOnce();
  document.documentElement.dataset.ready = "yes";
  // What the file holds is shown even where the model cannot run.
  if (data.index.model) await beginLive().catch((error) => { $("live").textContent = String(error.message || error); });
}
let begun = null;
function start() {
  begun = begin();
  begun.catch(complain);
}
// A notebook says whether it is light or dark: the setting of the system, which the page follows elsewhere, may differ.
addEventListener("message", ({ source, data: sent }) => {
  if (source !== parent || !sent || !["light", "dark"].includes(sent.saccadeTheme)) return;
  ui.theme = sent.saccadeTheme;
  document.documentElement.dataset.theme = shownTheme();
  if (begun) begun.then(redraw, complain);
});
// The weights of heads follow this script in the file.
if (document.readyState === "loading") addEventListener("DOMContentLoaded", start);
else start();
