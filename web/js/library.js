// The WebAssembly module, its memory and its errors.

/// The module, gzip in base64: script/web puts it here.
const packed = "@WASM@";

async function unpacked() {
  const bytes = Uint8Array.from(atob(packed), (character) => character.charCodeAt(0));
  const stream = new Blob([bytes]).stream().pipeThrough(new DecompressionStream("gzip"));
  return new Response(stream).arrayBuffer();
}

async function loaded() {
  const host = new Wasi();
  const module = await WebAssembly.compile(await unpacked());
  const instance = await WebAssembly.instantiate(module, { wasi_snapshot_preview1: host.imports(module) });
  host.attach(instance);
  instance.exports._initialize();
  return instance.exports;
}

/// What the module exports: the C interface, and the functions of web/glue.
const library = await loaded();

/// WebAssembly gives addresses as signed numbers.
const address = (pointer) => pointer >>> 0;

function textAt(pointer) {
  const bytes = new Uint8Array(library.memory.buffer, address(pointer));
  return new TextDecoder().decode(bytes.slice(0, bytes.indexOf(0)));
}

const OUT_OF_MEMORY = 2;

/// Throws what a function of the library reports by its status.
function check(status) {
  if (status === OUT_OF_MEMORY) throw outOfMemory();
  if (status !== 0) throw new Error(textAt(library.saccade_last_error()));
}

function outOfMemory() {
  return new Error("[saccade] out of memory: WebAssembly has 4 GiB at most");
}

/// The memory of one call, freed when it ends.
class Call {
  constructor() {
    this.blocks = [];
  }

  /// Runs a function with a new call.
  static run(work) {
    const call = new Call();
    try {
      return work(call);
    } finally {
      for (const block of call.blocks) library.free(block);
    }
  }

  allocate(bytes) {
    const block = bytes < 2 ** 32 - 65536 ? address(library.malloc(Math.max(bytes, 1))) : 0;
    if (block === 0) throw outOfMemory();
    this.blocks.push(block);
    return block;
  }

  /// Gives up a block that the library has taken over.
  giveUp(block) {
    this.blocks = this.blocks.filter((other) => other !== block);
  }

  /// A copy of some bytes.
  copy(bytes) {
    const at = this.allocate(bytes.byteLength);
    memory().set(new Uint8Array(bytes.buffer, bytes.byteOffset, bytes.byteLength), at);
    return at;
  }

  text(text) {
    return this.copy(new TextEncoder().encode(`${text}\0`));
  }

  /// A list of 64-bit numbers.
  numbers(numbers) {
    return this.copy(BigInt64Array.from(numbers, (number) => BigInt(number)));
  }

  /// Writes structs of saccade_tensor, each 20 bytes, of tensors whose data lie at `places`; null: an empty view.
  tensors(tensors, places) {
    const at = this.allocate(20 * tensors.length);
    const shapes = tensors.map((tensor) => (tensor ? this.numbers(tensor.shape) : 0));
    const view = new DataView(library.memory.buffer);
    tensors.forEach((tensor, i) => {
      const words = [places[i] ?? 0, tensor ? DTYPES[tensor.dtype].code : 0, tensor?.shape.length ?? 0, shapes[i], 0];
      words.forEach((word, j) => view.setUint32(at + 20 * i + 4 * j, word, true));
    });
    return at;
  }

  /// A tensor to read.
  input(tensor) {
    if (tensor === null || tensor === undefined) return 0;
    const given = Tensor.from(tensor);
    return this.tensors([given], [this.copy(given.data)]);
  }

  /// A tensor to write. `result()` copies it out.
  output(shape, dtype) {
    const size = sizeOf(shape);
    const place = this.allocate(size * DTYPES[dtype].array.BYTES_PER_ELEMENT);
    const view = { shape, dtype };
    return {
      pointer: this.tensors([view], [place]),
      result: () => new Tensor(new DTYPES[dtype].array(library.memory.buffer, place, size).slice(), shape, dtype),
    };
  }

  /// Memory for a pointer that a function writes; `value()` reads it.
  pointer() {
    const at = this.allocate(4);
    return { at, value: () => new DataView(library.memory.buffer).getUint32(at, true) };
  }
}

/// The module's memory; it moves when it grows, so this is called anew for each use.
function memory() {
  return new Uint8Array(library.memory.buffer);
}

/// Copies the tensor out that a struct of saccade_tensor describes.
function tensorAt(pointer) {
  const view = new DataView(library.memory.buffer);
  const [data, code, rank, shapeAt] = [0, 4, 8, 12].map((offset) => view.getUint32(address(pointer) + offset, true));
  const shape = Array.from({ length: rank }, (_, i) => Number(view.getBigInt64(shapeAt + 8 * i, true)));
  const dtype = Object.keys(DTYPES).find((name) => DTYPES[name].code === code);
  return new Tensor(new DTYPES[dtype].array(library.memory.buffer, data, sizeOf(shape)).slice(), shape, dtype);
}
