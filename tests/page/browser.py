"""A headless Chromium, spoken to by DevTools' protocol over a pipe: the standard library is enough."""

import fcntl
import json
import os
import shutil
import subprocess
import tempfile
import time


class Browser:
    def __init__(self, program):
        self.profile = tempfile.mkdtemp()
        # Above the two numbers that the browser expects.
        to_browser, self.send_end = (fcntl.fcntl(end, fcntl.F_DUPFD_CLOEXEC, 10) for end in os.pipe())
        self.receive_end, from_browser = (fcntl.fcntl(end, fcntl.F_DUPFD_CLOEXEC, 10) for end in os.pipe())

        def pipes():
            os.dup2(to_browser, 3)
            os.dup2(from_browser, 4)

        arguments = ["--headless", "--no-sandbox", "--disable-gpu", "--remote-debugging-pipe", "--window-size=1300,900"]
        arguments += ["--allow-file-access-from-files", "--disable-background-networking", "--no-first-run"]
        self.process = subprocess.Popen(
            [program, *arguments, f"--user-data-dir={self.profile}", "about:blank"],
            preexec_fn=pipes,
            close_fds=False,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        os.close(to_browser)
        os.close(from_browser)
        self.buffer, self.last, self.session = b"", 0, None
        self.events = []
        target = self.call("Target.createTarget", url="about:blank", browser=True)["targetId"]
        self.session = self.call("Target.attachToTarget", targetId=target, flatten=True, browser=True)["sessionId"]
        for domain in ("Page", "Runtime", "Network", "Log", "Accessibility", "DOM"):
            self.call(domain + ".enable")

    def receive(self):
        while b"\0" not in self.buffer:
            data = os.read(self.receive_end, 1 << 20)
            if not data:
                raise RuntimeError("the browser has ended")
            self.buffer += data
        message, self.buffer = self.buffer.split(b"\0", 1)
        return json.loads(message)

    def call(self, method, browser=False, **parameters):
        self.last += 1
        message = {"id": self.last, "method": method, "params": parameters}
        if self.session and not browser:
            message["sessionId"] = self.session
        data = json.dumps(message).encode() + b"\0"
        while data:
            data = data[os.write(self.send_end, data) :]
        while True:
            answer = self.receive()
            if answer.get("id") == self.last:
                if "error" in answer:
                    raise RuntimeError(f"{method}: {answer['error']}")
                return answer["result"]
            self.events.append(answer)

    def evaluate(self, expression, **options):
        """The value of an expression, which may be a promise."""
        result = self.call("Runtime.evaluate", expression=expression, awaitPromise=True, returnByValue=True, **options)
        if "exceptionDetails" in result:
            raise RuntimeError(f"{expression}: {result['exceptionDetails']}")
        return result["result"].get("value")

    def open(self, url):
        self.events.clear()
        self.call("Page.navigate", url=url)
        here = json.dumps(url.split("#")[0])
        self.wait(f"location.href.split('#')[0] === {here} && document.readyState === 'complete'")

    def wait(self, condition, seconds=20):
        begin = time.time()
        while not self.evaluate(condition):
            if time.time() > begin + seconds:
                raise RuntimeError(f"{condition} did not become true")
            time.sleep(0.02)

    def press(self, key, code=None, text=None, modifiers=0):
        keys = {"Enter": 13, "Tab": 9, "ArrowLeft": 37, "ArrowUp": 38, "ArrowRight": 39, "ArrowDown": 40, " ": 32}
        parameters = dict(
            key=key, code=code or key, windowsVirtualKeyCode=keys.get(key, ord(key[0])), modifiers=modifiers
        )
        typed = text or {"Enter": "\r", " ": " "}.get(key) or (key if len(key) == 1 else None)
        self.call("Input.dispatchKeyEvent", type="keyDown", **parameters, **({"text": typed} if typed else {}))
        self.call("Input.dispatchKeyEvent", type="keyUp", **parameters)

    def click(self, x, y):
        for event in ("mousePressed", "mouseReleased"):
            self.call("Input.dispatchMouseEvent", type=event, x=x, y=y, button="left", clickCount=1)

    def requests(self):
        """Addresses that were asked for, but for the page itself and what it made in memory."""
        return [
            e["params"]["request"]["url"]
            for e in self.events
            if e.get("method") == "Network.requestWillBeSent"
            and not e["params"]["request"]["url"].startswith(("data:", "blob:", "about:"))
        ]

    def close(self):
        self.process.kill()
        self.process.wait()
        shutil.rmtree(self.profile, ignore_errors=True)
