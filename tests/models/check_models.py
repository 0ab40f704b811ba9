#!/usr/bin/env python3
"""Usage: check_models.py SACCADE FOLDER

Checks what saccade finds in SmolLM2 (FOLDER/smollm2, made by script/models): the same 100 tokens as `transformers`, and
the heads that are known to copy what followed last time."""

import base64
import json
import pathlib
import subprocess
import sys
import tempfile
import zlib

import torch
import transformers

SACCADE, FOLDER = sys.argv[1], pathlib.Path(sys.argv[2])
SMOLLM2 = FOLDER / "smollm2"
PLAIN = "The library opened in 1901 beside the river, and its reading room still has the long oak tables of that year."
NATURAL = "When Mary and John went to the store, John gave a drink to Mary. When Mary and John went home, John gave"
REPEATED = "apple river seven cloud wooden table yellow music"
failures = []


def check(condition, text):
    print(("  good  " if condition else "  WRONG ") + text, flush=True)
    if not condition:
        failures.append(text)


def saccade(*arguments):
    return subprocess.run([SACCADE, *map(str, arguments)], stdout=subprocess.PIPE, check=True, text=True).stdout


def check_greedy():
    tokenizer = transformers.AutoTokenizer.from_pretrained(SMOLLM2)
    model = transformers.AutoModelForCausalLM.from_pretrained(SMOLLM2, dtype=torch.float32).eval()
    for prompt in ("The capital of Germany is", "def attention(q, k, v):\n"):
        ids = tokenizer(prompt, return_tensors="pt").input_ids
        with torch.no_grad():
            wanted = model.generate(
                ids, attention_mask=torch.ones_like(ids), max_new_tokens=100, do_sample=False, repetition_penalty=1.0
            )[0]
        got = saccade("generate", "--model", SMOLLM2, "--prompt", prompt, "--tokens", 100, "--temperature", 0)
        text = tokenizer.decode(wanted, skip_special_tokens=True)
        check(got.rstrip("\n") == text.rstrip("\n"), f"{len(wanted) - ids.shape[1]} tokens after {prompt!r}")


def ranked(text, measure):
    """The heads of a page over a text, by what it says of them."""
    page = pathlib.Path(tempfile.mkdtemp()) / "page.html"
    saccade("look", "--model", SMOLLM2, "--text", text, "-o", page)
    html = page.read_text()
    begin = html.index('id="index">') + len('id="index">')
    part = json.loads(zlib.decompress(base64.b64decode(html[begin : html.index("<", begin)])))["parts"][0]
    column = ["previous", "first", "self", "induction"].index(measure)
    order = sorted(range(len(part["statistics"])), key=lambda i: -(part["statistics"][i][column] or 0))
    return [(f"L{i // part['heads']}H{i % part['heads']}", part["statistics"][i][column]) for i in order]


def check_known_heads():
    induction = ranked(NATURAL, "induction")[:4]
    check({"L17H4", "L17H5"} <= {name for name, _ in induction}, f"induction: {induction}")
    previous = ranked(NATURAL, "previous")[:4]
    check("L16H0" in {name for name, _ in previous}, f"previous token: {previous}")


def ablation(text):
    return json.loads(saccade("look", "--model", SMOLLM2, "--text", text, "--ablate", "L17H4,L17H5", "--json"))


def check_ablation():
    generator = torch.Generator().manual_seed(0)
    tokenizer = transformers.AutoTokenizer.from_pretrained(SMOLLM2)
    words = [tokenizer.decode([i]) for i in torch.randint(1000, 20000, (60,), generator=generator).tolist()]
    for name, text, least, most in (
        ("random tokens, twice", "".join(words) * 2, 0.3, None),
        ("words, three times", " ".join([REPEATED] * 3), 0.3, None),
        ("plain text", PLAIN, None, 0.05),
    ):
        result = ablation(text)
        kind = "loss" if least is None or not isinstance(result["before"]["repeated_loss"], float) else "repeated_loss"
        change = result["after"][kind] - result["before"][kind]
        losses = f"{kind} {result['before'][kind]:.4f} -> {result['after'][kind]:.4f} ({change:+.4f})"
        is_good = (least is None or change >= least) and (most is None or change < most)
        check(is_good, f"without L17H4, L17H5, {name}: {losses}")


def main():
    check_greedy()
    check_known_heads()
    check_ablation()
    print(f"{len(failures)} wrong" if failures else "all good")
    sys.exit(1 if failures else 0)


if __name__ == "__main__":
    main()
