"""A real browser, spoken to over a pipe in its own protocol: nothing to install but chromium itself."""

import json
import os
import shutil
import subprocess
from contextlib import contextmanager

import pytest

FLAGS = [
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--remote-debugging-pipe",
]


class Tab:
    def __init__(self, send, receive):
        self.send, self.receive, self.number, self.session, self.events = send, receive, 0, None, []

    def ask(self, method, **parameters):
        self.number += 1
        message = {"id": self.number, "method": method, "params": parameters}
        if self.session:
            message["sessionId"] = self.session
        os.write(self.send, json.dumps(message).encode() + b"\0")
        while True:
            answer = self._next()
            if answer.get("id") == self.number:
                assert "error" not in answer, answer
                return answer["result"]
            self.events.append(answer)

    def wait_for(self, method, **expected):
        """The next event of that name whose parameters are these; those that came before count."""
        while True:
            for event in self.events:
                if event.get("method") == method and expected.items() <= event["params"].items():
                    self.events.remove(event)
                    return event["params"]
            self.events.append(self._next())

    def do(self, script):
        result = self.ask("Runtime.evaluate", expression=script, returnByValue=True, userGesture=True)
        assert "exceptionDetails" not in result, result
        return result["result"].get("value")

    def open(self, path):
        self.ask("Page.navigate", url=path.resolve().as_uri())
        self.wait_for("Page.loadEventFired")

    def _next(self):
        data = bytearray()
        while not data.endswith(b"\0"):
            read = os.read(self.receive, 1 << 20) if not self._rest else self._rest.pop()
            assert read, "chromium ended"
            end = read.find(b"\0")
            if end >= 0 and end + 1 < len(read):
                self._rest.append(read[end + 1 :])
                read = read[: end + 1]
            data += read
        return json.loads(data[:-1])

    @property
    def _rest(self):
        return self.__dict__.setdefault("rest", [])


@contextmanager
def chromium(folder):
    """A tab whose downloads land in `folder`; the test is skipped where there is no chromium."""
    program = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
    if program is None:
        pytest.skip("no chromium here: Debian's package `chromium` has it")
    (in_read, in_write), (out_read, out_write) = os.pipe(), os.pipe()

    def pipes():  # chromium reads from 3 and writes to 4
        first, second = os.dup(in_read), os.dup(out_write)
        os.dup2(first, 3)
        os.dup2(second, 4)

    command = [program, *FLAGS, f"--user-data-dir={folder / 'profile'}", "about:blank"]
    browser = subprocess.Popen(
        command, preexec_fn=pipes, close_fds=False, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    )
    os.close(in_read)
    os.close(out_write)
    try:
        tab = Tab(in_write, out_read)
        target = next(t for t in tab.ask("Target.getTargets")["targetInfos"] if t["type"] == "page")["targetId"]
        tab.ask("Browser.setDownloadBehavior", behavior="allow", downloadPath=str(folder.resolve()), eventsEnabled=True)
        tab.session = tab.ask("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        tab.ask("Page.enable")
        tab.ask("Runtime.enable")
        yield tab
    finally:
        browser.kill()
        browser.wait(300)
        os.close(in_write)
        os.close(out_read)
