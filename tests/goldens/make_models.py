#!/usr/bin/env python3
"""Makes tests/data/models: a small random model of each family, and what `transformers` computes with it.

    pip install torch transformers safetensors
    tests/goldens/make_models.py tests/data/models            # all small models
    tests/goldens/make_models.py --of FOLDER [FOLDER ...]     # what a checkpoint on disk gives, written into its folder

expected.safetensors has the input (tokens, lengths, types; features; for encoder-decoders source, source_lengths), and
hidden, logits, attention.N and gradient.N (of encoder-decoders also encoded, encoder_attention.N and the like) as f64
(".reference": the model in double precision) and as f32 (".naive": of five runs with attn_implementation="eager", the
one that is farthest off). Gradients are those of the sum of logits times `objective`.
"""

import argparse
import contextlib
import json
import pathlib
import shutil

import torch
import transformers
from safetensors.torch import load_file, save_file
from tokenizers import Tokenizer

HERE = pathlib.Path(__file__).resolve().parent

SMALL = dict(
    hidden_size=24,
    intermediate_size=40,
    num_attention_heads=4,
    num_hidden_layers=2,
    vocab_size=60,
    max_position_embeddings=40,
)
ROPE = {"rope_theta": 10000.0, "rope_type": "default"}
LLAMA3 = {
    "rope_type": "llama3",
    "rope_theta": 500.0,
    "factor": 8.0,
    "low_freq_factor": 1.0,
    "high_freq_factor": 4.0,
    "original_max_position_embeddings": 32,
}


def configs():
    """The models by name: a class, its config, and how its weights are stored."""
    t = transformers
    decoder = SMALL | dict(num_key_value_heads=2, head_dim=8)
    yield "bert", t.BertForMaskedLM, t.BertConfig(**SMALL), {}
    yield "bert-base", t.BertModel, t.BertConfig(**SMALL), {"old_norms": True}
    yield "roberta", t.RobertaForMaskedLM, t.RobertaConfig(**SMALL, type_vocab_size=1), {}
    yield (
        "distilbert",
        t.DistilBertForMaskedLM,
        t.DistilBertConfig(vocab_size=60, max_position_embeddings=40, dim=24, hidden_dim=40, n_heads=4, n_layers=2),
        {},
    )
    yield "albert", t.AlbertForMaskedLM, t.AlbertConfig(**SMALL, embedding_size=16, num_hidden_groups=1), {}
    yield "gpt2", t.GPT2LMHeadModel, t.GPT2Config(n_embd=24, n_layer=2, n_head=4, n_positions=40, vocab_size=60), {}
    yield (
        "gpt_neox",
        t.GPTNeoXForCausalLM,
        t.GPTNeoXConfig(**SMALL, rope_parameters=ROPE | {"partial_rotary_factor": 0.34}),
        {},
    )
    yield (
        "gpt_neox-serial",
        t.GPTNeoXForCausalLM,
        t.GPTNeoXConfig(**SMALL, rope_parameters=ROPE | {"partial_rotary_factor": 1.0}, use_parallel_residual=False),
        {},
    )
    yield "llama", t.LlamaForCausalLM, t.LlamaConfig(**decoder, rope_parameters=LLAMA3), {}
    yield (
        "llama-bf16",
        t.LlamaForCausalLM,
        t.LlamaConfig(**decoder, attention_bias=True, mlp_bias=True, tie_word_embeddings=True),
        {"dtype": torch.bfloat16, "shards": 2},
    )
    yield "mistral", t.MistralForCausalLM, t.MistralConfig(**decoder, sliding_window=5), {"dtype": torch.float16}
    yield (
        "qwen2",
        t.Qwen2ForCausalLM,
        t.Qwen2Config(**decoder, use_sliding_window=True, sliding_window=4, max_window_layers=1),
        {},
    )
    yield "qwen3", t.Qwen3ForCausalLM, t.Qwen3Config(**decoder), {}
    yield "gemma", t.GemmaForCausalLM, t.GemmaConfig(**decoder), {}
    yield "gemma2", t.Gemma2ForCausalLM, t.Gemma2Config(**decoder, query_pre_attn_scalar=12, sliding_window=4), {}
    yield (
        "gemma3",
        t.Gemma3ForCausalLM,
        t.Gemma3TextConfig(
            **decoder, query_pre_attn_scalar=12, sliding_window=4, layer_types=["sliding_attention", "full_attention"]
        ),
        {},
    )
    # With the tokenizers of tests/data/tokenizers, for the commands.
    yield "text-encoder", t.BertModel, t.BertConfig(**SMALL | dict(vocab_size=400)), {"tokenizer": "bert"}
    yield (
        "text-decoder",
        t.GPT2LMHeadModel,
        t.GPT2Config(n_embd=24, n_layer=2, n_head=4, n_positions=40, vocab_size=400, eos_token_id=0),
        {"tokenizer": "gpt2"},
    )
    image = dict(hidden_size=24, num_hidden_layers=2, num_attention_heads=4, intermediate_size=40)
    yield "vit", t.ViTForImageClassification, t.ViTConfig(**image, image_size=12, patch_size=4, num_labels=5), {}
    text = dict(vocab_size=60, d_model=24, d_kv=8, d_ff=40, num_layers=2, num_decoder_layers=3, num_heads=4)
    text |= dict(relative_attention_num_buckets=8, relative_attention_max_distance=12, decoder_start_token_id=0)
    yield "t5", t.T5ForConditionalGeneration, t.T5Config(**text), {}
    yield "t5-gated", t.T5ForConditionalGeneration, t.T5Config(**text, feed_forward_proj="gated-gelu"), {"untied": True}
    sound = dict(d_model=24, encoder_layers=2, encoder_attention_heads=4, encoder_ffn_dim=40, decoder_layers=3)
    sound |= dict(decoder_attention_heads=3, decoder_ffn_dim=32, num_mel_bins=8, max_source_positions=20)
    sound |= dict(max_target_positions=30, bos_token_id=1, eos_token_id=2, pad_token_id=1, decoder_start_token_id=3)
    yield "whisper", t.WhisperForConditionalGeneration, t.WhisperConfig(**sound, vocab_size=60), {}


