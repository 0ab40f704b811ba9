// What the instruments of the chapters share. A chapter registers a function that builds its instrument; every number in
// it comes from saccade.js, and every change by the reader leads to one call of its draw().

const instruments = {};

/// An element with attributes and children; a function is a listener, null an attribute that is left out.
function element(name, attributes = {}, ...children) {
  const svg = ["svg", "g", "line", "circle", "text", "path", "rect", "title"].includes(name);
  const made = svg ? document.createElementNS("http://www.w3.org/2000/svg", name) : document.createElement(name);
  for (const [key, value] of Object.entries(attributes)) {
    if (value instanceof Function) made.addEventListener(key, value);
    else if (value !== null && value !== false) made.setAttribute(key, value === true ? "" : value);
  }
  made.append(...children);
  return made;
}

/// A number as the tables show it.
function digits(value, count = 4) {
  if (Number.isNaN(value)) return "NaN";
  if (!Number.isFinite(value)) return value < 0 ? "−∞" : "∞";
  const text = Math.abs(value) < 1e5 ? Math.abs(value).toFixed(count) : Math.abs(value).toExponential(2);
  return (value < 0 && Number(text) !== 0 ? "−" : "") + text;
}

/// The number that a reader wrote, or null.
function numberOf(text) {
  const plain = text.trim().replace("−", "-").replace(",", ".");
  return /^[-+]?(\d+\.?\d*|\.\d+)(e[-+]?\d+)?$/i.test(plain) ? Number(plain) : null;
}

const counter = { next: 0 };
const freshId = () => `live-${++counter.next}`;

/// One instrument: its widgets, its exercises, and the drawing of all of it.
class Instrument {
  constructor(root, saccade, language) {
    this.root = root, this.saccade = saccade, this.language = language;
    this.exercises = [], this.draw = () => {};
    this.told = null;  // the matrix that the line of detail is about
    this.problem = element("p", { class: "live-problem", role: "alert" });
    this.detail = element("p", { class: "live-detail", role: "status", "aria-live": "polite" });
    root.replaceChildren();
    root.lang = language === "zh" ? "zh-CN" : "en";
  }

  /// A text in the page's language.
  say(texts) {
    return texts[this.language];
  }

  /// Draws everything anew: the numbers, then which exercises are solved.
  update() {
    const begin = performance.now();
    this.problem.textContent = "";
    try {
      this.draw();
      if (this.told) this.detail.textContent = this.told.explained();
      for (const exercise of this.exercises) exercise.check();
    } catch (error) {
      this.problem.textContent = error.message;
    }
    this.root.dataset.milliseconds = (performance.now() - begin).toFixed(2);
  }

  title(texts, lead) {
    this.root.append(element("h2", {}, this.say(texts)), element("p", { class: "live-lead" }, this.say(lead)));
  }

  /// A row of controls.
  controls(...widgets) {
    const row = element("div", { class: "live-controls" }, ...widgets.map((widget) => widget.node));
    this.root.append(row);
    return row;
  }

  /// Blocks side by side, below each other where there is no room.
  side(...widgets) {
    this.root.append(element("div", { class: "live-side" }, ...widgets.map((widget) => widget.node ?? widget)));
  }

  button(texts, press) {
    const node = element("button", { type: "button", click: () => (press(), this.update()) }, this.say(texts));
    return { node };
  }

  toggle(texts, value = false) {
    const input = element("input", { type: "checkbox", input: () => this.update() });
    input.checked = value;
    const node = element("label", {}, input, ` ${this.say(texts)}`);
    return { node, get value() { return input.checked; }, set value(now) { input.checked = now; } };
  }

  /// One of several values, as buttons: [[value, texts], ...].
  choice(texts, options, value) {
    const name = freshId();
    const inputs = options.map(([each]) =>
      element("input", { type: "radio", name, value: each, input: () => this.update() }));
    const labels = options.map(([, label], i) => element("label", {}, inputs[i], element("span", {}, this.say(label))));
    const node = element("fieldset", { class: "live-choice" }, element("legend", {}, this.say(texts)), ...labels);
    const widget = {
      node,
      get value() { return inputs.find((input) => input.checked).value; },
      set value(now) { for (const input of inputs) input.checked = input.value === String(now); },
    };
    widget.value = value;
    return widget;
  }

