"""Pages with saccade.js, as files that fetch nothing, and what tests of them need."""

import base64
import hashlib
import pathlib
import sys
import tempfile

ROOT = pathlib.Path(__file__).parent.parent.parent
sys.path.insert(0, str(ROOT / "tests/page"))
from browser import Browser  # noqa: E402
from checks import check, failures  # noqa: E402

__all__ = ["ROOT", "Browser", "check", "failures", "folder", "page"]

folder = pathlib.Path(tempfile.mkdtemp())


def page(build, name, script, wasm="'wasm-unsafe-eval'"):
    """A page whose script is saccade.js, followed by `script`, which sets `results` or throws. Its policy allows WebAssembly and
    this script only."""
    code = (
        (build / "package/saccade.js").read_text()
        + "\nglobalThis.results = await (async () => {\n"
        + script
        + "\n})().catch((error) => String(error));\n"
    )
    digest = base64.b64encode(hashlib.sha256(code.encode()).digest()).decode()
    policy = f"default-src 'none'; script-src 'sha256-{digest}' {wasm}; style-src 'unsafe-inline'"
    html = f'<!DOCTYPE html><meta charset="utf-8"><meta http-equiv="Content-Security-Policy" content="{policy}">'
    file = folder / f"{name}.html"
    file.write_text(f'{html}<body></body><script type="module">{code}</script>')
    return file
