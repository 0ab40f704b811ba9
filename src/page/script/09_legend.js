// What colors and lines mean in each view.
const TICKS = { sqrt: [0, 0.01, 0.05, 0.2, 0.5, 1], log: [0.001, 0.01, 0.1, 1], linear: [0, 0.25, 0.5, 0.75, 1] };
const SIGNED_TICKS = { sqrt: [0.05, 0.25, 1], log: [0.01, 0.1, 1], linear: [0.5, 1] };

const ticksOf = (isSigned) => (isSigned ? [...SIGNED_TICKS[state.scale].toReversed().map((weight) => -weight), 0, ...SIGNED_TICKS[state.scale]] : TICKS[state.scale]);
const textOfTick = (weight) => signOf(weight) + +(100 * Math.abs(weight)).toFixed(1) + (weight === 1 ? " %" : "");
const titleOfScale = (isSigned) => say(isSigned ? "differenceTitle" : "weightTitle") + say(state.scale + "Scale");
const placeOfTick = (weight) => placeOnScale(Math.abs(weight)) * Math.sign(weight);

// A bar of the scale; of a difference it runs to both sides.
function scaleBar(title, fill, isSigned) {
  const from = isSigned ? -1 : 0, steps = 48, at = (share) => ((share - from) / (1 - from)) * 100;
  const shareAt = (share) => shareOf(weightAt(Math.abs(share))) * (share < 0 ? -1 : 1);
  const stops = Array.from({ length: steps + 1 }, (_, i) => fill(shareAt(from + ((1 - from) * i) / steps)) + " " + (100 * i) / steps + "%");
  const ticks = ticksOf(isSigned).map((weight) => {
    const tick = make("span", { textContent: textOfTick(weight) });
    tick.style.left = at(placeOfTick(weight)) + "%";
    return tick;
  });
  const bar = make("i", {});
  bar.style.background = "linear-gradient(to right, " + stops.join(", ") + ")";
  const ends = isSigned ? [make("span", { className: "ends" }, make("span", { textContent: "← " + say("moreSecond") }), make("span", { textContent: say("moreFirst") + " →" }))] : [];
  const threshold = state.min > 0 ? ", " + say("belowMin") : "";
  return make("div", { className: isSigned ? "scale signed" : "scale" }, make("span", { textContent: title + threshold }), bar, make("span", { className: "ticks" }, ...ticks), ...ends);
}
function swatch(text, style, className = "") {
  const picture = make("i", { className });
  Object.assign(picture.style, style);
  return make("span", { className: "swatch" }, picture, make("span", { textContent: text }));
}
function lineSwatch(weight) {
  const svg = svgElement("svg", { width: 26, height: 12, "aria-hidden": "true" });
  svg.append(svgElement("line", { x1: 0, x2: 26, y1: 6, y2: 6, ...lineLook(weight) }));
  return make("span", { className: "swatch" }, svg, make("span", { textContent: Math.round(100 * Math.abs(weight)) + " %" }));
}

function legendOf(view) {
  const isSigned = state.b >= 0, title = titleOfScale(isSigned), plain = (share) => cssOf(colorOf(share, isSigned));
  const outlined = (color) => ({ border: "2px solid " + inkOf(color) }), swatches = (...list) => make("div", { className: "swatches" }, ...list);
  const sides = isSigned ? [swatch(say("moreFirst"), { background: inkOf("--mark") }), swatch(say("moreSecond"), { background: inkOf("--less") })] : [];
  const hidden = part().causal ? [swatch(say("maskedKey"), {}, "masked")] : [];
  const added = state.set.length > 0 ? [swatch(say("addedHead"), outlined("--ink"))] : [];
  if (view === "model") return [scaleBar(title, plain, isSigned), swatches(...hidden, swatch(say("chosenHead"), outlined("--accent")), ...added)];
  if (view === "map") return [scaleBar(title, plain, isSigned), swatches(...hidden, swatch(say("chosenCell"), outlined("--accent")))];
  if (view === "text" && part()[paintedSide()].seconds > 0) {
    return [make("span", { textContent: say(state.scale === "linear" ? "barOfLargest" : "barTitle") }), swatches(...sides, swatch(say("chosenToken"), outlined("--accent")))];
  }
  if (view === "text") {
    const isPicture = part()[paintedSide()].image, over = (share) => seenOver(overPicture(share));
    return [scaleBar(state.scale === "linear" ? say("ofLargest") : title, isPicture ? over : plain, isSigned), swatches(swatch(say("chosenToken"), outlined("--accent")))];
  }
  if (view === "lines") {
    const least = Math.max(state.min, LEAST_LINE);
    const text = (textContent) => make("div", { textContent }), widths = make("div", { className: "ends" }, ...[0.05, 0.25, 1].map(lineSwatch));
    return [make("div", {}, text(say("lineTitle")), widths, text(say("linesFrom") + Math.round(100 * least) + " %")), ...(isSigned ? [swatches(...sides)] : [])];
  }
  return [swatches(swatch(say("adds"), { background: inkOf("--mark") }), swatch(say("takes"), { background: inkOf("--less") }))];
}
function drawLegend() {
  $("legend").setAttribute("aria-label", say("legend"));
  $("legend").replaceChildren(...legendOf(state.view));
}