  /// One of many values, as a list.
  list(texts, options, value) {
    const select = element("select", { input: () => this.update() },
      ...options.map(([each, label]) => element("option", { value: each }, label instanceof Object ? this.say(label) : label)));
    select.value = value;
    const node = element("label", {}, `${this.say(texts)} `, select);
    return { node, get value() { return select.value; }, set value(now) { select.value = now; } };
  }

  slider(texts, { min, max, step = 1, value, format = String }) {
    const output = element("output", {});
    const input = element("input", { type: "range", min, max, step, input: () => (show(), this.update()) });
    const show = () => {
      output.textContent = format(Number(input.value));
      input.setAttribute("aria-valuetext", output.textContent);
    };
    const node = element("label", {}, `${this.say(texts)} `, input, " ", output);
    const widget = {
      node, input,
      get value() { return Number(input.value); },
      set value(now) { input.value = now, show(); },
    };
    widget.value = value;
    return widget;
  }

  /// A whole number, such as a seed: the last valid one.
  whole(texts, value, { max = 4294967295 } = {}) {
    const input = element("input", { type: "number", min: 0, max, step: 1, class: "live-whole",
      input: () => {
        const valid = /^\d+$/.test(input.value) && Number(input.value) <= max;
        input.setAttribute("aria-invalid", !valid);
        if (!valid) return;
        last = Number(input.value);
        this.update();
      },
      blur: () => { widget.value = last; } });
    const node = element("label", {}, `${this.say(texts)} `, input);
    let last;
    const widget = {
      node,
      get value() { return last; },
      set value(now) { last = now, input.value = now, input.setAttribute("aria-invalid", false); },
    };
    widget.value = value;
    return widget;
  }

  /// A line of text that the reader may change, such as a sentence.
  line(texts, value) {
    const input = element("input", { type: "text", value, input: () => this.update(), autocomplete: "off", spellcheck: "false" });
    const node = element("label", { class: "live-line" }, `${this.say(texts)} `, input);
    return { node, get value() { return input.value; }, set value(now) { input.value = now; } };
  }

  /// A heading for a block of widgets.
  block(texts, ...widgets) {
    return { node: element("div", { class: "live-block" }, element("h3", {}, this.say(texts)), ...widgets.map((each) => each.node ?? each)) };
  }

  /// What the reader may try. `done()` says whether it has been reached.
  exercise(texts, done) {
    const mark = element("span", { class: "live-mark" });
    const node = element("li", {}, mark, ` ${this.say(texts)}`);
    const solved = this.say({ en: "solved", zh: "已完成" }), open = this.say({ en: "to do", zh: "待完成" });
    const show = (is) => {
      node.classList.toggle("live-solved", is);
      mark.textContent = is ? `✓ ${solved}` : open;
    };
    show(false);
    // Once solved it stays so: the reader goes on to the next one.
    this.exercises.push({ node, check: () => { if (!node.classList.contains("live-solved") && done()) show(true); } });
  }

  /// Puts the exercises, the line that explains a cell, and errors at the end, and draws for the first time.
  finish() {
    const head = element("h3", {}, this.say({ en: "Try it", zh: "试一试" }));
    if (this.exercises.length > 0)
      this.root.append(head, element("ul", { class: "live-exercises" }, ...this.exercises.map(({ node }) => node)));
    this.root.append(this.problem);
    this.update();
    this.root.dataset.ready = performance.now().toFixed(0);
  }
}

/// A table of numbers. `shaded`: weights, whose cells are darker the larger they are. `explain(i, j)`: what a cell is made
/// of, shown while the reader points at it or moves to it by keyboard.
class Matrix {
  constructor(ui, { title, rows, columns, shaded = false, count = 4, explain = null, tolerance = 5e-5, corner = "" }) {
    Object.assign(this, { ui, rows, columns, shaded, count, explain, tolerance });
    this.summary = element("span", { class: "live-summary" });
    this.corner = corner;
    this.caption = element("caption", {}, ui.say(title), " ", this.summary);
    this.table = element("table", { class: "live-matrix", role: explain ? "grid" : null });
    this.node = element("div", { class: "live-scroll" }, this.table);
    if (explain) this.listen();
    this.build(rows, columns);
  }

