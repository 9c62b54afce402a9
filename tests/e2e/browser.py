"""A headless Chromium, driven through the WebDriver protocol by Python's standard library.

    with Browser() as browser:
        browser.open(url)
        browser.wait("document.querySelector('#tiles li')", "the first tile")

`script` runs JavaScript in the page and returns its value; `keys` types as a keyboard would. `requests` and `errors` are
what the page asked for and complained about since the last `open`.
"""

import base64
import contextlib
import http.client
import json
import os
import pathlib
import shutil
import subprocess
import tempfile
import threading

from fleet import PATIENCE, wait_until

KEYS = {"Tab": "\ue004", "Enter": "\ue007", "Escape": "\ue00c", "Left": "\ue012", "Right": "\ue014",
        "Shift": "\ue008", "Space": " "}


def missing():
    """Why no browser can be started here, or None."""
    for program in ("chromium", "chromedriver"):
        if shutil.which(program) is None:
            return f"{program} is not installed: deploy/install-packages --tests installs it"
    return None


class Browser:
    def __init__(self, width=1280, height=900):
        self.size = (width, height)
        self.session = None
        self.reader = None
        self.log = []

    def __enter__(self):
        self.folder = tempfile.mkdtemp(prefix="quadriga-browser-")
        self.driver = subprocess.Popen(["chromedriver", "--port=0"], stdout=subprocess.PIPE,
                                       stderr=subprocess.DEVNULL, text=True)
        try:
            self.port = self.read_port()
            self.start()
        except BaseException:
            self.__exit__(None, None, None)
            raise
        return self

    def __exit__(self, kind, value, trace):
        if self.session:
            with contextlib.suppress(OSError, AssertionError, http.client.HTTPException):
                self.call("DELETE", "")
        self.driver.terminate()
        self.driver.wait()
        if self.reader:
            self.reader.join()
        self.driver.stdout.close()
        shutil.rmtree(self.folder, ignore_errors=True)

    def read_port(self):
        for line in self.driver.stdout:
            if "on port" in line and "successfully" in line:
                # Whatever else it says must not fill the pipe.
                self.reader = threading.Thread(target=self.driver.stdout.read, daemon=True)
                self.reader.start()
                return int(line.split("on port")[1].strip().rstrip("."))
        raise AssertionError("chromedriver ended before it listened")

    def start(self):
        arguments = ["--headless=new", f"--user-data-dir={self.folder}", "--disable-gpu", "--hide-scrollbars",
                     # On a busy machine their patience ends the browser, not the test.
                     "--disable-gpu-watchdog", "--disable-hang-monitor", "--disable-dev-shm-usage", "--no-first-run", "--disable-background-networking",
                     "--disable-component-update", "--disable-sync", "--force-device-scale-factor=1",
                     f"--window-size={self.size[0]},{self.size[1]}"]
        if os.geteuid() == 0:
            arguments.append("--no-sandbox")  # the sandbox refuses root, which containers are
        answer = self.call("POST", None, {"capabilities": {"alwaysMatch": {
            "browserName": "chrome",
            "goog:loggingPrefs": {"browser": "ALL", "performance": "ALL"},
            "goog:chromeOptions": {"binary": shutil.which("chromium"), "args": arguments}}}})
        self.session = answer["sessionId"]

    # -- the protocol -----------------------------------------------------------------------------

    def call(self, method, path, body=None):
        target = "/session" if path is None else f"/session/{self.session}{path}"
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=40 * PATIENCE)
        try:
            text = None if method != "POST" else json.dumps(body if body is not None else {})
            connection.request(method, target, text, {"Content-Type": "application/json"})
            answer = json.loads(connection.getresponse().read())["value"]
        finally:
            connection.close()
        if isinstance(answer, dict) and "error" in answer:
            raise AssertionError(f"{method} {path}: {answer['error']}: {answer['message'][:500]}")
        return answer

    def devtools(self, command, **parameters):
        return self.call("POST", "/goog/cdp/execute", {"cmd": command, "params": parameters})

    # -- what a person does -----------------------------------------------------------------------

    def open(self, url):
        self.drain()
        self.log = []
        self.call("POST", "/url", {"url": url})

    def script(self, text):
        """The value of a JavaScript expression."""
        return self.call("POST", "/execute/sync", {"script": f"return ({text});", "args": []})

    def wait(self, expression, what, seconds=30.0):
        return wait_until(lambda: self.script(expression), what, seconds, poll=0.05)

    def keys(self, *words, held=()):
        """Presses keys (names of KEYS) or types text where the focus is."""
        actions = [{"type": "keyDown", "value": KEYS[key]} for key in held]
        for word in words:
            for key in [KEYS[word]] if word in KEYS else word:
                actions += [{"type": "keyDown", "value": key}, {"type": "keyUp", "value": key}]
        actions += [{"type": "keyUp", "value": KEYS[key]} for key in held]
        self.call("POST", "/actions", {"actions": [{"type": "key", "id": "keyboard", "actions": actions}]})

    def click(self, selector):
        found = self.call("POST", "/element", {"using": "css selector", "value": selector})
        self.call("POST", f"/element/{next(iter(found.values()))}/click")

    def text(self, selector):
        return self.script(f"document.querySelector({json.dumps(selector)})?.innerText ?? null")

    # -- how it looks -----------------------------------------------------------------------------

    def look(self, width, height, scheme="light", is_still=True):
        self.devtools("Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1,
                      mobile=width < 500)
        self.devtools("Emulation.setEmulatedMedia", features=[
            {"name": "prefers-color-scheme", "value": scheme},
            {"name": "prefers-reduced-motion", "value": "reduce" if is_still else "no-preference"}])

    def overflow(self):
        """Pixels by which the page is wider than its window."""
        return self.script("document.documentElement.scrollWidth - document.documentElement.clientWidth")

    def screenshot(self, path, whole_page=True):
        picture = self.devtools("Page.captureScreenshot", format="png", captureBeyondViewport=whole_page)
        path = pathlib.Path(path)
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(base64.b64decode(picture["data"]))

    # -- what it did ------------------------------------------------------------------------------

    def drain(self):
        for kind in ("browser", "performance"):
            for entry in self.call("POST", "/se/log", {"type": kind}):
                self.log.append((kind, entry))

    def errors(self):
        """Complaints in the console."""
        self.drain()
        return [entry["message"] for kind, entry in self.log if kind == "browser" and entry["level"] == "SEVERE"]

    def requests(self):
        """URLs the page has asked for."""
        self.drain()
        urls = []
        for kind, entry in self.log:
            if kind != "performance":
                continue
            message = json.loads(entry["message"])["message"]
            if message["method"] == "Network.requestWillBeSent":
                urls.append(message["params"]["request"]["url"])
        return urls
