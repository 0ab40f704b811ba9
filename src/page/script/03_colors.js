// One scale of colors, that of the heat maps: pale to dark on a light page, dark to pale on a dark one, so that more
// weight always stands out more. Perceived lightness changes evenly, and no hue carries meaning alone.
const BLUES = [[233, 244, 252], [192, 225, 248], [154, 204, 242], [119, 182, 235], [90, 159, 224], [66, 136, 209], [50, 113, 189], [40, 91, 165], [34, 70, 138], [28, 51, 109], [21, 34, 79]];
const ORANGES = [[253, 240, 228], [250, 220, 190], [246, 197, 147], [238, 172, 106], [226, 147, 71], [208, 123, 45], [184, 101, 29], [157, 80, 20], [127, 61, 16], [97, 45, 14], [66, 29, 12]];
const NEUTRAL = { light: [255, 255, 255], dark: [58, 64, 72] };
const isDark = () => shownTheme() === "dark" || (shownTheme() !== "light" && matchMedia("(prefers-color-scheme: dark)").matches);

// The color of a share of the scale; of a difference of two weights, from the second's to the first's side.
function colorOf(share, isSigned = false) {
  const stops = [...(share < 0 ? ORANGES : BLUES)];
  if (isDark()) stops.reverse();
  if (isSigned) stops[0] = isDark() ? NEUTRAL.dark : NEUTRAL.light;
  const at = Math.min(Math.abs(share), 1) * (stops.length - 1), i = Math.min(Math.floor(at), stops.length - 2), t = at - i;
  return stops[i].map((c, d) => Math.round(c + (stops[i + 1][d] - c) * t));
}
const cssOf = ([r, g, b]) => "rgb(" + r + " " + g + " " + b + ")";
// Black or white text, whichever is easier to read on a color: one of them has a contrast of 4.5 on any.
function inkOn(color) {
  const [r, g, b] = color.map((c) => (c <= 10 ? c / 3294.6 : ((c / 255 + 0.055) / 1.055) ** 2.4));
  return 0.2126 * r + 0.7152 * g + 0.0722 * b > 0.179 ? "#000" : "#fff";
}

// The same for many weights, from tables of 1024 shades to each side.
const shades = { key: "", table: null };
function shadesOf(isSigned) {
  const key = [isDark(), isSigned].join();
  if (shades.key !== key) {
    shades.key = key, shades.table = new Uint8Array(3 * 2047);
    for (let i = 0; i < 2047; ++i) shades.table.set(colorOf((i - 1023) / 1023, isSigned), 3 * i);
  }
  return shades.table;
}
// Pixels [n][m] of weights; those that the mask hides stay transparent.
function paint(pixels, weights, m, isSigned, isHidden) {
  const table = shadesOf(isSigned);
  for (let at = 0, i = 0; at < weights.length; ++i)
    for (let j = 0; j < m; ++j, ++at) {
      const shade = 3 * (1023 + Math.round(1023 * Math.max(-1, Math.min(1, shareOf(weights[at])))));
      pixels[4 * at] = table[shade], pixels[4 * at + 1] = table[shade + 1], pixels[4 * at + 2] = table[shade + 2];
      pixels[4 * at + 3] = isHidden && isHidden(i, j) ? 0 : 255;
    }
}

// A weight, or a difference of two, as a share of the scale.
const LOG_RANGE = 12;  // powers of two
function shareOf(weight) {
  const size = Math.abs(weight);
  if (size === 0 || size < state.min) return 0;
  return weight < 0 ? -placeOnScale(size) : placeOnScale(size);
}
function placeOnScale(size) {
  if (state.scale === "log") return Math.max(0, 1 + Math.log2(size) / LOG_RANGE);
  return state.scale === "linear" ? size : Math.sqrt(size);
}
// The weight at a share of the scale.
const weightAt = (share) => (state.scale === "linear" ? share : state.scale === "log" ? 2 ** ((share - 1) * LOG_RANGE) : share * share);

const signOf = (weight) => (weight < 0 ? "−" : "");
// Two digits, since weights are stored within 2.2 %.
const twoDigits = (size) => (size === 0 ? "0" : size >= 9.95 ? String(Math.round(size)) : size < 0.001 ? "< 0.001" : size.toPrecision(2));
const percent = (weight) => signOf(weight) + twoDigits(100 * Math.abs(weight)) + " %";
const inkOf = (name) => getComputedStyle(document.documentElement).getPropertyValue(name);
const FONT = 'Inter, "Helvetica Neue", Arial, "Noto Sans", "Noto Sans CJK SC", sans-serif';
const fontOf = (size) => size + "px " + FONT;
