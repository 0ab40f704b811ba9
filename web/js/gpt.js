// A small GPT, its checkpoints and what it is trained on.

/// Edits of heads as the functions of web/glue take them: places and what is to be done, and weights.
function headEdits(call, edits) {
  if (edits.length === 0) return [0, 0];
  const kinds = ["zero", "mean"], kindOf = (by) => (kinds.includes(by) ? kinds.indexOf(by) : kinds.length);
  for (const { layer, head, by } of edits) {
    for (const [name, place] of Object.entries({ layer, head }))
      if (!Number.isSafeInteger(place)) throw new Error(`[edits] ${name} must be a whole number, but it is ${place}`);
    if (!kinds.includes(by) && (typeof by !== "object" || by === null))
      throw new Error(`[edits] by must be "zero", "mean" or the weights of a head, [tokens, tokens], but it is ${by}`);
  }
  const places = edits.flatMap(({ layer, head, by }) => [layer, head, kindOf(by)].map(BigInt));
  const given = edits.map(({ by }) => (kinds.includes(by) ? null : Tensor.from(by)));
  return [call.input(new Tensor(BigInt64Array.from(places), [edits.length, 3])),
    call.tensors(given, given.map((tensor) => (tensor ? call.copy(tensor.data) : 0)))];
}

class GPTModel extends Layer {
  /// A new model; GPTModel.fromStateDict() makes one of a checkpoint.
  constructor(options) {
    super("GPTModel", options);
  }

  static fromStateDict(tensors, numHeads) {
    return new GPTModel((call, result) =>
      library.web_gpt_from_state(...dictionary(call, tensors), BigInt(numHeads), result));
  }

  /// The logits of each next token, [batch, seqlen, vocabulary], of tokens [batch, seqlen].
  forward(tokens) {
    return super.forward(tokensFrom(tokens));
  }

  /// The logits of one sequence, [1, seqlen, vocabulary], without or with other heads, and with `weights: true` the weights of
  /// each layer, [heads, seqlen, seqlen].
  look(tokens, { edits = [], weights = false } = {}) {
    const { logits, ...others } = this.run((call, model) =>
      library.web_gpt_look(model, call.input(tokensFrom(tokens)), ...headEdits(call, edits), Number(weights)));
    return weights ? { logits, weights: Object.values(others) } : { logits };
  }

  /// The weights of each layer, [batch, heads, seqlen, seqlen].
  attentionWeights(tokens) {
    return Object.values(this.run((call, model) => library.web_gpt_weights(model, call.input(tokensFrom(tokens)))));
  }

  /// The given tokens, and `count` more.
  generate(tokens, count, options = {}) {
    const { tokens: all } = this.run((call, model) =>
      library.web_gpt_generate(model, call.input(tokensFrom(tokens)), BigInt(count), ...fields(call, options)));
    return Array.from(all.data, Number);
  }
}

/// Random tokens that repeat themselves, on which small models learn to look back.
function inductionBatch({ vocabSize = 128, seed = 0, batchSize = 1, seqlen = 32 } = {}) {
  return Call.run(() => {
    check(library.web_induction_batch(BigInt(vocabSize), BigInt(seed), BigInt(batchSize), BigInt(seqlen)));
    const [inputs, targets, repeated] = [0, 1, 2].map((i) => tensorAt(library.web_result(i)));
    library.web_release_results();
    return { inputs, targets, repeated };
  });
}
