// Files of tensors: https://github.com/huggingface/safetensors.

const FILE_TYPES = { F32: "f32", F64: "f64", F16: "f16", BF16: "bf16", BOOL: "bool", I8: "i8", I16: "i16", I32: "i32",
  I64: "i64", U8: "u8", U16: "u16", U32: "u32", U64: "u64", F8_E4M3: "f8e4m3" };

/// Bytes of any view or buffer.
function bytesOf(given) {
  return new Uint8Array(given.buffer ?? given, given.byteOffset ?? 0, given.byteLength);
}

/// What a file holds: the name, type, shape and place of each tensor.
function entriesOf(file) {
  const refuse = (why) => {
    throw new Error(`[parseSafetensors] this is no safetensors file: ${why}`);
  };
  if (file.length < 8) refuse(`it has ${file.length} bytes`);
  const length = Number(new DataView(file.buffer, file.byteOffset).getBigUint64(0, true)), begin = 8 + length;
  if (begin > file.length) refuse(`its header has ${length} bytes, but the file ${file.length}`);
  let header;
  try {
    header = JSON.parse(new TextDecoder().decode(file.subarray(8, begin)));
  } catch {
    refuse("its header is not JSON");
  }
  delete header.__metadata__;
  return Object.entries(header).map(([name, about]) => {
    const dtype = FILE_TYPES[about.dtype], [from, to] = about.data_offsets ?? [];
    if (!dtype) refuse(`${name} has the type ${about.dtype}`);
    if (!Array.isArray(about.shape) || !about.shape.every((length) => Number.isSafeInteger(length) && length >= 0))
      refuse(`${name} has no shape`);
    const size = sizeOf(about.shape) * DTYPES[dtype].array.BYTES_PER_ELEMENT;
    if (!(from >= 0 && to - from === size && begin + to <= file.length)) refuse(`${name} does not lie within it`);
    return { name, dtype, shape: about.shape, begin: begin + from, end: begin + to };
  });
}

/// The tensors of a file by name, from its bytes.
function parseSafetensors(bytes) {
  const file = bytesOf(bytes);
  return Object.fromEntries(entriesOf(file).map(({ name, dtype, shape, begin, end }) => {
    const numbers = file.slice(begin, end).buffer; // slice() aligns
    return [name, new Tensor(new DTYPES[dtype].array(numbers), shape, dtype)];
  }));
}

/// The bytes of a file with these tensors.
function toSafetensors(tensors) {
  const header = {};
  let end = 0;
  for (const [name, tensor] of Object.entries(tensors)) {
    const dtype = Object.keys(FILE_TYPES).find((type) => FILE_TYPES[type] === tensor.dtype);
    header[name] = { dtype, shape: tensor.shape, data_offsets: [end, (end += tensor.data.byteLength)] };
  }
  let text = JSON.stringify(header);
  text += " ".repeat(-new TextEncoder().encode(text).length & 7);
  const encoded = new TextEncoder().encode(text), file = new Uint8Array(8 + encoded.length + end);
  new DataView(file.buffer).setBigUint64(0, BigInt(encoded.length), true);
  file.set(encoded, 8);
  for (const [name, { data }] of Object.entries(tensors))
    file.set(new Uint8Array(data.buffer, data.byteOffset, data.byteLength), 8 + encoded.length + header[name].data_offsets[0]);
  return file;
}
