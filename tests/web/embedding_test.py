#!/usr/bin/env python3
"""Usage: embedding_test.py SACCADE FOLDER BUILD [CHROMIUM]

Lets saccade.js in a browser embed a sentence with the model in FOLDER, all-MiniLM-L6-v2, whose files a reader of the page has
chosen, and compares the vector with that of the command SACCADE. BUILD is the folder that script/web builds in."""

import json
import pathlib
import statistics
import subprocess
import sys

import tokenizers

from pages import Browser, check, failures, page

SACCADE, FOLDER, BUILD = sys.argv[1:4]
SENTENCE = "The cat sat on the mat because it was tired of chasing the dog around the garden."
SCRIPT = """
  const input = Object.assign(document.createElement("input"), { type: "file", multiple: true });
  document.body.append(input);
  await new Promise((resolve) => { input.onchange = resolve; });
  const files = {};
  for (const file of input.files) files[file.name] = new Uint8Array(await file.arrayBuffer());
  const begin = performance.now();
  const model = new Model(files), loaded = performance.now() - begin;
  const tokens = TOKENS, times = [];
  let embedding;
  for (let i = 0; i < 20; ++i) {
    const begin = performance.now();
    const rows = model.hiddenStates(tokens).states.toArray();
    const mean = rows[0].map((_, column) => rows.reduce((sum, row) => sum + row[column], 0) / rows.length);
    const length = Math.hypot(...mean);
    embedding = mean.map((number) => number / length);
    times.push(performance.now() - begin);
  }
  return { embedding, loaded, times };
"""


def native_embedding():
    command = [SACCADE, "embed", "--model", FOLDER, "--threads", "1", "--text", SENTENCE, "--json"]
    return json.loads(subprocess.run(command, check=True, capture_output=True).stdout)["embeddings"][0]


def main():
    tokens = tokenizers.Tokenizer.from_file(f"{FOLDER}/tokenizer.json").encode(SENTENCE).ids
    tokens = [token for token in tokens if token != 0]  # the file asks for padding
    browser = Browser(sys.argv[4] if len(sys.argv) > 4 else "chromium")
    try:
        file = page(pathlib.Path(BUILD), "embedding", SCRIPT.replace("TOKENS", str(tokens)))
        browser.open(file.as_uri())
        browser.wait("document.querySelector('input') !== null")
        document = browser.call("DOM.getDocument")["root"]["nodeId"]
        node = browser.call("DOM.querySelector", nodeId=document, selector="input")["nodeId"]
        chosen = [str(pathlib.Path(FOLDER, name).resolve()) for name in ("config.json", "model.safetensors")]
        browser.call("DOM.setFileInputFiles", nodeId=node, files=chosen)
        browser.wait("globalThis.results !== undefined", 60)
        found = browser.evaluate("results")
        check(browser.requests() == [file.as_uri()], "the page fetches nothing")
    finally:
        browser.close()
    check(isinstance(found, dict), f"the page embeds the sentence: {found if isinstance(found, str) else 'yes'}")
    if isinstance(found, dict):
        wanted = native_embedding()
        error = max(abs(a - b) for a, b in zip(found["embedding"], wanted, strict=True)) / max(map(abs, wanted))
        check(error < 1e-5, f"the vector of {len(wanted)} numbers is the command's: {error:.1e} of its largest number")
        best, median = min(found["times"]), statistics.median(found["times"])
        print(f"{len(tokens)} tokens: best {best:.1f} ms, median {median:.1f} ms; the model loads in {found['loaded']:.0f} ms")
    print(f"{len(failures)} failed")
    sys.exit(1 if failures else 0)


main()
