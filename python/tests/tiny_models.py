"""Tiny models of the architectures of Hugging Face transformers, made from the defaults of their config classes by one
rule, and inputs for them."""

from __future__ import annotations

import copy
import inspect
import math
import re
from collections.abc import Iterator
from typing import Any

import torch
import transformers
from torch import Tensor
from transformers.models.auto import configuration_auto, modeling_auto

BATCH, LENGTH, WIDTH, HEADS, WORDS = 2, 20, 128, 4, 128
MOST_PARAMETERS = 40_000_000


class NoTinyModel(Exception):
    """Why there is no tiny model of an architecture."""


def architectures() -> list[str]:
    """The model types of all config classes with which a model can be made."""
    return sorted(name for name in configuration_auto.CONFIG_MAPPING_NAMES if class_names(name))


def class_names(model_type: str) -> list[str]:
    """The classes of a model type: without a head if there is one, else the first of each kind."""
    tables = [modeling_auto.MODEL_MAPPING_NAMES, modeling_auto.MODEL_FOR_CAUSAL_LM_MAPPING_NAMES]
    tables += [table for name, table in vars(modeling_auto).items() if re.fullmatch("MODEL_.*MAPPING_NAMES", name)]
    found = [table[model_type] for table in tables if model_type in table]
    names = [name if isinstance(name, str) else name[0] for name in found]
    return list(dict.fromkeys(names))


# A tiny config.

