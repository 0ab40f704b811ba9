// The types of attention.js, which saccade.js has too. What is computed, and which options go together: docs/contract.md and
// docs/options.md of the repository. Every error is an Error whose message names the argument, what was expected and what was
// given.

/** Element types. JavaScript has no arrays of f16, bf16 and f8e4m3: theirs hold the bits. */
export type DType =
  | "f32" | "f64" | "f16" | "bf16" | "bool" | "i8" | "i16" | "i32" | "i64" | "u8" | "u16" | "u32" | "u64" | "f8e4m3";

/** The typed arrays that tensors are made of. */
export type TypedArray =
  | Float32Array | Float64Array | Int8Array | Int16Array | Int32Array | BigInt64Array
  | Uint8Array | Uint16Array | Uint32Array | BigUint64Array;

/** Nested arrays: rows, rows of rows, ... */
export type Nested = number | boolean | bigint | Nested[];

/** What functions take as a tensor: one, a typed array of one dimension, or nested arrays of f32. */
export type TensorLike = Tensor | TypedArray | Nested[];

/** Numbers in row-major order with a shape. Functions copy them into the module's memory, and results out of it. */
export class Tensor {
  /** `shape`: default one dimension. `dtype`: default by the array; a Uint16Array is u16, a Uint8Array u8. */
  constructor(data: TypedArray, shape?: number[], dtype?: DType);
  /** Of nested arrays; numbers become f32, booleans bool and BigInts i64, unless `dtype` says otherwise. */
  static of(nested: Nested[], dtype?: DType): Tensor;
  /** Of zeros; f32 by default. */
  static zeros(shape: number[], dtype?: DType): Tensor;
  /** The tensor itself, or a tensor of what it was given. */
  static from(given: TensorLike): Tensor;
  readonly data: TypedArray;
  readonly shape: number[];
  readonly dtype: DType;
  /** How many numbers it has. */
  readonly size: number;
  /** The same numbers, shared, with another shape. */
  reshape(shape: number[]): Tensor;
  /** One number. */
  at(...index: number[]): number | bigint;
  /** Nested arrays. */
  toArray(): Nested;
}

/** Options of attention, its gradients and its inspection; all are optional. */
export interface AttentionOptions {
  /** Factor of the dot products; default 1 / sqrt(head_dim). */
  scale?: number;
  /** Bound of the logits; 0 (default) switches it off. */
  softcap?: number;
  /** Hides later keys: "top_left" aligns the first row and key, "bottom_right" the last ones. Default "none". */
  causal?: "none" | "top_left" | "bottom_right";
  /** The position of query row 0, or i32 or i64 [batch]: one for each batch entry. */
  queryOffset?: number;
  queryOffsets?: TensorLike;
  /** Keys visible to the left and right of a row's position, inclusive; -1 (default) leaves the side open. */
  windowLeft?: number;
  windowRight?: number;
  /** bool (true = attend), or f32 or f64 (added to the logits; -Infinity hides), broadcast from the right against [batch,
   * heads, seqlen_q, seqlen_k]. */
  mask?: TensorLike;
  /** A bool for each block of blockMaskQ rows and blockMaskK keys (default 128 each), true = attend. */
  blockMask?: TensorLike;
  blockMaskQ?: number;
  blockMaskK?: number;
  /** The number of keys in each batch entry, and the first one that is not padding: i32 or i64 [batch]. */
  kvLengths?: TensorLike;
  kvStarts?: TensorLike;
  /** Where packed documents begin, and their total: i32 or i64 [documents + 1]. */
  cuSeqlensQ?: TensorLike;
  cuSeqlensK?: TensorLike;
  /** Keys and values in pages: i32 [batch, max_pages]. Not for gradients. */
  blockTable?: TensorLike;
  /** Scales of quantized keys and values. */
  kScale?: TensorLike;
  vScale?: TensorLike;
  /** Slopes of linear biases: f32 or f64 [heads] or [batch, heads]; see alibiSlopes(). */
  alibiSlopes?: TensorLike;
  /** One logit for each head that only adds to the denominator: f32 or f64 [heads]. */
  sinks?: TensorLike;
  /** The probability of dropping a weight, drawn by `dropoutSeed` and `dropoutOffset`. */
  dropoutP?: number;
  dropoutSeed?: number | bigint;
  dropoutOffset?: number;
  /** Axes of q, k, v and o: [batch, heads, seqlen, dim] (default) or [batch, seqlen, heads, dim]. */
  layout?: "bhsd" | "bshd";
  /** "reference" computes in double precision, row by row: to check a doubtful number. */
  backend?: string;
}

