// The types of saccade.js: those of attention.js, and modules, layers and a small language model.
import { Tensor, TensorLike, Nested } from "./attention.js";
export * from "./attention.js";

/** Tensors by name, as in checkpoints. */
export interface StateDict {
  [name: string]: Tensor;
}

/** The base of all with parameters. A new one is in training mode: forward() keeps what backward() needs. Its memory is in the
 * WebAssembly module: dispose() frees it, and so does the garbage collector, at some time. */
declare abstract class Module {
  /** Copies of the parameters by their names in PyTorch. */
  stateDict(): StateDict;
  /** Copies of their gradients, as far as there are any. */
  gradients(): StateDict;
  /** Replaces all parameters; f16, bf16 and f64 become f32. */
  loadStateDict(tensors: { [name: string]: TensorLike }): void;
  zeroGrad(): void;
  train(training?: boolean): void;
  eval(): void;
  dispose(): void;
}

/** `seed`: parameters as PyTorch draws them after torch.manual_seed(seed). Without it they are zeros, for loadStateDict(). */
export interface Seeded {
  seed?: number | bigint;
}

export interface AttentionForwardOptions {
  /** Inputs to attend to instead of the queries' own: [batch, seqlen_k, width]; value is key unless given. */
  key?: TensorLike;
  value?: TensorLike;
  /** bool (true = attend) or f32 (added), broadcast against [batch, heads, seqlen_q, seqlen_k]. */
  mask?: TensorLike;
  /** The keys that count: [batch, seqlen_k]. */
  keyMask?: TensorLike;
  causal?: boolean;
  /** Also return the weights, [batch, heads, seqlen_q, seqlen_k], or their mean over the heads. */
  weights?: "none" | "per_head" | "averaged";
  /** Also return q, k, v and context. */
  steps?: boolean;
}

export interface AttentionOutput {
  output: Tensor;
  weights?: Tensor;
  q?: Tensor;
  k?: Tensor;
  v?: Tensor;
  context?: Tensor;
}

/** Projections to q, k and v, attention, and a projection of the result where the module has one. */
declare abstract class AttentionModule extends Module {
  /** x is f32 [seqlen, dIn] or [batch, seqlen, dIn]. */
  forward(x: TensorLike, options?: AttentionForwardOptions): AttentionOutput;
  /** Adds the gradients of the parameters, and returns those of the inputs: of x, or of query, key and value. */
  backward(dout: TensorLike): { x?: Tensor; query?: Tensor; key?: Tensor; value?: Tensor };
}

/** One head over a whole sequence. `plain`: parameters [dIn, dOut] instead of linear layers. */
export class SelfAttention extends AttentionModule {
  constructor(options: Seeded & { dIn: number; dOut: number; plain?: boolean; qkvBias?: boolean });
}

/** One causal head with dropout. */
export class CausalAttention extends AttentionModule {
  constructor(
    options: Seeded & { dIn: number; dOut: number; contextLength?: number; dropout?: number; qkvBias?: boolean },
  );
}

/** Several heads and an output projection, as torch.nn.MultiheadAttention with `torchMultihead`. */
export class MultiHeadAttention extends AttentionModule {
  constructor(
    options: Seeded & {
      dIn: number; dOut: number; numHeads?: number; numKvHeads?: number; keyWidth?: number; valueWidth?: number;
      contextLength?: number; causal?: boolean; dropout?: number; qkvBias?: boolean; outBias?: boolean;
      addBiasKv?: boolean; addZeroAttn?: boolean; torchMultihead?: boolean;
    },
  );
}

/** A module that maps one tensor to one. */
declare abstract class Layer extends Module {
  forward(x: TensorLike): Tensor;
  /** Adds the gradients of the parameters, and returns that of x. */
  backward(dout: TensorLike): Tensor;
}

/** y = x weight^T + bias. */
export class Linear extends Layer {
  constructor(options: Seeded & { dIn: number; dOut: number; bias?: boolean });
}

/** Rows with mean 0 and variance 1, times a scale, plus a shift. */
export class LayerNorm extends Layer {
  constructor(options: { dim: number; eps?: number });
}

/** Linear, GELU, Linear. */
export class FeedForward extends Layer {
  constructor(options: Seeded & { dim: number; hidden: number });
}

/** Tokens: whole numbers. */
export type Tokens = TensorLike | Nested[];

/** Rows of a table. backward() returns nothing, because tokens have no gradient. */
export class Embedding extends Module {
  constructor(options: Seeded & { numEmbeddings: number; dim: number });
  forward(tokens: Tokens): Tensor;
  backward(dout: TensorLike): void;
}

/** The mean of -log softmax(logits)[target], and its gradient. Targets of `ignoreIndex` (-100) do not count. */
export function crossEntropy(
  logits: TensorLike, targets: Tokens, options?: { ignoreIndex?: number },
): { loss: number; dlogits: Tensor };

/** Updates a module's parameters from their gradients, as torch.optim.AdamW does. */
export class AdamW {
  constructor(
    module: Module,
    options?: {
      lr?: number; beta1?: number; beta2?: number; eps?: number; weightDecay?: number; decayVectors?: boolean;
    },
  );
  /** The learning rate of later steps. */
  lr: number;
  step(): void;
  dispose(): void;
}

/** A change of one head in a forward pass: its output becomes zeros, or its mean over the tokens, or the product of other weights
 * [tokens, keys] with its values. */
export interface HeadEdit {
  layer: number;
  head: number;
  by: "zero" | "mean" | TensorLike;
}

