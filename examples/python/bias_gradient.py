"""Learning where to look: the gradient of an attention bias.

A relative position bias, as in T5 (arXiv:1910.10683), is a table of numbers, one for each head and distance, that is
added to the scores. To learn it, the gradient of the scores' mask is needed. PyTorch's fused kernel has none, so that
PyTorch falls back to matrices of seqlen x seqlen for each head; saccade sums it up tile by tile.

Here a model that knows nothing else of positions learns to say which tokens came 3 and 11 places before. Two copies of
it, one with PyTorch's attention and one with saccade's, take their steps in turn. Printed are both losses, the distance
that each head has learnt to look at, and the median time of a step.

    python examples/python/bias_gradient.py --seqlen 256
"""

from __future__ import annotations

import argparse
import copy
import statistics
import time
from typing import Callable

import saccade.torch
import torch
import torch.nn.functional as F
from torch import Tensor, nn

VOCABULARY = 32
DISTANCES = (3, 11)
LONGEST = 16  # distances beyond share a bias


class RelativeAttention(nn.Module):
    """One head for each of DISTANCES, with a learned bias for each distance to a key."""

    def __init__(self, width: int, longest: int, attention: Callable[..., Tensor]) -> None:
        super().__init__()
        heads = len(DISTANCES)
        self.token = nn.Embedding(VOCABULARY, width)
        self.values = nn.Linear(width, heads * width)
        self.bias = nn.Parameter(torch.zeros(heads, 2 * longest + 1))
        self.logits = nn.ModuleList(nn.Linear(width, VOCABULARY) for _ in range(heads))
        self.attention = attention

    def forward(self, tokens: Tensor) -> Tensor:
        """Tokens [batch, seqlen] in, logits [heads, batch, seqlen, VOCABULARY] out."""
        x = self.token(tokens)
        seqlen, longest = tokens.shape[1], self.bias.shape[1] // 2
        place = torch.arange(seqlen)
        distance = (place[None, :] - place[:, None]).clamp(-longest, longest) + longest
        q = k = x.unsqueeze(1).expand(-1, len(DISTANCES), -1, -1)
        v = self.values(x).unflatten(-1, (len(DISTANCES), -1)).transpose(1, 2)
        o = self.attention(q, k, v, attn_mask=self.bias[:, distance])
        return torch.stack([logits(o[:, head]) for head, logits in enumerate(self.logits)])

    def distances(self) -> list[int]:
        """Which distance back each head prefers."""
        return (self.bias.shape[1] // 2 - self.bias.argmax(1)).tolist()


class Training:
    """A model, its optimiser, and what its steps have cost."""

    def __init__(self, model: RelativeAttention, attention: Callable[..., Tensor]) -> None:
        self.model = model
        self.model.attention = attention
        self.optimizer = torch.optim.Adam(model.parameters(), lr=0.05)
        self.milliseconds: list[float] = []

    def step(self, tokens: Tensor) -> float:
        start = time.perf_counter()
        logits = self.model(tokens)
        losses = [
            F.cross_entropy(logits[head, :, distance:].flatten(0, 1), tokens[:, :-distance].flatten())
            for head, distance in enumerate(DISTANCES)
        ]
        loss = sum(losses) / len(losses)
        self.optimizer.zero_grad()
        loss.backward()
        self.optimizer.step()
        self.milliseconds.append((time.perf_counter() - start) * 1000)
        return loss.item()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--seqlen", type=int, default=256)
    parser.add_argument("--batch", type=int, default=4)
    parser.add_argument("--steps", type=int, default=100)
    parser.add_argument("--width", type=int, default=32)
    parser.add_argument("--threads", type=int, default=torch.get_num_threads())
    options = parser.parse_args()

    torch.set_num_threads(options.threads)
    torch.manual_seed(0)
    model = RelativeAttention(options.width, LONGEST, F.scaled_dot_product_attention)
    trainings = {
        "PyTorch": Training(model, F.scaled_dot_product_attention),
        "saccade": Training(copy.deepcopy(model), saccade.torch.scaled_dot_product_attention),
    }
    print(f"{'step':>5}  {'PyTorch':>9}  {'saccade':>9}   loss")
    for step in range(options.steps):
        tokens = torch.randint(VOCABULARY, (options.batch, options.seqlen))
        order = list(trainings) if step % 2 else list(trainings)[::-1]  # neither always comes after the other
        losses = {name: trainings[name].step(tokens) for name in order}
        if step % 10 == 0 or step == options.steps - 1:
            print(f"{step:5d}  {losses['PyTorch']:9.5f}  {losses['saccade']:9.5f}")
    medians = {name: statistics.median(training.milliseconds[2:]) for name, training in trainings.items()}
    print(f"{'ms':>5}  {medians['PyTorch']:9.2f}  {medians['saccade']:9.2f}   median of a step")
    for name, training in trainings.items():
        print(f"{name}: the heads look {' and '.join(map(str, training.model.distances()))} places back")


if __name__ == "__main__":
    main()
