"""A notebook with two pages, and JupyterLab's server on a loopback port."""

import json
import os
import pathlib
import secrets
import socket
import subprocess
import sys
import time
import urllib.request

ROOT = pathlib.Path(__file__).parents[2]
MODEL = ROOT / "tests/data/models/text-decoder"  # random numbers
HOSTILE = "\"><script>document.title='broken'</script></iframe>&quot;"
CELLS = (
    f"import numpy as np\nimport saccade\n\nhostile = {HOSTILE!r}",
    f"saccade.look({str(MODEL)!r}, 'A causal mask hides what follows, and a mask hides.', title='a model')",
    "weights = np.tril(np.random.default_rng(0).random((2, 3, 8, 8)))\n"
    "saccade.page(weights / weights.sum(-1, keepdims=True), ['a', 'b', 'c', hostile] * 2, title=hostile)",
)


def write_notebook(path):
    cells = [
        {"cell_type": "code", "id": f"c{i}", "source": source, "metadata": {}, "outputs": [], "execution_count": None}
        for i, source in enumerate(CELLS)
    ]
    kernel = {"name": "python3", "display_name": "Python 3", "language": "python"}
    notebook = {"cells": cells, "metadata": {"kernelspec": kernel}, "nbformat": 4, "nbformat_minor": 5}
    path.write_text(json.dumps(notebook))


def environment(folder):
    """Settings apart from the user's own, and saccade as it was built."""
    own = {f"JUPYTER_{name}_DIR": str(folder / name.lower()) for name in ("CONFIG", "DATA", "RUNTIME")}
    return {**os.environ, **own, "IPYTHONDIR": str(folder / "ipython"), "JUPYTER_PREFER_ENV_PATH": "1"}


def jupyter(*arguments):
    return [sys.executable, "-m", "jupyter", *map(str, arguments)]


class Server:
    def __init__(self, notebooks, settings):
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            self.port = free.getsockname()[1]
        self.token = secrets.token_hex(16)
        self.log = settings / "server.log"
        options = {
            "ServerApp.ip": "127.0.0.1",
            "ServerApp.port": self.port,
            "ServerApp.port_retries": 0,
            "ServerApp.open_browser": False,
            "ServerApp.allow_root": True,
            "ServerApp.root_dir": notebooks,
            "IdentityProvider.token": self.token,
            "LabApp.expose_app_in_browser": True,
            "JupyterNotebookApp.expose_app_in_browser": True,
            "LabApp.check_for_updates_class": "jupyterlab.NeverCheckForUpdate",
        }
        config = settings / "config/labconfig/page_config.json"
        config.parent.mkdir(parents=True)
        config.write_text('{"disabledExtensions": {"@jupyterlab/apputils-extension:announcements": true}}')
        self.process = subprocess.Popen(
            jupyter("lab", *(f"--{key}={value}" for key, value in options.items())),
            env=environment(settings),
            stdout=self.log.open("w"),
            stderr=subprocess.STDOUT,
        )
        self.await_start()

    def await_start(self):
        begin = time.time()
        while time.time() < begin + 120 and self.process.poll() is None:
            try:
                urllib.request.urlopen(self.address("api"), timeout=5)
                return
            except OSError:
                time.sleep(0.2)
        raise RuntimeError("JupyterLab did not start:\n" + self.log.read_text()[-3000:])

    def address(self, path):
        return f"http://127.0.0.1:{self.port}/{path}?token={self.token}"

    def close(self):
        self.process.terminate()
        try:
            self.process.wait(20)
        except subprocess.TimeoutExpired:
            self.process.kill()