  /// Cells for these rows and columns.
  build(rows, columns) {
    this.rows = rows, this.columns = columns;
    this.cells = rows.map(() => columns.map(() => element("td", { tabindex: this.explain ? -1 : null })));
    const head = element("tr", {}, element("td", {}, this.corner), ...columns.map((name) => element("th", { scope: "col" }, name)));
    const body = rows.map((name, i) => element("tr", {}, element("th", { scope: "row" }, name), ...this.cells[i]));
    this.table.replaceChildren(this.caption, element("thead", {}, head), element("tbody", {}, ...body));
    if (this.explain && this.cells.length > 0) this.cells[0][0]?.setAttribute("tabindex", 0);
  }

  /// Shows numbers, and of each whether it equals the printed one. `marked(i, j)`: cells to outline; `hidden(i, j)`: those
  /// that a mask hides.
  show(values, printed = null, marked = () => false, hidden = () => false) {
    this.values = values;
    let same = 0, total = 0;
    values.forEach((row, i) => row.forEach((value, j) => {
      const cell = this.cells[i][j], other = printed?.[i]?.[j];
      cell.textContent = digits(value, this.count);
      if (this.shaded) this.shade(cell, value);
      cell.classList.toggle("live-marked", marked(i, j));
      cell.classList.toggle("live-hidden", hidden(i, j));
      cell.classList.toggle("live-bad", Number.isNaN(value));
      const isSame = other !== undefined && Math.abs(value - other) <= this.tolerance + 1e-12;
      cell.classList.toggle("live-same", isSame);
      cell.classList.toggle("live-differs", other !== undefined && !isSame);
      cell.title = other === undefined ? "" : this.ui.say({ en: `printed: ${other}`, zh: `印出：${other}` });
      total += other !== undefined, same += isSame;
    }));
    this.summary.textContent = total === 0 ? "" : this.ui.say({
      en: `${same} of ${total} as printed`, zh: `${total} 个数中 ${same} 个与印出的相同` });
    this.summary.classList.toggle("live-all", total > 0 && same === total);
  }

  shade(cell, value) {
    const share = Number.isFinite(value) ? Math.min(Math.sqrt(Math.max(value, 0)), 1) : 0;
    const half = share <= 0.5 ? 2 * share : 2 * share - 1;  // of the way from pale to middle, or from there to deep
    cell.style.setProperty("--share", `${(100 * half).toFixed(1)}%`);
    cell.classList.add("live-shaded");
    cell.classList.toggle("live-deep", share > 0.5);
    // Where the other ink is easier to read, on a light page and on a dark one.
    cell.classList.toggle("live-strong", share > 0.58);
    cell.classList.toggle("live-bright", share > 0.42);
  }

  /// What is said of the cell that was pointed at last, if the table still has it.
  explained() {
    const [i, j] = this.place;
    return this.cells[i]?.[j] ? this.explain(i, j) : "";
  }

  /// Pointing at a cell or moving to it with the arrow keys explains it.
  listen() {
    const placeOf = (target) => {
      const cell = target.closest("td");
      const i = this.cells.findIndex((row) => row.includes(cell));
      return i < 0 ? null : [i, this.cells[i].indexOf(cell)];
    };
    const tell = (event) => {
      const place = placeOf(event.target);
      if (!place) return;
      this.place = place, this.ui.told = this;
      this.ui.detail.textContent = this.explained();
    };
    this.table.addEventListener("pointerover", tell);
    this.table.addEventListener("focusin", tell);
    this.table.addEventListener("click", (event) => {
      const place = placeOf(event.target);
      if (place) this.cells[place[0]][place[1]].focus();
    });
    this.table.addEventListener("keydown", (event) => {
      const step = { ArrowUp: [-1, 0], ArrowDown: [1, 0], ArrowLeft: [0, -1], ArrowRight: [0, 1] }[event.key];
      const place = placeOf(event.target);
      if (!step || !place) return;
      const next = this.cells[place[0] + step[0]]?.[place[1] + step[1]];
      if (!next) return;
      event.preventDefault();
      for (const row of this.cells) for (const cell of row) cell.tabIndex = -1;
      next.tabIndex = 0;
      next.focus();
    });
  }
}