def randomise(model, generator):
    """Weights that make every part matter: by default attention is nearly uniform, and norms and biases do nothing."""
    for name, parameter in model.named_parameters():
        is_scale = parameter.dim() == 1 and name.endswith("weight")
        values = torch.randn(parameter.shape, generator=generator) * (0.3 if parameter.dim() == 1 else 0.35)
        if name.endswith("Attention.q.weight"):
            values *= model.config.d_kv**-0.5  # T5 does not scale its scores: its queries are small
        parameter.data = values + (1.0 if is_scale and "gemma" not in type(model).__name__.lower() else 0.0)


@contextlib.contextmanager
def in_double():
    """All of torch in double precision, also where a model asks for f32."""
    to, as_float, softmax, arange = torch.Tensor.to, torch.Tensor.float, torch.nn.functional.softmax, torch.arange

    def widened(value):
        return torch.float64 if value in (torch.float32, torch.float16, torch.bfloat16) else value

    def patched_to(self, *args, **kwargs):
        args = [widened(a) if isinstance(a, torch.dtype) else a for a in args]
        return to(self, *args, **{key: widened(value) for key, value in kwargs.items()})

    torch.Tensor.to, torch.Tensor.float = patched_to, lambda self: to(self, torch.float64)
    torch.nn.functional.softmax = lambda x, dim=None, dtype=None, **rest: softmax(x, dim=dim)
    torch.arange = lambda *args, **kwargs: arange(*args, **{k: widened(v) for k, v in kwargs.items()})
    torch.set_default_dtype(torch.float64)
    try:
        yield
    finally:
        torch.set_default_dtype(torch.float32)
        torch.Tensor.to, torch.Tensor.float, torch.nn.functional.softmax = to, as_float, softmax
        torch.arange = arange


