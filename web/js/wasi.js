// What a WebAssembly module asks of its host (WASI preview 1): time, random numbers, and output as text. There are no
// files: each other call answers that it does not exist.

const BAD_DESCRIPTOR = 8, NO_SUCH_CALL = 52;

/// The host of one module. `print(text, isError)` gets what it writes.
export class Wasi {
  constructor({ args = [], env = {}, print = () => {} } = {}) {
    this.lists = { args, environ: Object.entries(env).map(([name, value]) => `${name}=${value}`) };
    this.print = print;
    this.decoders = [1, 2].map(() => new TextDecoder());
  }

  /// The functions to import, once for each of the module's.
  imports(module) {
    const functions = {};
    for (const { name } of WebAssembly.Module.imports(module)) {
      const own = this[name] ?? this[name.replace(/^(args|environ)_/, "")];
      functions[name] = own ? (...given) => own.call(this, ...given, name.split("_")[0]) : () => NO_SUCH_CALL;
    }
    return functions;
  }

  /// To be called before the module is.
  attach(instance) {
    this.memory = instance.exports.memory;
  }

  view() {
    return new DataView(this.memory.buffer); // anew each time: memory that grows moves
  }

  /// args_sizes_get() and environ_sizes_get().
  sizes_get(count, bytes, list) {
    const texts = this.lists[list].map((text) => new TextEncoder().encode(text + "\0"));
    this.view().setUint32(count, texts.length, true);
    this.view().setUint32(bytes, texts.reduce((sum, text) => sum + text.length, 0), true);
    return 0;
  }

  /// args_get() and environ_get().
  get(pointers, at, list) {
    this.lists[list].forEach((text, i) => {
      const bytes = new TextEncoder().encode(text + "\0");
      this.view().setUint32(pointers + 4 * i, at, true);
      new Uint8Array(this.memory.buffer).set(bytes, at);
      at += bytes.length;
    });
    return 0;
  }

  clock_time_get(clock, precision, result) {
    const milliseconds = clock === 0 ? Date.now() : performance.now();
    this.view().setBigUint64(result, BigInt(Math.round(milliseconds * 1e6)), true);
    return 0;
  }

  random_get(at, bytes) {
    for (let i = 0; i < bytes; i += 65536)
      crypto.getRandomValues(new Uint8Array(this.memory.buffer, at + i, Math.min(65536, bytes - i)));
    return 0;
  }

  fd_write(descriptor, pieces, count, written) {
    if (descriptor !== 1 && descriptor !== 2) return BAD_DESCRIPTOR;
    const view = this.view();
    let bytes = 0;
    for (let i = 0; i < count; ++i) {
      const length = view.getUint32(pieces + 8 * i + 4, true);
      const piece = new Uint8Array(this.memory.buffer, view.getUint32(pieces + 8 * i, true), length);
      this.print(this.decoders[descriptor - 1].decode(piece, { stream: true }), descriptor === 2);
      bytes += length;
    }
    view.setUint32(written, bytes, true);
    return 0;
  }

  fd_prestat_get() {
    return BAD_DESCRIPTOR; // no folder is open
  }

  proc_exit(code) {
    throw new Exit(code);
  }
}

class Exit extends Error {
  constructor(code) {
    super(`exit code ${code}`);
    this.code = code;
  }
}

/// Runs a command and returns its exit code.
export async function run(bytes, options) {
  const host = new Wasi(options);
  const module = await WebAssembly.compile(bytes);
  const instance = await WebAssembly.instantiate(module, { wasi_snapshot_preview1: host.imports(module) });
  host.attach(instance);
  try {
    instance.exports._start();
    return 0;
  } catch (error) {
    if (error instanceof Exit) return error.code;
    throw error;
  }
}
