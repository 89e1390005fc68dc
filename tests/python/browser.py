"""A headless Chromium, spoken to over two pipes: loads a page at a width and a colour scheme, asks it
questions in JavaScript, takes screenshots. No package is needed for that."""

import base64
import itertools
import json
import os
import select
import shutil
import subprocess
import tempfile
import time

NAMES = ("chromium", "chromium-browser", "google-chrome", "chrome")


def find():
    """The program's path, or None. CULET_TEST_BROWSER names another."""
    named = os.environ.get("CULET_TEST_BROWSER")
    return named or next(filter(None, map(shutil.which, NAMES)), None)


class Browser:
    def __init__(self, program):
        self._folder = tempfile.mkdtemp()
        to_browser, self._write = os.pipe()
        self._read, from_browser = os.pipe()
        self._numbers, self._left = itertools.count(1), b""
        # The browser has its pipes under the numbers 3 and 4.
        shell = f"exec 3<&{to_browser} 4>&{from_browser}; exec \"$@\""
        self._process = subprocess.Popen(
            ["bash", "-c", shell, "bash", program, "--headless", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage",
             "--remote-debugging-pipe", "--no-first-run", "--disable-extensions", "--hide-scrollbars",
             f"--user-data-dir={self._folder}", "about:blank"],
            pass_fds=(to_browser, from_browser), stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL)
        os.close(to_browser)
        os.close(from_browser)
        target = self.call("Target.createTarget", url="about:blank")["targetId"]
        self._session = self.call("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]

    def close(self):
        try:
            self.call("Browser.close")
            self._process.wait(timeout=10)
        except (RuntimeError, OSError, subprocess.TimeoutExpired):
            self._process.kill()
            self._process.wait()
        os.close(self._write)
        os.close(self._read)
        shutil.rmtree(self._folder, ignore_errors=True)  # its helpers may still write there

    def call(self, method, session=None, **parameters):
        number = next(self._numbers)
        message = {"id": number, "method": method, "params": parameters}
        if session is not None:
            message["sessionId"] = session
        os.write(self._write, json.dumps(message).encode() + b"\0")
        end = time.monotonic() + 120
        while True:
            while b"\0" in self._left:
                text, self._left = self._left.split(b"\0", 1)
                answer = json.loads(text)
                if answer.get("id") == number:
                    if "error" in answer:
                        raise RuntimeError(f"{method}: {answer['error']}")
                    return answer["result"]
            ready, _, _ = select.select([self._read], [], [], max(0, end - time.monotonic()))
            more = os.read(self._read, 1 << 20) if ready else b""
            if not more:
                raise RuntimeError(f"the browser does not answer {method}")
            self._left += more

    def open(self, path, width, scheme):
        """Loads a file as a screen of that width shows it; scheme: "light" or "dark"."""
        self.call("Emulation.setDeviceMetricsOverride", self._session, width=width, height=900, deviceScaleFactor=1,
                  mobile=width < 600)
        self.call("Emulation.setEmulatedMedia", self._session,
                  features=[{"name": "prefers-color-scheme", "value": scheme}])
        self.call("Page.navigate", self._session, url=f"file://{path}")
        end = time.monotonic() + 60
        while self.ask("document.readyState + location.protocol") != "completefile:":
            if time.monotonic() > end:
                raise RuntimeError("the page does not load")
            time.sleep(0.05)

    def ask(self, script):
        """What a JavaScript expression is."""
        answer = self.call("Runtime.evaluate", self._session, expression=script, returnByValue=True)
        if "exceptionDetails" in answer:
            raise RuntimeError(str(answer["exceptionDetails"]))
        return answer["result"].get("value")

    def screenshot(self, path):
        answer = self.call("Page.captureScreenshot", self._session, captureBeyondViewport=True, format="png")
        with open(path, "wb") as file:
            file.write(base64.b64decode(answer["data"]))
