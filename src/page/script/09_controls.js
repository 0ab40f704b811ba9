// The controls: views as tabs, layer, head and summary; all others in a panel that opens.
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
const optionsOf = (values, nameOfValue) => values.map((value) => make("option", { value, textContent: nameOfValue(value) }));
function labelled(key, ...elements) {
  return make("label", {}, say(key) + " ", ...elements);
}

function selectOf(key, values, nameOfValue = say) {
  const select = tipped(make("select", { onchange: () => choose({ [key]: select.value }) }, ...optionsOf(values, nameOfValue)), key);
  shows(() => { select.value = state[key]; });
  return labelled(key, select);
}
function buttonOf(name, text = say(name)) {
  return tipped(make("button", { type: "button", textContent: text, onclick: () => KEYS[name][2](1) }), name);
}
function switchOf(key, isOn = () => Boolean(state[key])) {
  const button = buttonOf(key);
  shows(() => button.setAttribute("aria-pressed", String(isOn())));
  return button;
}
// The layer and the head, each by its number; a dot marks heads of which the file has the thumbnail only.
function placeSelect(key, count, isKept) {
  const select = tipped(make("select", { onchange: () => choose({ [key]: Number(select.value) }) }, ...optionsOf(Array.from({ length: count }, (_, i) => i), String)), key);
  shows(() => {
    for (const option of select.options) option.textContent = key.toUpperCase() + option.value + (isKept(Number(option.value)) ? "" : " ·");
    select.value = state[key];
  });
  return labelled(key === "l" ? "layer" : "head1", select);
}
// The parts of the page: along a slider if they are states of one model, and a second one to compare with.
function partControls() {
  const { parts, sequence } = data.index, nameOfPart = (p) => (p < 0 ? say("none") : parts[p].name);
  if (!CAN.part()) return [];
  const select = (key, numbers) => {
    const element = tipped(make("select", { onchange: () => choose({ [key]: Number(element.value) }) }, ...optionsOf(numbers, nameOfPart)), key);
    shows(() => { element.value = state[key]; });
    return element;
  };
  const others = partNumbers().filter(comparable), second = others.length > 0 ? [labelled("against", select("b", [-1, ...others]))] : [];
  const isTraining = parts.every(({ name, run }) => run || /^step \d+$/.test(name));
  if (!sequence) return [labelled("part", select("p", partNumbers())), ...second];
  const slider = tipped(make("input", { type: "range", min: 0, max: parts.length - 1, step: 1, oninput: () => choose({ p: Number(slider.value) }) }), "p"), name = make("output", {});
  shows(() => { slider.value = state.p, name.textContent = isTraining ? part().name.replace(/^step /, "") : part().name, slider.setAttribute("aria-valuetext", part().name); });
  return [labelled(isTraining ? "trainingStep" : "part", slider, name), ...second];
}
function thresholdOf() {
  const slider = tipped(make("input", { type: "range", min: 0, max: 0.5, step: 0.01, oninput: () => choose({ min: Number(slider.value) }) }), "min"), output = make("output", {});
  shows(() => {
    const text = state.min > 0 ? Math.round(100 * state.min) + " %" : say("noMin");
    slider.value = state.min, output.textContent = text, slider.setAttribute("aria-valuetext", text);
  });
  return labelled("min", slider, output);
}
function findField() {
  const field = tipped(make("input", { type: "search", id: "find", size: 14, oninput: () => choose({ find: field.value }) }), "find");
  shows(() => { if (field.value !== state.find) field.value = state.find; });
  return labelled("find", field);
}
function tabOf(view) {
  const tab = buttonOf("view" + view, say(view));
  tab.setAttribute("role", "tab");
  tab.setAttribute("aria-controls", "view-" + view);
  tab.dataset.key = "view" + view;
  shows(() => tab.setAttribute("aria-selected", String(state.view === view)));
  return tab;
}

function fillPanel() {
  const group = (title, ...elements) => make("fieldset", {}, make("legend", { textContent: say(title) }), ...elements);
  const nameOfOrder = (order) => (MEASURES.includes(order) ? nameOfMeasure(order) : say(order)), there = ["norm", "words", "special", "first"].filter((key) => CAN[key]());
  const heads = [buttonOf("telling"), switchOf("set", () => state.set.includes(currentHead())), selectOf("sort", CHOICES.sort, nameOfOrder)];
  $("panel").replaceChildren(group("heads", ...heads), group("reading", selectOf("dir", CHOICES.dir), findField()), group("colors", selectOf("scale", CHOICES.scale), thresholdOf()), ...(there.length > 0 ? [group("weights", ...there.map((key) => switchOf(key)))] : []),
    group("saving", ...["csv", "png", "svg"].map((kind) => buttonOf(kind))), make("button", { type: "button", textContent: say("close"), onclick: () => showPanel(false) }));
}
function showPanel(isOpen) {
  if (ui.panel === isOpen) return;
  ui.panel = isOpen, $("panel").hidden = !isOpen;
  $("options").setAttribute("aria-expanded", String(isOpen));
  if (isOpen) $("panel").querySelector("button").focus();
  else $("options").focus();
}

function makeControls() {
  controls.update = [];
  for (const [id, name] of [["views", "views"], ["controls", "controls"], ["tools", "page"], ["panel", "options"]]) $(id).setAttribute("aria-label", say(name));
  for (const view of VIEWS) $("view-" + view).setAttribute("aria-label", say(view));
  $("views").replaceChildren(...VIEWS.map(tabOf));
  $("bar").classList.toggle("parts", CAN.part());
  const own = part(), options = buttonOf("options");
  options.id = "options";
  options.setAttribute("aria-expanded", String(ui.panel)), options.setAttribute("aria-controls", "panel");
  const place = [placeSelect("l", own.layers, () => true), placeSelect("h", own.heads, (h) => own.keptHeads.has(state.l * own.heads + h))];
  $("controls").replaceChildren(...partControls(), ...place, selectOf("of", sourcesOf(own), nameOfSource), options);
  $("tools").replaceChildren(...["tour", "keyList", "lang", "theme"].map((name) => buttonOf(name)));
  fillPanel();
}
function drawControls() {
  const key = language() + (data.index.sequence ? "" : state.p);
  if (controls.key !== key) makeControls();
  controls.key = key;
  for (const update of controls.update) update();
  document.documentElement.lang = language();
  document.documentElement.dataset.theme = shownTheme();
}
