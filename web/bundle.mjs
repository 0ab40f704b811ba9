// Puts the package together: node web/bundle.mjs MODULES FOLDER VERSION
// A script is files of web/js in one, with its module in it, so that a page needs no second file: saccade.js, and
// attention.js, which has attention and pictures only.
import { execFileSync } from "node:child_process";
import { copyFileSync, mkdirSync, readFileSync, writeFileSync } from "node:fs";
import { dirname, join } from "node:path";
import { fileURLToPath } from "node:url";

const [modules, folder, version] = process.argv.slice(2);
const web = dirname(fileURLToPath(import.meta.url));
const scripts = {
  attention: {
    sources: ["wasi", "library", "tensor", "options", "attention", "picture"],
    names: ["Tensor", "attention", "decode", "attentionBackward", "inspect", "alibiSlopes", "heatmapSvg",
      "attentionLinesSvg", "version", "activeIsa"],
  },
  saccade: {
    sources: ["module", "gpt", "safetensors", "model", "teaching"],
    names: ["SelfAttention", "CausalAttention", "MultiHeadAttention", "Linear", "LayerNorm", "FeedForward", "Embedding",
      "crossEntropy", "AdamW", "GPTModel", "inductionBatch", "Model", "parseSafetensors", "toSafetensors",
      "matmul", "softmax", "TorchGenerator", "NumpyRandomState"],
  },
};
for (const part of ["sources", "names"]) scripts.saccade[part].unshift(...scripts.attention[part]);

mkdirSync(folder, { recursive: true });
for (const [script, { sources, names }] of Object.entries(scripts)) {
  // A search for the shortest gzip, 4 % smaller than zlib's best.
  const packed = execFileSync("zopfli", ["--i5", "-c", join(modules, `${script}.wasm`)], { maxBuffer: 2 ** 24 }).toString("base64");
  const code = sources
    .map((name) => readFileSync(join(web, "js", `${name}.js`), "utf8"))
    .join("\n")
    .replace(/^export /gm, "")
    .replace("@WASM@", packed);
  const head = `// saccade ${version}: attention in browsers and Node.js. Apache-2.0.\n`;
  writeFileSync(join(folder, `${script}.js`), `${head}${code}\nexport { ${names.join(", ")} };\n`);
  console.log(`${script}.wasm: ${packed.length} bytes as base64 of gzip`);
}
for (const name of ["attention.d.ts", "saccade.d.ts", "README.md"])
  copyFileSync(join(web, "package", name), join(folder, name));
copyFileSync(join(web, "..", "LICENSE"), join(folder, "LICENSE"));
const about = readFileSync(join(web, "package", "package.json"), "utf8").replace("@VERSION@", version);
writeFileSync(join(folder, "package.json"), about);
