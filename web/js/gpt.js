// A small GPT, its checkpoints and what it is trained on.

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
