"""PyTorch's own transformer, trained with PyTorch's attention and with saccade's.

Two copies of one torch.nn.TransformerEncoder, with the same weights and the same batches, take their steps in turn; the
second one does so under saccade.torch.patch(). Without dropout their losses are the same but for rounding. Both are
printed and, at the end, the median time of a step.

    python examples/python/train_transformer.py --seqlen 512 --threads 2
"""

from __future__ import annotations

import argparse
import contextlib
import copy
import statistics
import time

import saccade.torch
import torch
import torch.nn.functional as F
from torch import Tensor, nn

VOCABULARY = 64


class LanguageModel(nn.Module):
    """Tokens [batch, seqlen] in, logits of the next token [batch, seqlen, VOCABULARY] out."""

    def __init__(self, seqlen: int, width: int, heads: int, layers: int, dropout: float) -> None:
        super().__init__()
        layer = nn.TransformerEncoderLayer(width, heads, 4 * width, dropout, batch_first=True, norm_first=True)
        self.token = nn.Embedding(VOCABULARY, width)
        self.position = nn.Embedding(seqlen, width)
        self.encoder = nn.TransformerEncoder(layer, layers, nn.LayerNorm(width), enable_nested_tensor=False)
        self.logits = nn.Linear(width, VOCABULARY)
        self.register_buffer("mask", nn.Transformer.generate_square_subsequent_mask(seqlen))

    def forward(self, tokens: Tensor) -> Tensor:
        x = self.token(tokens) + self.position.weight
        return self.logits(self.encoder(x, mask=self.mask, is_causal=True))


class Training:
    """A model, its optimiser, and what its steps have cost."""

    def __init__(self, model: nn.Module, patched: bool) -> None:
        self.model = model
        self.optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
        self.patched = patched
        self.milliseconds: list[float] = []

    def step(self, tokens: Tensor) -> float:
        with saccade.torch.patch() if self.patched else contextlib.nullcontext():
            start = time.perf_counter()
            logits = self.model(tokens[:, :-1])
            loss = F.cross_entropy(logits.flatten(0, 1), tokens[:, 1:].flatten())
            self.optimizer.zero_grad()
            loss.backward()
            self.optimizer.step()
            self.milliseconds.append((time.perf_counter() - start) * 1000)
        return loss.item()


def batch(seqlen: int, tokens: int) -> Tensor:
    """Sequences that repeat themselves after 5 to 12 tokens: to go on with one is to look back."""
    rows = []
    for _ in range(max(1, tokens // seqlen)):
        segment = torch.randint(VOCABULARY, (int(torch.randint(5, 13, ())),))
        rows.append(segment.repeat(seqlen // len(segment) + 2)[: seqlen + 1])
    return torch.stack(rows)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--seqlen", type=int, default=512)
    parser.add_argument("--tokens", type=int, default=2048, help="of a batch (default: 2048)")
    parser.add_argument("--steps", type=int, default=30)
    parser.add_argument("--width", type=int, default=256)
    parser.add_argument("--heads", type=int, default=4)
    parser.add_argument("--layers", type=int, default=2)
    parser.add_argument("--dropout", type=float, default=0.0)
    parser.add_argument("--threads", type=int, default=torch.get_num_threads())
    options = parser.parse_args()

    torch.set_num_threads(options.threads)
    torch.manual_seed(0)
    model = LanguageModel(options.seqlen, options.width, options.heads, options.layers, options.dropout)
    trainings = Training(model, patched=False), Training(copy.deepcopy(model), patched=True)

    print(f"{'step':>5}  {'PyTorch':>9}  {'saccade':>9}   loss")
    for step in range(options.steps):
        tokens = batch(options.seqlen, options.tokens)
        order = trainings if step % 2 else trainings[::-1]  # neither always comes after the other
        losses = {training.patched: training.step(tokens) for training in order}
        if step % 5 == 0 or step == options.steps - 1:
            print(f"{step:5d}  {losses[False]:9.5f}  {losses[True]:9.5f}")

    medians = [statistics.median(training.milliseconds[2:] or training.milliseconds) for training in trainings]
    print(f"{'ms':>5}  {medians[0]:9.1f}  {medians[1]:9.1f}   median of a step; x {medians[0] / medians[1]:.2f}")


if __name__ == "__main__":
    main()
