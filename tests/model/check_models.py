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
PLAIN = (
    "The library opened in 1901 beside the river, and its reading room still has the long oak tables of that year. "
    "Visitors from Oslo, Lima and Hanoi signed the green book with Kurt, Amara and Lin."
)
NATURAL = "When Mary and John went to the store, John gave a drink to Mary. When Mary and John went home, John gave"
OTHER = (
    "Old copper mines wind under the southern hills. In 1843 Edith Marlow drew the first map of them, and sold it to "
    "nine curious bankers."
)
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
        got = saccade("generate", "--model", SMOLLM2, "--prompt", prompt, "--max-new-tokens", 100, "--temp", 0)
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
    """Returns the two heads that come first as induction heads."""
    induction = ranked(NATURAL, "induction")[:4]
    check({"L17H4", "L17H5"} <= {name for name, _ in induction}, f"induction: {induction}")
    previous = ranked(NATURAL, "previous")[:4]
    check("L16H0" in {name for name, _ in previous}, f"previous token: {previous}")
    return [name for name, _ in induction[:2]]


def change_without(heads, text):
    """What the loss on a text becomes without some heads."""
    printed = saccade("look", "--model", SMOLLM2, "--text", text, "--ablate", ",".join(heads), "--json")
    before, after = (json.loads(printed)[when]["loss"] for when in ("before", "after"))
    return after - before, f"{before:.4f} -> {after:.4f}"


def check_ablation(heads):
    """Heads that copy matter where there is something to copy. (L17H4 and L17H5 alone do not: others stand in.)"""
    for text in (PLAIN, OTHER):
        change, losses = change_without(heads, f"{text} {text}")
        check(change >= 0.3, f"without {', '.join(heads)}, twice {text[:20]!r}...: {losses} ({change:+.4f})")
    change, losses = change_without(heads, PLAIN)
    check(change < 0.05, f"without {', '.join(heads)}, the paragraph once: {losses} ({change:+.4f})")
    change, losses = change_without(["L17H4", "L17H5"], f"{PLAIN} {PLAIN}")
    print(f"        without L17H4, L17H5, a paragraph twice: {losses} ({change:+.4f})")


def main():
    check_greedy()
    check_ablation(check_known_heads())
    print(f"{len(failures)} wrong" if failures else "all good")
    sys.exit(1 if failures else 0)


if __name__ == "__main__":
    main()