/// A table of numbers that the reader may change: by typing, or by the arrow keys up and down. `values` is changed in place.
class Numbers {
  /// `range`: the ends of a slider below each number; null: none.
  constructor(ui, { title, rows, columns, values, step = 0.05, count = 2, changed = () => {}, corner = "", range = null }) {
    Object.assign(this, { ui, rows, columns, values, step, count, changed, corner, range });
    this.caption = element("caption", {}, ui.say(title));
    this.table = element("table", { class: "live-matrix live-numbers" });
    this.node = element("div", { class: "live-scroll" }, this.table);
    this.build(rows, columns);
  }

  build(rows, columns) {
    this.rows = rows, this.columns = columns;
    this.inputs = rows.map((row, i) => columns.map((column, j) => this.input(i, j, `${row}, ${column}`)));
    this.sliders = this.range && rows.map((row, i) => columns.map((column, j) => this.slider(i, j, `${row}, ${column}`)));
    const head = element("tr", {}, element("td", {}, this.corner), ...columns.map((name) => element("th", { scope: "col" }, name)));
    const body = rows.map((name, i) =>
      element("tr", {}, element("th", { scope: "row" }, name), ...this.inputs[i].map((input, j) => element("td", {}, input, ...(this.sliders ? [this.sliders[i][j]] : [])))));
    this.table.replaceChildren(this.caption, element("thead", {}, head), element("tbody", {}, ...body));
    this.show();
  }

  set(i, j, value) {
    this.values[i][j] = value;
    this.changed(i, j);
    this.ui.update();
  }

  slider(i, j, label) {
    const [min, max] = this.range;
    const name = this.ui.say({ en: `${label}, slider`, zh: `${label}，滑块` });
    const slider = element("input", { type: "range", min, max, step: 0.01, "aria-label": name,
      input: () => (this.set(i, j, Number(slider.value)), this.show()) });
    return slider;
  }

  input(i, j, label) {
    const set = (value) => this.set(i, j, value);
    const input = element("input", {
      type: "text", inputmode: "decimal", autocomplete: "off", "aria-label": label,
      input: () => {
        const value = numberOf(input.value);
        input.setAttribute("aria-invalid", value === null);
        if (value !== null) set(value);
      },
      blur: () => this.show(),
      keydown: (event) => {
        const direction = { ArrowUp: 1, ArrowDown: -1 }[event.key];
        if (!direction) return;
        event.preventDefault();
        set(Number((this.values[i][j] + direction * this.step).toFixed(10)));
        this.show();
      },
    });
    return input;
  }

  /// Writes the numbers into the fields, but for the one that the reader is typing in.
  show() {
    this.inputs.forEach((row, i) => row.forEach((input, j) => {
      const value = this.values[i][j];
      if (document.activeElement === input && numberOf(input.value) === value) return;
      input.value = Number.isInteger(value * 10 ** this.count) ? value.toFixed(this.count) : String(Number(value.toFixed(4)));
      input.setAttribute("aria-invalid", false);
    }));
    this.sliders?.forEach((row, i) => row.forEach((slider, j) => { slider.value = this.values[i][j]; }));
  }
}

/// Vectors as arrows in a plane of two of their dimensions, which the reader drags or moves with the arrow keys.
class Plane {
  constructor(ui, { names, values, axes, changed }) {
    Object.assign(this, { ui, names, values, axes, changed });
    this.low = -0.3, this.high = 1.3, this.size = 300;
    this.svg = element("svg", { viewBox: `0 0 ${this.size} ${this.size}`, class: "live-plane", role: "group",
      "aria-label": ui.say({ en: "The vectors in a plane", zh: "平面上的向量" }) });
    this.node = element("div", {}, this.svg);
    this.arrows = names.map((name, i) => this.arrow(name, i));
    const zero = this.x(0), end = this.size - 6;
    this.svg.append(
      element("line", { class: "live-axis", x1: 6, x2: end, y1: this.y(0), y2: this.y(0) }),
      element("line", { class: "live-axis", x1: zero, x2: zero, y1: 6, y2: end }),
      ...this.arrows.map(({ group }) => group));
  }

