// Models of Hugging Face folders: BERT, GPT-2, Llama and their families.

const MODEL_SIZES = ["vocabSize", "maxLength", "dModel", "numLayers", "numHeads", "numKvHeads", "headDim", "isCausal",
  "hasLogits"];

class Model extends Handle {
  /// `files`: the bytes of a folder's files by name, config.json and model.safetensors among them.
  constructor(files) {
    super((call, result) => library.web_model_create(result), library.web_model_destroy);
    try {
      for (const [name, bytes] of Object.entries(files)) this.add(name, bytesOf(bytes));
      this.run((call, model) => library.web_model_load(model));
      this.sizes = this.readSizes();
    } catch (error) {
      this.dispose();
      throw error;
    }
  }

  /// Copies a file into memory that the model keeps, and says where its tensors lie.
  add(name, bytes) {
    const entries = name.endsWith(".safetensors") ? entriesOf(bytes) : [];
    const names = new TextEncoder().encode(entries.map((entry) => `${entry.name}\0`).join(""));
    this.run((call, model) => {
      const at = call.copy(bytes);
      const status = library.web_model_add_file(model, call.text(name), at, bytes.length, call.copy(names), names.length,
        call.tensors(entries, entries.map(({ begin }) => at + begin)));
      if (status === 0) call.giveUp(at);
      return status;
    });
  }

  readSizes() {
    let family;
    const { sizes, ends } = this.run((call, model) => {
      const status = library.web_model_sizes(model);
      family = textAt(library.web_text());
      return status;
    });
    const numbers = Object.fromEntries(MODEL_SIZES.map((name, i) => [name, Number(sizes.data[i])]));
    return { ...numbers, family, isCausal: numbers.isCausal === 1, hasLogits: numbers.hasLogits === 1,
      endTokens: Array.from(ends?.data ?? [], Number) };
  }

  /// The state of each token after the last layer, [tokens, dModel], and with `weights: true` those of each layer; `edits` change heads.
  hiddenStates(tokens, { lengths, types, edits = [], weights = false } = {}) {
    const { states, ...others } = this.run((call, model) => {
      const lists = [tokens, lengths, types].map((list) => list && call.input(tokensFrom(list)));
      return library.web_model_states(model, ...lists.map((list) => list ?? 0), ...headEdits(call, edits),
        Number(weights));
    });
    return weights ? { states, weights: Object.values(others) } : { states };
  }

  /// The logits of states.
  logits(states) {
    return this.run((call, model) => library.web_model_logits(model, call.input(states))).logits;
  }

  /// The given tokens, and up to `count` more, until a token that ends a text.
  generate(tokens, count, options = {}) {
    const { tokens: all } = this.run((call, model) =>
      library.web_model_generate(model, call.input(tokensFrom(tokens)), BigInt(count), ...fields(call, options)));
    return Array.from(all.data, Number);
  }
}
