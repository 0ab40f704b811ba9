// The package: the examples of docs/web.md, sizes, and that types and names agree.
import assert from "node:assert/strict";
import { spawnSync } from "node:child_process";
import { readFileSync, writeFileSync } from "node:fs";
import { test } from "node:test";
import { fileURLToPath } from "node:url";

import * as attention from "../../build/web/package/attention.js";
import * as saccade from "../../build/web/package/saccade.js";

const root = new URL("../../", import.meta.url);
const text = (path) => readFileSync(new URL(path, root), "utf8");

test("the example of docs/web.md prints what it says", () => {
  const page = text("docs/web.md");
  const [, example, printed] = page.match(/```js\n([^]*?)```\n\n```text\n([^]*?)```/);
  const file = fileURLToPath(new URL("build/web/example.mjs", root));
  writeFileSync(file, example.replace('"saccade-attention"', '"./package/saccade.js"'));
  const run = spawnSync(process.execPath, [file], { encoding: "utf8" });
  assert.equal(run.stdout + run.stderr, printed);
});

test("every name has a type, and every type a name", () => {
  for (const [name, module] of Object.entries({ attention, saccade })) {
    const own = [...text(`web/package/${name}.d.ts`).matchAll(/^export (?:function|class) (\w+)/gm)].map((m) => m[1]);
    const known = name === "saccade" ? [...own, ...Object.keys(attention)] : own;
    assert.deepEqual(Object.keys(module).sort(), [...new Set(known)].sort());
  }
});

test("files are small enough to download", () => {
  const size = (name) => Math.max(...text(`build/web/package/${name}.js`).split('"').map((part) => part.length));
  assert.ok(size("attention") <= 450_000, `attention.js has ${size("attention")} bytes of module`);
  assert.ok(size("saccade") <= 650_000, `saccade.js has ${size("saccade")} bytes of module`);
});

test("attention.js computes alone", () => {
  assert.equal(attention.attention([[1, 0]], [[1, 0], [0, 1]], [[1], [3]], { scale: 0 }).o.at(0, 0), 2);
  const foreign = saccade.Tensor.of([[1], [3]]);
  assert.equal(attention.attention([[1, 0]], [[1, 0], [0, 1]], foreign, { scale: 0 }).o.at(0, 0), 2);
});
