// Tensors: typed arrays with a shape.

/// The element types, with their numbers in the C interface. JavaScript has no arrays of f16, bf16 and f8e4m3: theirs hold
/// the bits.
const DTYPES = {
  f32: { code: 0, array: Float32Array },
  f64: { code: 1, array: Float64Array },
  f16: { code: 2, array: Uint16Array },
  bf16: { code: 3, array: Uint16Array },
  bool: { code: 4, array: Uint8Array },
  i8: { code: 5, array: Int8Array },
  i16: { code: 6, array: Int16Array },
  i32: { code: 7, array: Int32Array },
  i64: { code: 8, array: BigInt64Array },
  u8: { code: 9, array: Uint8Array },
  u16: { code: 10, array: Uint16Array },
  u32: { code: 11, array: Uint32Array },
  u64: { code: 12, array: BigUint64Array },
  f8e4m3: { code: 13, array: Uint8Array },
};

function sizeOf(shape) {
  return shape.reduce((size, length) => size * length, 1);
}

/// The element type that a typed array has without being told: of several with one array the integer.
function dtypeOf(data) {
  const names = Object.keys(DTYPES).filter((name) => data instanceof DTYPES[name].array);
  if (names.length === 0) throw new Error("[Tensor] data must be a typed array of numbers");
  return names.find((name) => /^[iu]/.test(name)) ?? names[0];
}

class Tensor {
  constructor(data, shape = [data.length], dtype = dtypeOf(data)) {
    if (!(dtype in DTYPES)) throw new Error(`[Tensor] dtype must be one of ${Object.keys(DTYPES).join(", ")}`);
    if (!(data instanceof DTYPES[dtype].array))
      throw new Error(`[Tensor] data of ${dtype} must be a ${DTYPES[dtype].array.name}`);
    if (!shape.every((length) => Number.isSafeInteger(length) && length >= 0))
      throw new Error(`[Tensor] shape [${shape}] must hold whole numbers`);
    if (sizeOf(shape) !== data.length)
      throw new Error(`[Tensor] shape [${shape.join(", ")}] has ${sizeOf(shape)} numbers, but data has ${data.length}`);
    this.data = data;
    this.shape = [...shape];
    this.dtype = dtype;
  }

  static zeros(shape, dtype = "f32") {
    return new Tensor(new DTYPES[dtype].array(sizeOf(shape)), shape, dtype);
  }

  /// Of nested arrays of numbers or booleans.
  static of(nested, dtype) {
    const shape = [];
    for (let level = nested; Array.isArray(level); level = level[0]) shape.push(level.length);
    const check = (level, depth) => {
      const fits = Array.isArray(level) ? level.length === shape[depth] : depth === shape.length;
      if (!fits) throw new Error("[Tensor.of] rows have different lengths");
      if (Array.isArray(level)) level.forEach((inner) => check(inner, depth + 1));
    };
    check(nested, 0);
    const numbers = nested.flat(Infinity);
    const type = dtype ?? { boolean: "bool", bigint: "i64" }[typeof numbers[0]] ?? "f32";
    return new Tensor(DTYPES[type].array.from(numbers), shape, type);
  }

  /// What a function was given: a tensor, a typed array (of one dimension), or nested arrays.
  static from(given) {
    if (given instanceof Tensor) return given;
    if (given?.shape) return new Tensor(given.data, given.shape, given.dtype); // of another copy of this script
    if (!Array.isArray(given) && !ArrayBuffer.isView(given))
      throw new Error(`[Tensor] a tensor, a typed array or nested arrays must be given, but it is ${given}`);
    return Array.isArray(given) ? Tensor.of(given) : new Tensor(given);
  }

  get size() {
    return this.data.length;
  }

  /// The same numbers with another shape.
  reshape(shape) {
    return new Tensor(this.data, shape, this.dtype);
  }

  /// One number.
  at(...index) {
    if (index.length !== this.shape.length || index.some((i, axis) => !(i >= 0 && i < this.shape[axis])))
      throw new Error(`[Tensor.at] [${index.join(", ")}] is no index of shape [${this.shape.join(", ")}]`);
    return this.data[index.reduce((at, i, axis) => at * this.shape[axis] + i, 0)];
  }

  /// Nested arrays.
  toArray() {
    let numbers = Array.from(this.data);
    for (const length of this.shape.slice(1).reverse())
      numbers = Array.from({ length: length ? numbers.length / length : 0 }, (_, i) =>
        numbers.slice(i * length, (i + 1) * length));
    return this.shape.length === 0 ? numbers[0] : numbers;
  }
}