Rules = list[tuple[str, Any]]
_WIDTHS = r".*(hidden|dim|d_model|embd|embed|width|intermediate|ffn|inner|d_ff|d_head|proj|lora_rank|channels_list).*"
_HEAD_WIDTHS = r".*(head_dim|head_size|d_kv|d_head|kv_channels|attention_key_size|nope_dim|rope_dim)$"
_COUNTS: Rules = [
    (r"index_topk.*", lambda n: n),  # fewer would leave rows without keys
    (r".*(vocab_size|vocabulary_size|num_embeddings|codebook_size|size_of_vocab).*", lambda n: min(n, WORDS)),
    (r".*(n_group|num_expert_groups?|topk_group)$", lambda n: 1),
    (r".*(experts_per_tok|top_k|topk).*|.*_k$", lambda n: min(n, 2)),
    (r".*(shared_experts|first_k_dense_replace|num_nextn_predict_layers)$", lambda n: min(n, 1)),
    (r".*experts$", lambda n: min(n, 4)),
    (r"num_kv_shared_layers|.*(buckets|distance).*", lambda n: n),
    (r"depths", lambda n: 1),
    (r".*(layers|n_layer|depth|num_blocks)$", lambda n: min(n, 2)),
    (r".*(layer|attention)_(period|interval)$", lambda n: min(n, 2)),
    (r".*layer_(offset|indices|ids)$", lambda n: 1),
    (r"(sliding_window|attention_chunk_size|local_attention|attention_window)$", lambda n: min(n, 8)),
    (r".*(position|seq_len|seqlen|sequence_length|max_length|context_length|n_ctx).*", lambda n: min(n, 512)),
    (r".*image_size$|.*img_size$|input_size", lambda n: min(n, 64)),
    (r".*(patch_size|stride|kernel|window_size|num_channels|tubelet).*", lambda n: n),
]
_SMALL: Rules = [
    *_COUNTS,
    (r".*(kv|key_value|num_query_groups|multi_query).*(heads?|groups)$", lambda n: min(n, 2)),
    (r".*lora_rank$|" + _HEAD_WIDTHS, lambda n: min(n, WIDTH // HEADS)),
    (r".*heads?(_num)?$", lambda n: min(n, HEADS)),
    (r"mrope_section", lambda n: n // 4),
    (_WIDTHS, lambda n: min(n, WIDTH)),
]
_IN_PROPORTION: Rules = [
    *_COUNTS,
    (_WIDTHS + "|mrope_section|" + _HEAD_WIDTHS, lambda n: n // 8 if n % 8 == 0 and n > 8 else n),
]
# What the constructor leaves open.
_MISSING = {"head_dim": WIDTH // HEADS, "num_key_value_heads": HEADS, "prediction_length": 8, "vocab_size": WORDS}
_MISSING.update(num_experts_per_tok=2, n_routed_experts=4, n_group=1, topk_group=1)
_TOKENS = r".*(token_id|token_ids|token_index|_token|_idx|pad_id|bos|eos)$"


def _few_heads(values: dict[str, Any]) -> Rules:
    """Two heads as wide as before, and the other widths in proportion."""
    names = ("num_attention_heads", "num_heads", "n_heads", "n_head")
    heads = [values[name] for name in names if type(values.get(name)) is int]
    factor = max(max(heads, default=2) // 2, 1)

    def divided(n: int) -> int:
        return n // factor if n % factor == 0 and n > factor else n

    kept = r".*(head_dim|head_size|d_kv|kv_channels|attention_key_size|nope_dim|rope_dim|lora_rank)$|mrope_section"
    return [
        *_COUNTS,
        (kept, lambda n: n),
        (r".*(kv|key_value|num_query_groups|multi_query).*(heads?|groups)$", lambda n: min(n, 2)),
        (r".*(attention_|n_|num_)heads?$", lambda n: min(n, 2)),
        (_WIDTHS, divided),
    ]


def tiny_configs(model_type: str) -> Iterator[Any]:
    """Configs of a model type, or the errors that they make: the smallest first, at last those as large as usual."""
    kind = getattr(transformers, configuration_auto.CONFIG_MAPPING_NAMES[model_type])
    try:
        kind()
    except Exception as error:
        raise NoTinyModel(f"its config has no defaults: {first_line(error)}") from None
    for rules in (_SMALL, _few_heads, _IN_PROPORTION, _COUNTS):
        yield _tried(lambda rules=rules: kind(**_shrunk(_plain(kind()), rules)))
        yield _tried(lambda rules=rules: _shrunk_in_place(kind(), rules))
    yield kind()


def _tried(make: Any) -> Any:
    try:
        return make()
    except Exception as error:
        return error


def _plain(config: Any) -> dict[str, Any]:
    """The arguments that make a config."""
    left_out = ("transformers_version", "architectures", "dtype", "torch_dtype", "attribute_map", "qk_head_dim")
    left_out += ("stage_names",)
    return {
        name: _plain(value) if isinstance(value, transformers.PreTrainedConfig) else value
        for name, value in config.to_dict().items()
        if name not in left_out and not name.startswith("_")
    }


def _shrunk_in_place(config: Any, kind: Any) -> Any:
    """For configs that do not take what they hold."""
    for value in vars(config).values():
        if isinstance(value, transformers.PreTrainedConfig):
            _shrunk_in_place(value, kind)
    own = {name: x for name, x in vars(config).items() if not isinstance(x, dict)}
    for name, value in _shrunk(own, kind).items():
        if value is not own[name] and not name.startswith("_"):
            setattr(config, name, value)
    return config


def _shrunk(values: dict[str, Any], kind: Any) -> dict[str, Any]:
    rules = kind(values) if callable(kind) else kind
    heads = values.get("num_attention_heads")
    if type(heads) is int and values.get("num_key_value_heads") == heads:  # they stay equal
        of_heads = _size("num_attention_heads", heads, rules)
        rules = [("num_key_value_heads", lambda _: of_heads), *rules]
    if "out_features" in values or "_out_features" in values:  # which layers are outputs is said by their numbers
        rules = [(r".*(layers|depths?)$", lambda n: n), *rules]
    layers = max((n for name, n in values.items() if _is_count_of_layers(name, n)), default=0)
    kinds = values.get("layer_types")
    most = len(dict.fromkeys(kinds)) if isinstance(kinds, (list, tuple)) else 2
    result = {}
    for name, value in values.items():
        if isinstance(value, dict) and value:
            value = _shrunk(value, kind)
        elif isinstance(value, (list, tuple)) and len(value) == layers > _size("num_hidden_layers", layers, rules):
            value = _one_of_each(value, max(most, 2))
        elif name == "depths" and _size(name, 2, rules) < 2 and isinstance(value, (list, tuple)):
            value = [min(n, 1) for n in value]
        elif isinstance(value, (list, tuple)) and value and all(type(n) is int and n > 0 for n in value):
            value = [_size(name, n, rules) for n in value]
        elif type(value) is int and value > 0:
            small = _size(name, value, rules)
            value = max(small, most) if _is_count_of_layers(name, value) and value >= most else small
        elif value is None and kind is _SMALL:
            value = _MISSING.get(name)
        result[name] = value
    return result


def _is_count_of_layers(name: str, value: Any) -> bool:
    return isinstance(value, int) and name in ("num_hidden_layers", "n_layer", "num_layers", "n_layers")


def _one_of_each(values: Any, count: int) -> list[Any]:
    """The first of each value, then others, in their order: `count` in all."""
    key = [str(x) for x in values]
    first = [i for i in range(len(values)) if key.index(key[i]) == i]
    others = [i for i in range(len(values)) if i not in first]
    return [values[i] for i in sorted((first + others)[:count])]


def _size(name: str, value: int, rules: Rules) -> int:
    if re.fullmatch(_TOKENS, name):
        return value if value < 3 else 100 + sum(map(ord, name)) % 28
    for pattern, smaller in rules:
        if re.fullmatch(pattern, name):
            return smaller(value)
    return value


# A model.


def make(class_name: str, config: Any, implementation: str) -> Any:
    """A model with the same random parameters for every implementation, in evaluation."""
    kind = getattr(transformers, class_name)
    torch.manual_seed(7)
    model = kind._from_config(copy.deepcopy(config), attn_implementation=implementation)
    with torch.no_grad():
        for parameter in model.parameters():  # larger than usual, so that attention is not the same everywhere
            if not parameter.is_floating_point():
                continue
            if parameter.dim() > 1:
                parameter.normal_(0, math.prod(parameter.shape[1:]) ** -0.5)
            elif parameter.numel() and parameter.abs().max() == 0:
                parameter.normal_(0, 0.3)
    return model.eval()


def parameters_of(class_name: str, config: Any) -> int:
    with torch.device("meta"):
        model = getattr(transformers, class_name)._from_config(copy.deepcopy(config), attn_implementation="eager")
    return sum(p.numel() for p in model.parameters())


# Inputs: the first of these with which a model works.


def candidates(model: Any) -> Iterator[dict[str, Any]]:
    names = inspect.signature(model.forward).parameters
    generator = torch.Generator().manual_seed(3)
    tokens = torch.randint(3, 100, (BATCH, LENGTH), generator=generator)
    decoder = {"decoder_input_ids": tokens.flip(1)} if "decoder_input_ids" in names else {}

    def numbers(*shape: int) -> Tensor:
        return torch.randn(shape, generator=generator)

    for name in ("inputs_embeds", "query_embeds", "hidden_states"):
        if name in names and "input_ids" not in names and "pixel_values" not in names:
            for width in _values(model.config, "hidden_size"):
                yield {name: numbers(BATCH, LENGTH, width)}
                for other in _values(model.config, "encoder_hidden_size") if "encoder_hidden_states" in names else ():
                    yield {name: numbers(BATCH, LENGTH, width), "encoder_hidden_states": numbers(BATCH, 9, other)}
    for name in ("grid_thw", "image_grid_thw"):
        if name in names and next(iter(names)) != "input_ids":
            yield from _patches(model, next(iter(names)), name, numbers)
    if "past_values" in names:
        for length in _values(model.config, "context_length"):
            for channels in [*_values(model.config, "num_input_channels"), 1]:
                yield {"past_values": numbers(BATCH, length, channels)}
    if "input_ids" in names:
        yield {"input_ids": tokens, **decoder}
        if "bbox" in names:
            yield {"input_ids": tokens, "bbox": torch.zeros(BATCH, LENGTH, 4, dtype=torch.int64), **decoder}
    pictures = [numbers(BATCH, channels, *size) for channels in _channels(model) for size in _sizes(model)]
    texts = [{}, {"input_ids": tokens}] if "input_ids" in names else [{}]
    if "pixel_values" in names:
        for text in texts:
            for picture in pictures:
                yield {**text, "pixel_values": picture, **decoder}
        for frames in _frames(model):
            for text in texts:
                for picture in pictures:
                    yield {**text, "pixel_values": picture[:, None].repeat(1, frames, 1, 1, 1), **decoder}
    if "pixel_values_videos" in names:
        for text in texts:
            for frames in _frames(model):
                for picture in pictures:
                    yield {**text, "pixel_values_videos": picture[:, None].repeat(1, frames, 1, 1, 1)}
    for name in ("input_features", "audio_values", "input_values"):
        if name in names:
            for shape in _sounds(model):
                yield {name: numbers(*shape), **decoder}
            break


def _patches(model: Any, name: str, grid: str, numbers: Any) -> Iterator[dict[str, Any]]:
    """Pictures of 4 x 4 and 4 x 8 patches, one after the other."""
    channels, patch = _channels(model)[0], (_values(model.config, "patch_size") or [14])[0]
    for frames in [*_values(model.config, "temporal_patch_size"), 1]:
        shapes = [(48, channels * frames * patch * patch), (48, channels, patch, patch)]
        for shape in [*shapes, (48, channels, frames, patch, patch)]:
            yield {name: numbers(*shape), grid: torch.tensor([[1, 4, 4], [1, 4, 8]])}


def _values(config: Any, *names: str) -> list[Any]:
    """The values of a config and those within it, by name."""
    found: list[Any] = []
    for name, value in vars(config).items():
        if name in names and value:
            found.append(value)
        elif isinstance(value, transformers.PreTrainedConfig):
            found += _values(value, *names)
    return found


def _channels(model: Any) -> list[int]:
    found = _values(model.config, "num_channels", "in_channels", "in_chans")
    return list(dict.fromkeys([*(n for n in found if isinstance(n, int)), 3]))[:2]


def _sizes(model: Any) -> list[tuple[int, int]]:
    found = [(n, n) if isinstance(n, int) else tuple(n) for n in _values(model.config, "image_size", "img_size")]
    return list(dict.fromkeys([*(x for x in found if len(x) == 2), (64, 64), (224, 224)]))


def _frames(model: Any) -> list[int]:
    return list(dict.fromkeys([*_values(model.config, "num_frames", "frames_per_clip"), 4]))[:2]


def _sounds(model: Any) -> list[tuple[int, ...]]:
    bins = [*_values(model.config, "num_mel_bins", "input_feat_per_channel", "feature_size", "input_dim"), 80]
    lengths = [2 * n for n in _values(model.config, "max_source_positions")]
    lengths += [*_values(model.config, "max_length"), 64]
    shapes: list[tuple[int, ...]] = []
    for n in dict.fromkeys(bins):
        for length in dict.fromkeys(lengths):
            shapes += [(BATCH, n, length), (BATCH, length, n)]
    return [*shapes, (BATCH, 4000), (BATCH, 1, 4000)]


def changed(given: dict[str, Any]) -> dict[str, Any]:
    """The same with another last token, and with another last picture or sound."""
    result = {}
    for name, x in given.items():
        x = x.clone()
        if not x.is_floating_point() and x.dim() == 2 and "grid" not in name:
            x[:, -1] = 3 + (x[:, -1] + 11) % 90
        elif x.is_floating_point():
            x[-1] += 0.5
        result[name] = x
    return result


def padded(model: Any, given: dict[str, Any], side: str) -> dict[str, Any] | None:
    """The same with the second text shorter by five tokens; None if the model takes no such mask."""
    names = inspect.signature(model.forward).parameters
    if "attention_mask" not in names or "input_ids" not in given:
        return None
    place, count = torch.arange(LENGTH), LENGTH - torch.tensor([[0], [5]])
    mask = (place < count if side == "right" else place >= LENGTH - count).long()
    result = {**given, "attention_mask": mask}
    if "decoder_attention_mask" in names and "decoder_input_ids" in given:
        result["decoder_attention_mask"] = mask
    return result


def results(output: Any) -> dict[str, Tensor]:
    """The floating tensors of what a model returns, by name, without caches."""
    found: dict[str, Tensor] = {}
    items = output.items() if isinstance(output, dict) else enumerate(output) if isinstance(output, tuple) else ()
    for name, value in [("", output)] if isinstance(output, Tensor) else items:
        if isinstance(value, Tensor) and value.is_floating_point() and value.numel():
            found[str(name)] = value
        elif isinstance(value, (dict, tuple)) and "past" not in str(name):
            found.update((f"{name}.{inner}", x) for inner, x in results(value).items())
    return found


def first_line(error: BaseException) -> str:
    return f"{type(error).__name__}: {str(error).strip().splitlines()[0] if str(error).strip() else ''}"[:160]
