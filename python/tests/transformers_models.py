"""Small random models of Hugging Face transformers, for tests and for script/compare_transformers."""

from __future__ import annotations

from typing import Any, NamedTuple

import torch
import transformers


class Case(NamedTuple):
    model: str  #: the class
    config: str
    kind: str = "decoder"  #: also "encoder", "pixels", "seq2seq" and "audio"
    options: dict[str, Any] = {}  # noqa: RUF012
    layers: int = 2  #: calls of attention in a forward pass
    reference: str = "eager"  #: the implementation that says what is right


TEXT = {
    "vocab_size": 120,
    "hidden_size": 64,
    "intermediate_size": 96,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "max_position_embeddings": 16384,
}
GQA = {"num_key_value_heads": 2, "head_dim": 16, "pad_token_id": 0, "bos_token_id": 1, "eos_token_id": None}
SLIDING = {"sliding_window": 8, "layer_types": ["sliding_attention", "full_attention"]}
EXPERTS = {"num_local_experts": 4, "num_experts_per_tok": 4}
SHORT = {"pad_token_id": 0, "bos_token_id": 1, "eos_token_id": None, "decoder_start_token_id": 1}

CASES = {
    "bert": Case("BertModel", "BertConfig", "encoder"),
    "roberta": Case("RobertaModel", "RobertaConfig", "encoder"),
    "distilbert": Case("DistilBertModel", "DistilBertConfig", "encoder", {"dim": 64, "hidden_dim": 96, "n_heads": 4}),
    "albert": Case("AlbertModel", "AlbertConfig", "encoder", {"embedding_size": 32}),
    "electra": Case("ElectraModel", "ElectraConfig", "encoder", {"embedding_size": 32}),
    "modernbert": Case(
        "ModernBertModel",
        "ModernBertConfig",
        "encoder",
        {
            "local_attention": 8,
            "global_attn_every_n_layers": 2,
            "pad_token_id": 0,
            "eos_token_id": 2,
            "cls_token_id": 1,
        },
    ),
    "vit": Case("ViTModel", "ViTConfig", "pixels", {"image_size": 32, "patch_size": 8}),
    "clip": Case("CLIPTextModel", "CLIPTextConfig", "encoder"),
    "gpt2": Case("GPT2LMHeadModel", "GPT2Config", options={"n_embd": 64, "n_layer": 2, "n_head": 4, **SHORT}),
    "gpt_neox": Case("GPTNeoXForCausalLM", "GPTNeoXConfig", options=SHORT),
    "opt": Case("OPTForCausalLM", "OPTConfig", options={"ffn_dim": 96, "word_embed_proj_dim": 64, **SHORT}),
    "llama": Case("LlamaForCausalLM", "LlamaConfig", options=GQA),
    "mistral": Case("MistralForCausalLM", "MistralConfig", options={**GQA, "sliding_window": 8}),
    "mixtral": Case("MixtralForCausalLM", "MixtralConfig", options={**GQA, **EXPERTS, "sliding_window": 8}),
    "qwen2": Case("Qwen2ForCausalLM", "Qwen2Config", options=GQA),
    "qwen3": Case("Qwen3ForCausalLM", "Qwen3Config", options=GQA),
    "gemma": Case("GemmaForCausalLM", "GemmaConfig", options=GQA),
    "gemma2": Case("Gemma2ForCausalLM", "Gemma2Config", options={**GQA, **SLIDING, "attn_logit_softcapping": 2.0}),
    "gemma3": Case("Gemma3ForCausalLM", "Gemma3TextConfig", options={**GQA, **SLIDING}),
    "gpt_oss": Case("GptOssForCausalLM", "GptOssConfig", options={**GQA, **SLIDING, **EXPERTS}),
    "phi3": Case("Phi3ForCausalLM", "Phi3Config", options=GQA),
    "cohere": Case("CohereForCausalLM", "CohereConfig", options=GQA),
    "olmo2": Case("Olmo2ForCausalLM", "Olmo2Config", options=GQA),
    "granite": Case("GraniteForCausalLM", "GraniteConfig", options={**GQA, "attention_multiplier": 0.3}),
    "llama4": Case(
        "Llama4ForCausalLM",
        "Llama4TextConfig",
        options={
            **GQA,
            **EXPERTS,
            "intermediate_size_mlp": 96,
            "attention_chunk_size": 8,
            "layer_types": ["chunked_attention", "full_attention"],
            "num_experts_per_tok": 4,
        },
    ),
    "falcon": Case("FalconForCausalLM", "FalconConfig", options={**SHORT, "alibi": False}),
    # its "eager" adds ALiBi twice
    "falcon_alibi": Case("FalconForCausalLM", "FalconConfig", options={**SHORT, "alibi": True}, reference="sdpa"),
    "bloom": Case("BloomForCausalLM", "BloomConfig", options={**SHORT, "n_layer": 2, "n_head": 4}),
    "t5": Case(
        "T5ForConditionalGeneration",
        "T5Config",
        "seq2seq",
        {**SHORT, "d_model": 64, "d_kv": 16, "d_ff": 96, "num_layers": 2, "num_heads": 4},
        6,
    ),
    "bart": Case(
        "BartForConditionalGeneration",
        "BartConfig",
        "seq2seq",
        {
            **SHORT,
            "d_model": 64,
            "encoder_layers": 2,
            "decoder_layers": 2,
            "encoder_attention_heads": 4,
            "decoder_attention_heads": 4,
            "encoder_ffn_dim": 96,
            "decoder_ffn_dim": 96,
            "forced_eos_token_id": None,
        },
        6,
    ),
    "whisper": Case(
        "WhisperForConditionalGeneration",
        "WhisperConfig",
        "audio",
        {
            **SHORT,
            "d_model": 64,
            "encoder_layers": 2,
            "decoder_layers": 2,
            "encoder_attention_heads": 4,
            "decoder_attention_heads": 4,
            "encoder_ffn_dim": 96,
            "decoder_ffn_dim": 96,
            "num_mel_bins": 16,
            "max_source_positions": 40,
            "max_target_positions": 100,
            "suppress_tokens": [],
            "begin_suppress_tokens": None,
        },
        6,
    ),
}


