#!/usr/bin/env python3
"""Usage: models.py MODEL_TIMER FOLDER [ROUNDS]

Times models beside PyTorch (`transformers`) and ONNX Runtime, by turns in one run: sentence embeddings of MiniLM, and
prompts and single tokens of SmolLM2, at one and two threads. FOLDER is that of script/models; MODEL_TIMER is built from
model_timer.cpp.

    pip install torch transformers onnx onnxscript onnxruntime
    bench/models.py build/release/bench/model_timer build/models
"""

import pathlib
import statistics
import subprocess
import sys
import tempfile
import time

import numpy as np
import onnxruntime
import torch
import transformers

TIMER, FOLDER = sys.argv[1], pathlib.Path(sys.argv[2])
ROUNDS = int(sys.argv[3]) if len(sys.argv) > 3 else 15


def tokens_of(count, first):
    return [1000 + (first + 7919 * i) % 20000 for i in range(count)]


class Embedding(torch.nn.Module):
    """A model's hidden states, averaged and of length 1."""

    def __init__(self, model):
        super().__init__()
        self.model = model

    def forward(self, input_ids):
        states = self.model(input_ids=input_ids, attention_mask=torch.ones_like(input_ids)).last_hidden_state
        return torch.nn.functional.normalize(states.mean(1), dim=-1)


class Contenders:
    """Each function returns the seconds of one call."""

    def __init__(self):
        self.timer = subprocess.Popen(
            [TIMER, FOLDER / "minilm", FOLDER / "smollm2"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        self.minilm = Embedding(transformers.AutoModel.from_pretrained(FOLDER / "minilm", dtype=torch.float32)).eval()
        self.smollm2 = transformers.AutoModelForCausalLM.from_pretrained(FOLDER / "smollm2", dtype=torch.float32).eval()
        path = pathlib.Path(tempfile.mkdtemp()) / "minilm.onnx"
        example = (torch.tensor([tokens_of(16, 0), tokens_of(16, 1)]),)
        shapes = {"input_ids": {0: torch.export.Dim("batch"), 1: torch.export.Dim("length")}}
        torch.onnx.export(self.minilm, example, path, dynamo=True, dynamic_shapes=shapes, verbose=False)
        self.sessions = {}
        for threads in (1, 2):
            options = onnxruntime.SessionOptions()
            options.intra_op_num_threads, options.inter_op_num_threads = threads, 1
            self.sessions[threads] = onnxruntime.InferenceSession(path, options, providers=["CPUExecutionProvider"])
        self.caches = {}

    def saccade(self, kind, length, batch, threads):
        batch_word = f" {batch}" if kind == "embed" else ""
        self.timer.stdin.write(f"{kind} {length}{batch_word} {threads}\n")
        self.timer.stdin.flush()
        return float(self.timer.stdout.readline())

    def pytorch(self, kind, length, batch, threads):
        torch.set_num_threads(threads)
        with torch.inference_mode():
            if kind == "embed":
                ids = torch.tensor([tokens_of(length, i) for i in range(batch)])
                return timed(lambda: self.minilm(ids))
            ids = torch.tensor([tokens_of(length, 0)])
            if kind == "prompt":
                return timed(lambda: self.smollm2(ids, use_cache=True, logits_to_keep=1))
            if length not in self.caches:
                self.caches[length] = self.smollm2(ids, use_cache=True, logits_to_keep=1).past_key_values
            cache = self.caches[length]
            seconds = timed(lambda: self.smollm2(torch.tensor([[1000]]), past_key_values=cache, use_cache=True))
            cache.crop(-1)
            return seconds

    def onnx_runtime(self, kind, length, batch, threads):
        if kind != "embed":
            return None
        ids = np.array([tokens_of(length, i) for i in range(batch)], dtype=np.int64)
        return timed(lambda: self.sessions[threads].run(None, {"input_ids": ids}))


def timed(call):
    begin = time.perf_counter()
    call()
    return time.perf_counter() - begin


def main():
    contenders = Contenders()
    functions = {"saccade": contenders.saccade, "ONNX Runtime": contenders.onnx_runtime, "PyTorch": contenders.pytorch}
    print("| call | threads | saccade | ONNX Runtime | PyTorch | of the fastest |\n|---|---|---|---|---|---|")
    cases = [("embed", length, batch) for length in (16, 128, 256) for batch in (1, 32)]
    for kind, length, batch in [*cases, ("prompt", 512, 1), ("token", 512, 1)]:
        for threads in (1, 2):
            samples = {name: [] for name in functions}
            for turn in range(ROUNDS + 2):
                for name, function in functions.items():
                    seconds = function(kind, length, batch, threads)
                    if turn >= 2 and seconds is not None:
                        samples[name].append(1000 * seconds)
                    time.sleep(0.02)  # so that no pool of threads still spins
            cell = {n: f"{min(s):.2f} ({statistics.median(s):.2f})" if s else "" for n, s in samples.items()}
            others = [min(s) for n, s in samples.items() if s and n != "saccade"]
            share = min(samples["saccade"]) / min(others)
            what = f"{kind}, {length} tokens" + (f", batch {batch}" if kind == "embed" else "")
            print(f"| {what} | {threads} | {' | '.join(cell.values())} | {share:.2f} |", flush=True)


if __name__ == "__main__":
    main()
