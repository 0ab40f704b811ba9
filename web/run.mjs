// Runs a command of WebAssembly in Node.js: node web/run.mjs FILE.wasm ARGUMENT...
import { readFileSync } from "node:fs";
import { basename } from "node:path";

import { run } from "./js/wasi.js";

const [file, ...args] = process.argv.slice(2);
process.exitCode = await run(readFileSync(file), {
  args: [basename(file), ...args],
  env: process.env.SACCADE_ISA ? { SACCADE_ISA: process.env.SACCADE_ISA } : {},
  print: (text, isError) => (isError ? process.stderr : process.stdout).write(text),
});
