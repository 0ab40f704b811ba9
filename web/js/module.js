// Modules and layers: handles of objects in the library's memory.

/// Frees what JavaScript no longer reaches, at some time; dispose() frees at once.
const forgotten = new FinalizationRegistry(({ destroy, pointer }) => destroy(pointer));

class Handle {
  /// `create(call, result)` writes a pointer.
  constructor(create, destroy) {
    this.pointer = Call.run((call) => {
      const result = call.pointer();
      check(create(call, result.at));
      return result.value();
    });
    this.destroy = destroy;
    forgotten.register(this, { destroy, pointer: this.pointer }, this);
  }

  /// Frees its memory; it cannot be used afterwards.
  dispose() {
    if (this.pointer === 0) return;
    forgotten.unregister(this);
    this.destroy(this.pointer);
    this.pointer = 0;
  }

  /// Runs a call of the object and returns the tensors that it gives, by name.
  run(work) {
    if (this.pointer === 0) throw new Error(`[${this.constructor.name}] it was disposed of`);
    return Call.run((call) => {
      check(work(call, this.pointer));
      const results = {};
      for (let i = 0; i < library.web_results(); ++i) {
        const tensor = tensorAt(library.web_result(i));
        if (tensor.shape.length > 0) results[textAt(library.web_result_name(i))] = tensor;
      }
      library.web_release_results();
      return results;
    });
  }
}

/// Names and tensors as the functions of web/glue take them.
function dictionary(call, tensors) {
  const names = new TextEncoder().encode(Object.keys(tensors).map((name) => `${name}\0`).join(""));
  const given = Object.values(tensors).map(Tensor.from);
  return [call.copy(names), names.length, call.tensors(given, given.map((tensor) => call.copy(tensor.data)))];
}

class Module extends Handle {
  /// `options`: of a new module of this kind, or a function that creates one.
  constructor(kind, options) {
    const create = (call, result) => library.web_module_create(call.text(kind), ...fields(call, options), result);
    super(options instanceof Function ? options : create, library.web_module_destroy);
  }

  /// Copies of the parameters by name.
  stateDict() {
    return this.run((call, module) => library.web_module_parameters(module, 0));
  }

  /// Copies of their gradients, as far as there are any.
  gradients() {
    return this.run((call, module) => library.web_module_parameters(module, 1));
  }

  loadStateDict(tensors) {
    this.run((call, module) => library.web_module_load(module, ...dictionary(call, tensors)));
  }

  zeroGrad() {
    this.run((call, module) => library.web_module_zero_grad(module));
  }

  train(training = true) {
    this.run((call, module) => library.web_module_train(module, Number(training)) ?? 0);
  }

  eval() {
    this.train(false);
  }
}

class AttentionModule extends Module {
  /// The inputs attend to themselves, or to `key` and `value`.
  forward(query, options = {}) {
    const { key, value, mask, keyMask, ...rest } = options;
    return this.run((call, module) => {
      const tensors = [query, key, key && (value ?? key), mask, keyMask].map((tensor) => call.input(tensor));
      return library.web_attention_forward(module, ...tensors, ...fields(call, rest));
    });
  }

  backward(dout) {
    return this.run((call, module) => library.web_attention_backward(module, call.input(dout)));
  }
}

class SelfAttention extends AttentionModule {
  constructor(options) {
    super("SelfAttention", options);
  }
}

class CausalAttention extends AttentionModule {
  constructor(options) {
    super("CausalAttention", options);
  }
}

class MultiHeadAttention extends AttentionModule {
  constructor(options) {
    super("MultiHeadAttention", options);
  }
}

/// A module that maps one tensor to one.
class Layer extends Module {
  forward(x) {
    return this.run((call, module) => library.web_layer_forward(module, call.input(x))).y;
  }

  /// Adds the gradients of the parameters, and returns that of x.
  backward(dout) {
    return this.run((call, module) => library.web_layer_backward(module, call.input(dout))).dx;
  }
}

class Linear extends Layer {
  constructor(options) {
    super("Linear", options);
  }
}

class LayerNorm extends Layer {
  constructor(options) {
    super("LayerNorm", options);
  }
}

class FeedForward extends Layer {
  constructor(options) {
    super("FeedForward", options);
  }
}

/// Tokens are numbers in nested arrays, or a tensor of whole numbers.
function tokensFrom(given) {
  const tensor = Array.isArray(given) ? Tensor.of(given, "f64") : Tensor.from(given);
  return new Tensor(BigInt64Array.from(tensor.data, BigInt), tensor.shape);
}

class Embedding extends Layer {
  constructor(options) {
    super("Embedding", options);
  }

  forward(tokens) {
    return super.forward(tokensFrom(tokens));
  }
}

/// The mean of -log softmax(logits)[target], and its gradient.
function crossEntropy(logits, targets, { ignoreIndex = -100 } = {}) {
  return Call.run((call) => {
    const loss = call.allocate(8);
    check(library.web_cross_entropy(call.input(logits), call.input(tokensFrom(targets)), BigInt(ignoreIndex), loss));
    const result = {
      loss: new DataView(library.memory.buffer).getFloat64(loss, true),
      dlogits: tensorAt(library.web_result(0)),
    };
    library.web_release_results();
    return result;
  });
}

/// Updates a module's parameters from their gradients.
class AdamW extends Handle {
  constructor(module, options = {}) {
    super((call, result) => library.web_adamw_create(module.pointer, ...fields(call, options), result),
      library.web_adamw_destroy);
    this.module = module; // keeps it alive
    this.lr = options.lr ?? 1e-3;
  }

  step() {
    this.run((call, optimizer) => library.web_adamw_step(optimizer, this.lr));
  }
}
