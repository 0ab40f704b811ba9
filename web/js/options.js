// Options by name, as the C interface takes them.

const KINDS = { attention: 0, kvCache: 1, inspect: 2, rope: 3 };

/// "windowLeft" as "window_left".
function snakeCase(name) {
  return name.replace(/[A-Z]/g, (letter) => `_${letter.toLowerCase()}`);
}

/// Options of one kind in the library's memory, which the call frees in the end with destroy().
class Options {
  constructor(call, kind) {
    const created = call.pointer();
    check(library.saccade_options_create(KINDS[kind], created.at));
    this.call = call;
    this.pointer = created.value();
  }

  destroy() {
    library.saccade_options_destroy(this.pointer);
  }

  set(name, value) {
    if (value === undefined || value === null) return;
    const cName = this.call.text(snakeCase(name));
    if (typeof value === "bigint" || typeof value === "boolean" || Number.isSafeInteger(value))
      check(library.saccade_options_set_i64(this.pointer, cName, BigInt(value)));
    else if (typeof value === "number") check(library.saccade_options_set_f64(this.pointer, cName, value));
    else if (typeof value === "string")
      check(library.saccade_options_set_text(this.pointer, cName, this.call.text(value)));
    else check(library.saccade_options_set_tensor(this.pointer, cName, this.call.input(value)));
  }

  /// Names a tensor to write.
  setOutput(name, output) {
    check(library.saccade_options_set_tensor(this.pointer, this.call.text(snakeCase(name)), output.pointer));
  }

  static use(call, kind, values, work) {
    const options = new Options(call, kind);
    try {
      for (const [name, value] of Object.entries(values)) options.set(name, value);
      return work(options);
    } finally {
      options.destroy();
    }
  }
}