/** A small language model with GPT-2's architecture. */
export class GPTModel extends Module {
  constructor(
    options: Seeded & {
      vocabSize: number; contextLength: number; dModel: number; numLayers?: number; numHeads?: number;
      dHidden?: number; attentionOnly?: boolean; dropout?: number; qkvBias?: boolean; sinusoidal?: boolean;
    },
  );
  /** The model that a checkpoint was saved from, in evaluation mode. */
  static fromStateDict(tensors: { [name: string]: TensorLike }, numHeads: number): GPTModel;
  /** The logits of each next token, [batch, seqlen, vocabulary], of tokens [batch, seqlen]. */
  forward(tokens: Tokens): Tensor;
  /** Adds the gradients of the parameters. */
  backward(dlogits: TensorLike): void;
  /** The logits of one sequence [1, seqlen] with changed heads, [1, seqlen, vocabulary], and with `weights: true` the weights that
   * the heads of each layer had, [heads, seqlen, seqlen]. */
  look(tokens: Tokens, options?: { edits?: HeadEdit[]; weights?: boolean }): { logits: Tensor; weights?: Tensor[] };
  /** The weights of each layer, [batch, heads, seqlen, seqlen]. */
  attentionWeights(tokens: Tokens): Tensor[];
  /** The given tokens [length], and `count` more, each from the last `contextLength` ones. */
  generate(
    tokens: Tokens, count: number, options?: { temperature?: number; topK?: number; topP?: number; seed?: number },
  ): number[];
}

/** Random tokens in which a segment recurs: inputs and targets [batch, seqlen], and which targets follow from earlier
 * tokens. seqlen is 7 to vocabSize / 2. */
export function inductionBatch(
  options?: { vocabSize?: number; seed?: number; batchSize?: number; seqlen?: number },
): { inputs: Tensor; targets: Tensor; repeated: Tensor };

/** What a model of a folder is like; 0: not limited. */
export interface ModelSizes {
  /** model_type of config.json: "bert", "llama". */
  family: string;
  vocabSize: number;
  maxLength: number;
  dModel: number;
  numLayers: number;
  numHeads: number;
  numKvHeads: number;
  headDim: number;
  isCausal: boolean;
  hasLogits: boolean;
  endTokens: number[];
}

/** A model of a Hugging Face folder: BERT, GPT-2, Llama and their families (docs/models.md). Its files stay in the module's
 * memory, so it takes about twice their size. */
export class Model {
  /** The bytes of the folder's files by name: config.json, and model.safetensors or the files of its index. */
  constructor(files: { [name: string]: Uint8Array | ArrayBuffer });
  readonly sizes: ModelSizes;
  /** The state of each token after the last layer, [tokens, dModel]. Tokens of several sequences, one after the other, have
   * `lengths`; `types` are those of pairs of texts; `edits` change heads, of one sequence. `weights: true`: also those of each layer, [heads, tokens,
   * keys]. */
  hiddenStates(
    tokens: Tokens, options?: { lengths?: Tokens; types?: Tokens; edits?: HeadEdit[]; weights?: boolean },
  ): { states: Tensor; weights?: Tensor[] };
  /** The logits of states, [..., vocabSize]. */
  logits(states: TensorLike): Tensor;
  /** The given tokens, and up to `count` more, until one of sizes.endTokens. Decoders only. */
  generate(
    tokens: Tokens, count: number, options?: { temperature?: number; topK?: number; topP?: number; seed?: number },
  ): number[];
  dispose(): void;
}

/** The tensors of a .safetensors file by name, from its bytes. */
export function parseSafetensors(bytes: Uint8Array | ArrayBuffer): StateDict;

/** The bytes of a .safetensors file with these tensors. */
export function toSafetensors(tensors: StateDict): Uint8Array;

/** The matrix product of a [m, k] and b [k, n], f64. */
export function matmul(a: TensorLike, b: TensorLike): Tensor;

/** Scores as weights along the last dimension, f64. "softmax" (default) subtracts the largest score first; "naive" does not, so
 * that exp() overflows from 710 on and gives NaN; "sum" divides by the sum. */
export function softmax(scores: TensorLike, kind?: "softmax" | "naive" | "sum"): Tensor;

/** PyTorch's generator on CPUs after torch.manual_seed(seed), a whole number of 64 bits: the same calls in the same order draw the same
 * numbers, f32. */
export class TorchGenerator {
  constructor(seed: number | bigint);
  /** torch.rand(shape): in [0, 1). */
  rand(shape: number[]): Tensor;
  /** torch.randn(shape): normally distributed. */
  randn(shape: number[]): Tensor;
  /** torch.empty(shape).uniform_(low, high). */
  uniform(shape: number[], low: number, high: number): Tensor;
  /** The parameters of a new torch.nn.Linear: weight [dOut, dIn], and bias [dOut] unless `bias` is false. */
  linear(dIn: number, dOut: number, bias?: boolean): { weight: Tensor; bias?: Tensor };
  /** The elements that torch.nn.functional.dropout keeps, bool; p is the probability of dropping. */
  dropoutMask(shape: number[], p: number): Tensor;
  dispose(): void;
}

/** NumPy's legacy generator after np.random.seed(seed), a whole number of 32 bits. */
export class NumpyRandomState {
  constructor(seed: number);
  /** np.random.randint(low, high, size=shape): i64 in [low, high). */
  randint(low: number, high: number, shape: number[]): Tensor;
  /** np.random.rand: f64 in [0, 1). */
  randomSample(shape: number[]): Tensor;
  /** np.random.randn: f64, normally distributed. */
  standardNormal(shape: number[]): Tensor;
  dispose(): void;
}
