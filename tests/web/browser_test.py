#!/usr/bin/env python3
"""Usage: browser_test.py BUILD [CHROMIUM]

Opens pages with saccade.js in a real browser, from files, without network, and with a policy that allows WebAssembly and the
page's own script only. BUILD is the folder that script/web builds in."""

import base64
import pathlib
import sys

import pages
from pages import ROOT, Browser, check, failures, folder

BUILD = pathlib.Path(sys.argv[1])


def page(name, script, **policy):
    return pages.page(BUILD, name, script, **policy)


def results_of(browser, file, seconds=60):
    browser.open(file.as_uri())
    browser.wait("globalThis.results !== undefined", seconds)
    check(browser.requests() == [file.as_uri()], f"{file.name} fetches nothing: {browser.requests()}")
    return browser.evaluate("results")


def test_attention(browser):
    found = results_of(
        browser,
        page(
            "attention",
            """const x = [[0.43, 0.15, 0.89], [0.55, 0.87, 0.66], [0.57, 0.85, 0.64], [0.22, 0.58, 0.33],
              [0.77, 0.25, 0.1], [0.05, 0.8, 0.55]];
            const { o, weights } = attention(x, x, x, { scale: 1, weights: true });
            document.body.innerHTML = heatmapSvg(weights, { queryTokens: ["a", "b", "c", "d", "e", "<f>"] });
            let error = "";
            try { attention(x, x, x, { causal: "yes" }); } catch (caught) { error = caught.message; }
            const round = (row) => row.map((number) => number.toFixed(4)).join(" ");
            return [round(weights.toArray()[1]), round(o.toArray()[1]), error, activeIsa()];""",
        ),
    )
    check(found[0] == "0.1385 0.2379 0.2333 0.1240 0.1082 0.1581", f"published weights: {found[0]}")
    check(found[1] == "0.4419 0.6515 0.5683", f"published context: {found[1]}")
    check("causal must be one of none, top_left, bottom_right" in found[2], f"an error's sentence: {found[2]}")
    check(found[3] == "wasm128", found[3])
    check(browser.evaluate("document.querySelectorAll('svg rect').length > 36"), "the heat map is in the page")


def test_policy(browser):
    browser.open(page("policy", "return 1;", wasm="").as_uri())
    browser.evaluate("new Promise((resolve) => setTimeout(resolve, 500))")
    check(browser.evaluate("globalThis.results === undefined"), "without 'wasm-unsafe-eval' nothing runs")


def test_sweep(browser):
    """The kernels against the reference, in this browser's engine."""
    wasi = (ROOT / "web/js/wasi.js").read_text().replace("export ", "")
    module = base64.b64encode((BUILD / "web/check.wasm").read_bytes()).decode()
    script = f"""{wasi}
      const bytes = Uint8Array.from(atob("{module}"), (character) => character.charCodeAt(0));
      globalThis.command = async (...args) => {{
        let output = "";
        const code = await run(bytes, {{ args: ["check", ...args], print: (text) => (output += text) }});
        return output + "exit " + code;
      }};"""
    file = folder / "sweep.html"
    file.write_text(f'<!DOCTYPE html><meta charset="utf-8"><script>{script}</script>')
    browser.open(file.as_uri())
    output = browser.evaluate("command('5000', '300')")
    check(output.endswith("exit 0") and output.count("300 problems") == 2, f"300 problems: {output}")
    print(browser.evaluate("command('speed')"))


def main():
    browser = Browser(sys.argv[2] if len(sys.argv) > 2 else "chromium")
    try:
        for test in (test_attention, test_policy, test_sweep):
            print(test.__name__)
            test(browser)
    finally:
        browser.close()
    print(f"{len(failures)} failed")
    sys.exit(1 if failures else 0)


main()