def attentions_of(result):
    """The names and attention weights of a model's layers."""
    kinds = {"attention": "attentions"}
    if hasattr(result, "decoder_attentions"):
        kinds = {
            "attention": "decoder_attentions",
            "encoder_attention": "encoder_attentions",
            "cross_attention": "cross_attentions",
        }
    for name, attribute in kinds.items():
        for layer, weights in enumerate(getattr(result, attribute)):
            yield f"{name}.{layer}", weights


def results(model, inputs):
    """hidden, logits and attention of every layer, for the sequences of Hugging Face inputs, one after the other."""
    model.eval()
    model.set_attn_implementation("eager")
    wide = next(model.parameters()).dtype
    out = {}
    collected = []
    for arguments in inputs:
        arguments = {k: v.to(wide) if v.is_floating_point() else v for k, v in arguments.items()}
        with torch.no_grad():
            collected.append(model(**arguments, output_attentions=True, output_hidden_states=True))
    # The last hidden state is after the final norm.
    is_double = hasattr(collected[0], "decoder_attentions")
    states = "decoder_hidden_states" if is_double else "hidden_states"
    out["hidden"] = torch.cat([getattr(result, states)[-1][0] for result in collected])
    if isinstance(model, transformers.ViTForImageClassification):
        with torch.no_grad():
            # As in the model; the last state that it returns is before the norm.
            out["hidden"] = model.vit.layernorm(out["hidden"])
    if getattr(collected[0], "logits", None) is not None:
        out["logits"] = torch.cat([result.logits[0].reshape(-1, result.logits.shape[-1]) for result in collected])
    if is_double:
        out["encoded"] = torch.cat([result.encoder_last_hidden_state[0] for result in collected])
    # Of the longest sequence, which is the first; some 100 of its rows.
    for name, weights in attentions_of(collected[0]):
        out[name] = weights[0, :, :: max(1, weights.shape[2] // 100)]
    return out


def gradients(model, arguments, objective):
    """The gradients of the sum of logits times `objective` (of hidden states, without logits) with respect to the
    attention weights of every layer, for one sequence; some six rows of them."""
    arguments = {k: v.to(objective.dtype) if v.is_floating_point() else v for k, v in arguments.items()}
    result = model(**arguments, output_attentions=True)
    states = result.last_hidden_state if getattr(result, "logits", None) is None else result.logits
    loss = (states.reshape(objective.shape) * objective).sum()
    named = dict(attentions_of(result))
    of_weights = torch.autograd.grad(loss, list(named.values()))
    return {
        name.replace("attention", "gradient"): gradient[0, :, :: max(1, gradient.shape[2] // 6)]
        for name, gradient in zip(named, of_weights)
    }


def naive_results(model, inputs, objective, exact, generator):
    """All results in f32: of five runs, each the one that is farthest from the exact result. One run is as it is, and
    four round otherwise, as other libraries do: the result of every module is off by some half unit. One run alone may
    be lucky: by a factor of 2, and where heads are sharp by one of 8."""

    def round_otherwise(module, inputs, output):
        if isinstance(output, torch.Tensor) and output.is_floating_point():
            return output * (1 + 2**-24 * torch.randn(output.shape, generator=generator))

    def run():
        return results(model, inputs) | gradients(model, inputs[0], objective)

    runs = [run()]
    leaves = [module for module in model.modules() if not list(module.children())]
    hooks = [leaf.register_forward_hook(round_otherwise) for leaf in leaves]
    runs += [run() for _ in range(4)]
    for hook in hooks:
        hook.remove()
    return {name: max((run[name] for run in runs), key=lambda x: (x - exact[name]).abs().max()) for name in exact}


def inputs_of(config, generator, lengths):
    """Random inputs: what expected.safetensors has of them, and for each sequence the arguments of a model."""

    def tokens(vocabulary, counts):
        return [torch.randint(3, vocabulary, (count,), generator=generator) for count in counts]

    if config.model_type == "vit":
        pixels = torch.randn(2, config.num_channels, config.image_size, config.image_size, generator=generator)
        return {"features": pixels}, [{"pixel_values": image[None]} for image in pixels]
    targets = tokens(config.vocab_size, lengths)
    expected = {"tokens": torch.cat(targets), "lengths": torch.tensor(lengths)}
    arguments = [{"input_ids": target[None]} for target in targets]
    if getattr(config, "type_vocab_size", 0) > 1:
        types = [torch.arange(count) * 2 // count for count in lengths]
        expected["types"] = torch.cat(types)
        arguments = [given | {"token_type_ids": type_ids[None]} for given, type_ids in zip(arguments, types)]
    if config.model_type == "t5":
        source_lengths = [2 * count for count in lengths]
        sources = tokens(config.vocab_size, source_lengths)
        expected |= {"source": torch.cat(sources), "source_lengths": torch.tensor(source_lengths)}
        arguments = [{"input_ids": s[None], "decoder_input_ids": t[None]} for s, t in zip(sources, targets)]
    if config.model_type == "whisper":
        shape = (len(lengths), config.num_mel_bins, 2 * config.max_source_positions)
        expected["features"] = torch.randn(shape, generator=generator)
        arguments = [
            {"input_features": f[None], "decoder_input_ids": t[None]} for f, t in zip(expected["features"], targets)
        ]
    return expected, arguments


def write_expected(folder, generator, lengths):
    config = transformers.AutoConfig.from_pretrained(folder)
    cls = getattr(transformers, config.architectures[0])
    expected, inputs = inputs_of(config, generator, lengths)
    model = cls.from_pretrained(folder, dtype=torch.float32)
    with in_double():
        in_f64 = cls(config)
        if config.model_type == "t5" and model.lm_head.weight is not model.shared.weight:
            in_f64.lm_head.weight = torch.nn.Parameter(in_f64.lm_head.weight.clone())
        in_f64.load_state_dict({k: v.double() for k, v in model.state_dict().items()}, strict=False)
        in_f64.double()
        exact = results(in_f64, inputs)
        rows = exact.get("logits", exact["hidden"])
        count = rows.shape[0] // len(inputs) if "pixel_values" in inputs[0] else lengths[0]
        objective = torch.randn(rows[:count].shape, generator=generator, dtype=torch.float32)
        exact |= gradients(in_f64, inputs[0], objective.double())
    naive = naive_results(model, inputs, objective, exact, generator)
    expected["objective"] = objective
    for name, value in exact.items():
        assert value.dtype == torch.float64, (folder, name)
        assert naive[name].dtype == torch.float32
        error = (value - naive[name]).abs().max() / value.abs().max()
        # The two must be the same model. Sharp heads amplify errors of rounding on the way back.
        assert error < (1e-2 if "gradient" in name else 1e-4), (folder, name, error)
        expected[name + ".reference"] = value.contiguous()
        expected[name + ".naive"] = naive[name].contiguous()
    save_file(expected, pathlib.Path(folder) / "expected.safetensors")


TEXTS = [
    "Attention weighs the values.",
    "A causal mask hides the keys that come after a row; a window hides more. " * 3,
]


def write_text(folder, tokenizer):
    """A tokenizer, and what the model makes of texts: embeddings, as sentence-transformers computes them, or the most
    likely continuation."""
    shutil.copy(HERE.parent / "data" / "tokenizers" / f"{tokenizer}.json", folder / "tokenizer.json")
    encoder = Tokenizer.from_file(str(folder / "tokenizer.json"))
    config = transformers.AutoConfig.from_pretrained(folder)
    model = getattr(transformers, config.architectures[0]).from_pretrained(folder).eval()
    expected = {"texts": TEXTS}
    if tokenizer == "bert":
        parts = [("0", "", "Transformer"), ("1", "1_Pooling", "Pooling"), ("2", "2_Normalize", "Normalize")]
        modules = [
            {"idx": int(i), "name": i, "path": path, "type": f"sentence_transformers.models.{kind}"}
            for i, path, kind in parts
        ]
        (folder / "modules.json").write_text(json.dumps(modules))
        (folder / "1_Pooling").mkdir()
        (folder / "1_Pooling" / "config.json").write_text(json.dumps({"pooling_mode_mean_tokens": True}))
        (folder / "sentence_bert_config.json").write_text(json.dumps({"max_seq_length": 24}))
        encoder.enable_truncation(24)
        rows = []
        for text in TEXTS:
            with torch.no_grad():
                states = model(torch.tensor([encoder.encode(text).ids])).last_hidden_state[0]
            rows.append(torch.nn.functional.normalize(states.mean(0), dim=0).tolist())
        expected["embeddings"] = rows
    else:
        ids = torch.tensor([encoder.encode(TEXTS[0]).ids])
        with torch.no_grad():
            out = model.generate(ids, attention_mask=torch.ones_like(ids), max_new_tokens=12, do_sample=False)[0]
        expected["continuation"] = encoder.decode(out.tolist())
    (folder / "expected_text.json").write_text(json.dumps(expected, indent=1, ensure_ascii=False))


def write_old_norms(folder):
    """Names as they were in TensorFlow's checkpoints."""
    file = folder / "model.safetensors"
    tensors = load_file(file)
    renamed = {
        name.replace("LayerNorm.weight", "LayerNorm.gamma").replace("LayerNorm.bias", "LayerNorm.beta"): tensor
        for name, tensor in tensors.items()
    }
    save_file(renamed, file)


def write_untied(folder, generator):
    """A head of its own, as T5's version 1.1 has it."""
    file = folder / "model.safetensors"
    tensors = load_file(file)
    tensors["lm_head.weight"] = torch.randn(tensors["shared.weight"].shape, generator=generator)
    save_file(tensors, file, metadata={"format": "pt"})
    config = json.loads((folder / "config.json").read_text())
    config |= {"tie_word_embeddings": False, "scale_decoder_outputs": False}
    (folder / "config.json").write_text(json.dumps(config, indent=2))


def write_shards(folder, count):
    file = folder / "model.safetensors"
    tensors = load_file(file)
    names = sorted(tensors)
    weight_map = {}
    for i in range(count):
        part = f"model-{i + 1:05}-of-{count:05}.safetensors"
        save_file({name: tensors[name] for name in names[i::count]}, folder / part)
        weight_map |= {name: part for name in names[i::count]}
    (folder / "model.safetensors.index.json").write_text(json.dumps({"weight_map": weight_map}))
    file.unlink()


def make_small_models(folder):
    for index, (name, cls, config, options) in enumerate(configs()):
        generator = torch.Generator().manual_seed(index)
        target = folder / name
        shutil.rmtree(target, ignore_errors=True)
        model = cls(config)
        randomise(model, generator)
        model.tie_weights()
        model.to(options.get("dtype", torch.float32)).save_pretrained(target)
        (target / "generation_config.json").unlink(missing_ok=True)
        if options.get("untied"):
            write_untied(target, generator)
        write_expected(target, generator, (17, 1, 9))
        if "tokenizer" in options:
            write_text(target, options["tokenizer"])
        if options.get("old_norms"):
            write_old_norms(target)
        if "shards" in options:
            write_shards(target, options["shards"])
        print(name)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("folder", nargs="?", type=pathlib.Path)
    parser.add_argument("--of", nargs="+", type=pathlib.Path, default=[])
    arguments = parser.parse_args()
    if arguments.folder:
        make_small_models(arguments.folder)
    for folder in arguments.of:
        write_expected(folder, torch.Generator().manual_seed(0), (100, 7, 33))
        print(folder)


if __name__ == "__main__":
    main()
