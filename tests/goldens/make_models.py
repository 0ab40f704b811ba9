#!/usr/bin/env python3
"""Makes tests/data/models: a small random model of each family, and what `transformers` computes with it.

    pip install torch transformers safetensors
    tests/goldens/make_models.py tests/data/models            # all small models
    tests/goldens/make_models.py --of FOLDER [FOLDER ...]     # what a checkpoint on disk gives, written into its folder

expected.safetensors has the input (tokens, lengths, types), and hidden, logits and attention.N as f64 (".reference":
the model in double precision) and as f32 (".naive": as a user runs it, with attn_implementation="eager").
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


def randomise(model, generator):
    """Weights that make every part matter: by default attention is nearly uniform, and norms and biases do nothing."""
    for name, parameter in model.named_parameters():
        is_scale = parameter.dim() == 1 and name.endswith("weight")
        values = torch.randn(parameter.shape, generator=generator) * (0.3 if parameter.dim() == 1 else 0.35)
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


def results(model, sequences, types):
    """hidden, logits and attention of every layer, sequence after sequence."""
    model.eval()
    model.set_attn_implementation("eager")
    out = {}
    collected = []
    for tokens, type_ids in zip(sequences, types):
        extra = {"token_type_ids": type_ids[None]} if type_ids is not None else {}
        with torch.no_grad():
            result = model(tokens[None], output_attentions=True, output_hidden_states=True, **extra)
        # The last hidden state is after the final norm.
        collected.append((result.hidden_states[-1][0], getattr(result, "logits", [None])[0], result.attentions))
    out["hidden"] = torch.cat([hidden for hidden, _, _ in collected])
    if collected[0][1] is not None:
        out["logits"] = torch.cat([logits for _, logits, _ in collected])
    for layer in range(len(collected[0][2])):
        # Of the longest sequence, which is the first.
        out[f"attention.{layer}"] = collected[0][2][layer][0]
    return out


def write_expected(folder, sequences):
    config = transformers.AutoConfig.from_pretrained(folder)
    cls = getattr(transformers, config.architectures[0])
    takes_types = getattr(config, "type_vocab_size", 0) > 1
    types = [torch.arange(len(s)) * 2 // len(s) if takes_types else None for s in sequences]
    naive = cls.from_pretrained(folder, dtype=torch.float32)
    naive_results = results(naive, sequences, types)
    with in_double():
        exact = cls(config)
        exact.load_state_dict({k: v.double() for k, v in naive.state_dict().items()}, strict=False)
        exact.double()
        exact_results = results(exact, sequences, types)
    expected = {"tokens": torch.cat(sequences), "lengths": torch.tensor([len(s) for s in sequences])}
    if takes_types:
        expected["types"] = torch.cat(types)
    for name, value in exact_results.items():
        assert value.dtype == torch.float64, (folder, name)
        assert naive_results[name].dtype == torch.float32
        error = (value - naive_results[name]).abs().max() / value.abs().max()
        assert error < 1e-4, (folder, name, error)  # the two must be the same model
        expected[name + ".reference"] = value.contiguous()
        expected[name + ".naive"] = naive_results[name].contiguous()
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
        vocabulary = config.vocab_size
        sequences = [torch.randint(3, vocabulary, (n,), generator=generator) for n in (17, 1, 9)]
        write_expected(target, sequences)
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
        vocabulary = json.loads((folder / "config.json").read_text())["vocab_size"]
        generator = torch.Generator().manual_seed(0)
        write_expected(folder, [torch.randint(5, vocabulary, (n,), generator=generator) for n in (100, 7, 33)])
        print(folder)


if __name__ == "__main__":
    main()