  x(value) { return ((value - this.low) / (this.high - this.low)) * this.size; }
  y(value) { return this.size - this.x(value); }

  arrow(name, i) {
    const line = element("line", { class: "live-arrow" });
    const point = element("circle", { r: 7, tabindex: 0, role: "button", class: "live-point" });
    const label = element("text", { class: "live-label" }, name);
    const group = element("g", {}, line, label, point);
    const move = (a, b) => {
      const [first, second] = this.axes();
      this.values[i][first] = Number(a.toFixed(2)), this.values[i][second] = Number(b.toFixed(2));
      this.changed(i);
      this.ui.update();
    };
    point.addEventListener("pointerdown", (event) => {
      point.setPointerCapture(event.pointerId);
      event.preventDefault();
      point.focus();
    });
    point.addEventListener("pointermove", (event) => {
      if (!point.hasPointerCapture(event.pointerId)) return;
      const box = this.svg.getBoundingClientRect(), range = this.high - this.low;
      const place = (share) => Math.min(Math.max(this.low + range * share, this.low), this.high);
      move(place((event.clientX - box.left) / box.width), place(1 - (event.clientY - box.top) / box.height));
    });
    point.addEventListener("keydown", (event) => {
      const step = { ArrowLeft: [-1, 0], ArrowRight: [1, 0], ArrowUp: [0, 1], ArrowDown: [0, -1] }[event.key];
      if (!step) return;
      event.preventDefault();
      const [first, second] = this.axes(), by = event.shiftKey ? 0.2 : 0.05;
      move(this.values[i][first] + by * step[0], this.values[i][second] + by * step[1]);
    });
    return { group, line, point, label };
  }

  /// `chosen`: the vector to draw strongly.
  show(chosen) {
    const [first, second] = this.axes(), labels = [];
    this.arrows.forEach(({ group, line, point, label }, i) => {
      const x = this.x(this.values[i][first]), y = this.y(this.values[i][second]);
      for (const [key, value] of Object.entries({ x1: this.x(0), y1: this.y(0), x2: x, y2: y })) line.setAttribute(key, value);
      point.setAttribute("cx", x), point.setAttribute("cy", y);
      let above = y - 7;  // below the labels that would be written over it
      while (labels.some(([otherX, otherY]) => Math.abs(otherX - x) < 45 && Math.abs(otherY - above) < 11)) above += 12;
      labels.push([x, above]);
      label.setAttribute("x", x + 9), label.setAttribute("y", above);
      group.classList.toggle("live-chosen", i === chosen);
      point.setAttribute("aria-label", this.ui.say({
        en: `${this.names[i]}: ${digits(this.values[i][first], 2)}, ${digits(this.values[i][second], 2)}; arrow keys move it`,
        zh: `${this.names[i]}：${digits(this.values[i][first], 2)}、${digits(this.values[i][second], 2)}；方向键可移动` }));
    });
  }
}

/// A matrix's numbers as rows.
const rowsOf = (tensor) => tensor.toArray();

/// Rows become columns.
const transposed = (rows) => rows[0].map((_, j) => rows.map((row) => row[j]));

/// The largest difference of two matrices.
const distance = (a, b) => Math.max(...a.flat().map((value, i) => Math.abs(value - b.flat()[i])));

/// Builds the instruments of a page, once saccade.js is there.
async function startInstruments() {
  const places = [...document.querySelectorAll(".live[data-instrument]")];
  for (const place of places) {
    try {
      const ui = new Instrument(place, await globalThis.saccadeLibrary, place.dataset.language);
      instruments[place.dataset.instrument](ui);
    } catch (error) {
      place.append(element("p", { class: "live-problem", role: "alert" }, String(error.message ?? error)));
    }
  }
}
