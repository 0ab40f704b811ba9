"""The browser of tests/page with the documents of its frames, which may be in processes of their own."""

import base64
import contextlib
import time

from browser import Browser

IS_PAGE = "typeof shownMatrix === 'function' && document.documentElement.dataset.ready === 'yes'"


class Document:
    """What a frame shows: a context of JavaScript in a session of DevTools."""

    def __init__(self, browser, session, context):
        self.browser, self.session, self.context = browser, session, context

    def evaluate(self, expression):
        with self.browser.within(self.session):
            return self.browser.evaluate(expression, contextId=self.context, userGesture=True)

    def wait(self, condition, seconds=20):
        wait(lambda: self.evaluate(condition), condition, seconds)


def wait(condition, text, seconds=60):
    """The first value of condition() that is true."""
    begin = time.time()
    while not (value := condition()):
        if time.time() > begin + seconds:
            raise RuntimeError(f"{text} did not become true")
        time.sleep(0.05)
    return value


class FramedBrowser(Browser):
    def __init__(self, program):
        self.new_targets, self.contexts = [], {}
        super().__init__(program)
        self.listen()

    def receive(self):
        message = super().receive()
        session, parameters = message.get("sessionId"), message.get("params", {})
        method = message.get("method")
        if method == "Target.attachedToTarget":
            self.new_targets.append((parameters["sessionId"], parameters["targetInfo"]["type"]))
        elif method == "Runtime.executionContextCreated":
            if parameters["context"]["auxData"].get("isDefault"):
                self.contexts[session, parameters["context"]["id"]] = True
        elif method == "Runtime.executionContextDestroyed":
            self.contexts.pop((session, parameters["executionContextId"]), None)
        elif method in ("Runtime.executionContextsCleared", "Target.detachedFromTarget"):
            gone = parameters.get("sessionId", session)
            self.contexts = {key: True for key in self.contexts if key[0] != gone}
        return message

    def open(self, url):
        """Without waiting: applications change their address while they start."""
        self.events.clear()
        self.call("Page.navigate", url=url)

    @contextlib.contextmanager
    def within(self, session):
        outer, self.session = self.session, session
        try:
            yield
        finally:
            self.session = outer

    def listen(self):
        """Hears of everything in this session's target, and holds new targets within it until they are heard too."""
        for domain in ("Page", "Runtime", "Network", "Log"):
            self.call(domain + ".enable")
        self.call("Target.setAutoAttach", autoAttach=True, waitForDebuggerOnStart=True, flatten=True)

    def documents(self):
        """All documents, new ones included."""
        self.call("Runtime.evaluate", expression="0")
        while self.new_targets:
            session, kind = self.new_targets.pop(0)
            with self.within(session), contextlib.suppress(RuntimeError):  # it may have gone
                if kind in ("page", "iframe"):
                    self.listen()
                self.call("Runtime.runIfWaitingForDebugger")
        return [Document(self, *key) for key in self.contexts]

    def pages(self, count, seconds=90):
        """The documents that are saccade's pages, once there are `count` of them."""

        def found():
            result = []
            for document in self.documents():
                with contextlib.suppress(RuntimeError):
                    if document.evaluate(IS_PAGE):
                        result.append(document)
            return result if len(result) == count else None

        return wait(found, f"there are {count} pages", seconds)

    def errors(self):
        """What the console shows as errors, with the session that it comes from."""
        found = []
        for event in self.events:
            parameters, kind = event.get("params", {}), event.get("method")
            if kind == "Runtime.exceptionThrown":
                thrown = parameters["exceptionDetails"]
                text = thrown.get("exception", {}).get("description", thrown["text"])
            elif kind == "Runtime.consoleAPICalled" and parameters["type"] in ("error", "assert"):
                text = " ".join(str(a.get("value", a.get("description"))) for a in parameters["args"])
            elif kind == "Log.entryAdded" and parameters["entry"]["level"] == "error":
                text = parameters["entry"]["text"]
            else:
                continue
            found.append((event.get("sessionId"), text))
        return found

    def picture(self, path):
        path.parent.mkdir(parents=True, exist_ok=True)
        time.sleep(0.5)  # colors change within some time
        path.write_bytes(base64.b64decode(self.call("Page.captureScreenshot")["data"]))