def make(name: str, implementation: str, dtype: torch.dtype = torch.float32, **options: Any) -> Any:
    """A model with the same random parameters for every implementation, in evaluation."""
    case = CASES[name]
    torch.manual_seed(7)
    config = getattr(transformers, case.config)(**{**TEXT, **case.options, **options})
    config._attn_implementation = implementation
    config._experts_implementation = "eager"  # the others do not take f64
    model = getattr(transformers, case.model)(config)
    with torch.no_grad():
        for parameter in model.parameters():  # larger than usual, so that attention is not the same everywhere
            if parameter.dim() > 1:
                parameter.normal_(0, 0.12)
            elif parameter.abs().max() == 0:
                parameter.normal_(0, 0.3)
    return model.eval().to(dtype)


def inputs(name: str, batch: int = 2, length: int = 20, dtype: torch.dtype = torch.float32) -> dict[str, Any]:
    """Of a forward pass, without padding."""
    generator = torch.Generator().manual_seed(3)
    tokens = torch.randint(3, 120, (batch, length), generator=generator)
    kind = CASES[name].kind
    if kind == "pixels":
        return {"pixel_values": torch.randn(batch, 3, 32, 32, generator=generator).to(dtype)}
    if kind == "audio":
        return {
            "input_features": torch.randn(batch, 16, 80, generator=generator).to(dtype),
            "decoder_input_ids": tokens,
        }
    if kind == "seq2seq":
        return {"input_ids": tokens.flip(1), "decoder_input_ids": tokens}
    return {"input_ids": tokens}


def padding(name: str, batch: int, length: int, side: str) -> torch.Tensor:
    """A mask of tokens whose entries are shorter by 0, 5, 10 ... tokens: [batch, length]."""
    count = length - 5 * torch.arange(batch)[:, None]
    place = torch.arange(length)
    return (place < count if side == "right" else place >= length - count).long()
