// Files of tensors: https://github.com/huggingface/safetensors.

const FILE_TYPES = { F32: "f32", F64: "f64", F16: "f16", BF16: "bf16", BOOL: "bool", I8: "i8", I16: "i16", I32: "i32",
  I64: "i64", U8: "u8", U16: "u16", U32: "u32", U64: "u64", F8_E4M3: "f8e4m3" };

/// The tensors of a file by name, from its bytes.
function parseSafetensors(bytes) {
  const file = new Uint8Array(bytes.buffer ?? bytes, bytes.byteOffset ?? 0, bytes.byteLength);
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
  const tensors = {};
  for (const [name, about] of Object.entries(header)) {
    if (name === "__metadata__") continue;
    const dtype = FILE_TYPES[about.dtype], [from, to] = about.data_offsets ?? [];
    if (!dtype) refuse(`${name} has the type ${about.dtype}`);
    const size = sizeOf(about.shape ?? []) * DTYPES[dtype].array.BYTES_PER_ELEMENT;
    if (!(from >= 0 && to - from === size && begin + to <= file.length)) refuse(`${name} does not lie within it`);
    const numbers = file.slice(begin + from, begin + to).buffer; // slice() aligns
    tensors[name] = new Tensor(new DTYPES[dtype].array(numbers), about.shape, dtype);
  }
  return tensors;
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