export interface ForwardOptions extends AttentionOptions {
  /** Also return the natural logarithm of each row's denominator: [batch, heads, seqlen_q]. */
  lse?: boolean;
  /** Also return the weights: [batch, heads, seqlen_q, seqlen_k]. Their memory is quadratic. */
  weights?: boolean;
  /** The weights after dropout instead of before. */
  weightsAfterDropout?: boolean;
  /** Also return the scores of a stage, with the shape of the weights. */
  scores?: boolean;
  scoreStage?: "raw" | "softcapped" | "biased" | "probabilities";
}

/** o has q's element type. The others are there if an option asks for them: f32, or f64 for f64 inputs. */
export interface AttentionResult {
  o: Tensor;
  lse?: Tensor;
  weights?: Tensor;
  scores?: Tensor;
}

/** o = softmax(scale q k^T + ...) v for every batch entry and head. q [batch, heads, seqlen_q, dim], k [batch, kv heads,
 * seqlen_k, dim], v [batch, kv heads, seqlen_k, dim_v]; batch, or batch and heads, may be absent from all three. */
export function attention(q: TensorLike, k: TensorLike, v: TensorLike, options?: ForwardOptions): AttentionResult;

/** The same for few rows over many keys, as in generating text. */
export function decode(q: TensorLike, k: TensorLike, v: TensorLike, options?: ForwardOptions): AttentionResult;

/** What gradients need from the forward pass, and the gradients of its results. */
export interface AttentionOutcome {
  o: TensorLike;
  lse: TensorLike;
  dout: TensorLike;
  dlse?: TensorLike;
}

export interface BackwardOptions extends AttentionOptions {
  /** Also return the gradients of these options. */
  dmask?: boolean;
  dsinks?: boolean;
  dalibiSlopes?: boolean;
}

export interface AttentionGradients {
  dq: Tensor;
  dk: Tensor;
  dv: Tensor;
  dmask?: Tensor;
  dsinks?: Tensor;
  dalibiSlopes?: Tensor;
}

/** The gradients of a loss, from dout, the gradient with respect to o. The options are those of the forward call. */
export function attentionBackward(
  q: TensorLike, k: TensorLike, v: TensorLike, outcome: AttentionOutcome, options?: BackwardOptions,
): AttentionGradients;

/** Which statistics of the weights to compute. */
export interface InspectOptions {
  /** Query rows whose weights to return in full. */
  rows?: number[];
  /** How many keys to return for each row, those with the largest weights. */
  topK?: number;
  /** The element type of their indices: "i64" (default) or "i32". */
  indexDtype?: "i32" | "i64";
  /** The entropy of each row in nats. */
  entropy?: boolean;
  /** The largest weight of each row. */
  maxWeight?: boolean;
  /** The sum of the weights that each key receives. */
  received?: boolean;
  /** The mean distance of each row, in positions, and of each head. */
  distance?: boolean;
  /** The size of a map of the whole matrix, and how a cell follows from its weights: "mean" (default) or "max". */
  poolRows?: number;
  poolKeys?: number;
  pooling?: "mean" | "max";
  /** The lse of attention() for the same call, which halves the work. */
  lse?: TensorLike;
}

/** The statistics that were asked for, each [batch, heads, ...] with the axes that q has. */
export interface Inspection {
  rows?: Tensor;
  topKeys?: Tensor;
  topWeights?: Tensor;
  entropy?: Tensor;
  maxWeight?: Tensor;
  received?: Tensor;
  distance?: Tensor;
  meanDistance?: Tensor;
  pooled?: Tensor;
}

/** Statistics of the weights that attention() would use, in memory that is linear in the sequence length. */
export function inspect(q: TensorLike, k: TensorLike, wanted: InspectOptions, options?: AttentionOptions): Inspection;

/** The standard slopes of ALiBi, f32 [heads]. */
export function alibiSlopes(heads: number): Tensor;

/** Everything optional about a picture. */
export interface HeatmapOptions {
  /** Labels of the rows and columns; default: positions. */
  queryTokens?: string[];
  keyTokens?: string[];
  title?: string;
  caption?: string;
  /** Above the panel of each head. */
  panelTitles?: string[];
  /** Names of the axes and of the value. */
  queryAxis?: string;
  keyAxis?: string;
  valueName?: string;
  /** The numbers of queries and keys behind a pooled map. */
  queries?: number;
  keys?: number;
  /** The values of the palest and of the darkest color. */
  low?: number;
  high?: number;
  scale?: "automatic" | "linear" | "logarithmic";
  /** Write values into the cells where they fit (default), with so many digits. */
  showValues?: boolean;
  decimals?: number;
}

/** A heat map of weights [seqlen_q, seqlen_k] or [heads, seqlen_q, seqlen_k], as an SVG document. */
export function heatmapSvg(weights: TensorLike, options?: HeatmapOptions): string;

/** Query and key tokens joined by lines, as an SVG document; up to 128 tokens. */
export function attentionLinesSvg(weights: TensorLike, options?: HeatmapOptions): string;

/** The library's version. */
export function version(): string;

/** The instruction set that calls use: "wasm128". */
export function activeIsa(): string;
