"""A decoder block in the style of Hugging Face's Llama, with saccade in the place of its attention.

    python examples/python/hugging_face_block.py [TOKENS]

Models of that library call one function for attention, which gets query, key and value [batch, heads, tokens,
head_dim] and returns [batch, tokens, heads, head_dim] and, perhaps, weights. Theirs has to fall back to a slow one as
soon as weights are wanted; this one returns them, and is as fast. In a program that has transformers, this is all:

    import saccade.transformers
    saccade.transformers.register()
    model = AutoModelForCausalLM.from_pretrained(..., attn_implementation="saccade")

It also has windows, padding, caches and more, which the function below leaves out (docs/transformers.md).

Here a block of the same make stands for the model, so that nothing has to be downloaded.
"""

from __future__ import annotations

import statistics
import sys
import time

import saccade
import torch
from saccade.torch import scaled_dot_product_attention
from torch import Tensor, nn

HIDDEN, HEADS, KV_HEADS, HEAD_DIM = 2048, 32, 8, 64


def torch_attention(
    module: nn.Module, query: Tensor, key: Tensor, value: Tensor, attention_mask: Tensor | None, scaling: float, **_
) -> tuple[Tensor, Tensor | None]:
    """What transformers calls "sdpa"."""
    o = nn.functional.scaled_dot_product_attention(
        query, key, value, attn_mask=attention_mask, is_causal=attention_mask is None, scale=scaling, enable_gqa=True
    )
    return o.transpose(1, 2).contiguous(), None


def saccade_attention(
    module: nn.Module,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attention_mask: Tensor | None,
    scaling: float,
    output_attentions: bool = False,
    **_,
) -> tuple[Tensor, Tensor | None]:
    """The same by saccade, with gradients; and the weights [batch, heads, tokens, tokens] where they are wanted."""
    causal = attention_mask is None
    o = scaled_dot_product_attention(
        query, key, value, attn_mask=attention_mask, is_causal=causal, scale=scaling, enable_gqa=True
    )
    weights = None
    if output_attentions:
        with torch.no_grad():
            options = {"causal": "top_left" if causal else None, "mask": attention_mask, "scale": scaling}
            _, weights = saccade.attention(query, key, value, return_weights=True, **options)
    return o.transpose(1, 2).contiguous(), weights


def rotate(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    a, b = x.chunk(2, dim=-1)
    return x * cos + torch.cat((-b, a), dim=-1) * sin


class Attention(nn.Module):
    def __init__(self, attention_interface) -> None:
        super().__init__()
        self.attention_interface = attention_interface
        self.q_proj = nn.Linear(HIDDEN, HEADS * HEAD_DIM, bias=False)
        self.k_proj = nn.Linear(HIDDEN, KV_HEADS * HEAD_DIM, bias=False)
        self.v_proj = nn.Linear(HIDDEN, KV_HEADS * HEAD_DIM, bias=False)
        self.o_proj = nn.Linear(HEADS * HEAD_DIM, HIDDEN, bias=False)

    def forward(self, hidden_states: Tensor, **options) -> tuple[Tensor, Tensor | None]:
        shape = (*hidden_states.shape[:-1], -1, HEAD_DIM)
        query, key, value = (
            projection(hidden_states).view(shape).transpose(1, 2)
            for projection in (self.q_proj, self.k_proj, self.v_proj)
        )
        positions = torch.arange(hidden_states.shape[1])[:, None]
        angles = positions * 10000.0 ** (-torch.arange(0, HEAD_DIM, 2) / HEAD_DIM)
        cos, sin = angles.cos().repeat(1, 2), angles.sin().repeat(1, 2)
        query, key = rotate(query, cos, sin), rotate(key, cos, sin)
        o, weights = self.attention_interface(self, query, key, value, None, HEAD_DIM**-0.5, **options)
        return self.o_proj(o.reshape(*hidden_states.shape[:-1], -1)), weights


class Block(nn.Module):
    def __init__(self, attention_interface) -> None:
        super().__init__()
        self.input_layernorm = nn.RMSNorm(HIDDEN)
        self.self_attn = Attention(attention_interface)
        self.post_attention_layernorm = nn.RMSNorm(HIDDEN)
        self.mlp = nn.Sequential(nn.Linear(HIDDEN, 4 * HIDDEN), nn.SiLU(), nn.Linear(4 * HIDDEN, HIDDEN))

    def forward(self, hidden_states: Tensor, **options) -> tuple[Tensor, Tensor | None]:
        attended, weights = self.self_attn(self.input_layernorm(hidden_states), **options)
        hidden_states = hidden_states + attended
        return hidden_states + self.mlp(self.post_attention_layernorm(hidden_states)), weights


def main() -> None:
    tokens = int(sys.argv[1]) if len(sys.argv) > 1 else 2048
    torch.manual_seed(0)
    blocks = {"PyTorch": Block(torch_attention), "saccade": Block(saccade_attention)}
    blocks["saccade"].load_state_dict(blocks["PyTorch"].state_dict())
    hidden_states = torch.randn(1, tokens, HIDDEN)
    seconds: dict[str, list[float]] = {name: [] for name in blocks}
    outputs = {}
    with torch.no_grad():
        for _ in range(5):  # by turns, so that both meet the same machine
            for name, block in blocks.items():
                begin = time.perf_counter()
                block.self_attn(hidden_states)
                seconds[name].append(time.perf_counter() - begin)
        for name, block in blocks.items():
            outputs[name], _ = block(hidden_states)
        _, weights = blocks["saccade"](hidden_states, output_attentions=True)
    difference = (outputs["PyTorch"] - outputs["saccade"]).abs().max() / outputs["PyTorch"].abs().max()
    print(f"{tokens} tokens, {HEADS} heads on {KV_HEADS}: the outputs differ by {difference:.1e} of the largest number")
    for name, times in seconds.items():
        print(f"the block's attention, {name:8}: {1e3 * statistics.median(times):7.1f} ms")
    print(f"weights {list(weights.shape)}; the rows of the first head sum to {weights[0, 0].sum(-1).mean():.6f}")


if __name__ == "__main__":
    main()
