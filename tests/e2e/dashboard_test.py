"""The dashboard and its playground in headless Chromium: what a person sees, clicks and types.

The fleet view stands in front of scripted replicas, which can be killed; the playground in front of real ones with the demo
model. Pictures of every view, light and dark, wide and narrow, are left in build/PRESET/screenshots/. Skipped (77) where
there is no Chromium.
"""

import hashlib
import json
import os
import pathlib
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import unittest
import urllib.request

import browser as browser_module
from browser import Browser
from fleet import BIN, Fleet, in_parallel, wait_until

FAKE = BIN.parent / "tests/fake_replica"
PICTURES = BIN.parent / "screenshots"
SKIPPED = 77
WIDE = (1280, 900)
NARROW = (360, 740)
IN_PLAYGROUND = "location.hash === '#playground' && document.activeElement.id === 'message'"
ANSWERED = ("document.querySelectorAll('.turn[data-role=assistant]').length === {}"
            " && !document.querySelector('.turn.running')")


class Process:
    """A program and the first line in which it says where it listens."""

    def __init__(self, arguments, pattern, stream="stdout"):
        other = {"stdout": "stderr", "stderr": "stdout"}[stream]
        self.process = subprocess.Popen([str(word) for word in arguments], text=True,
                                        **{stream: subprocess.PIPE, other: subprocess.DEVNULL})
        lines = getattr(self.process, stream)
        for line in lines:
            found = re.search(pattern, line)
            if found:
                self.port = int(found.group(1))
                self.reader = threading.Thread(target=lines.read, daemon=True)
                self.reader.start()
                return
        raise AssertionError(f"{arguments[0]} ended before it listened")

    def kill(self):
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGKILL)
        self.process.wait()
        self.reader.join()
        for stream in (self.process.stdout, self.process.stderr):
            if stream is not None:
                stream.close()


class Scripted:
    """A real router in front of scripted replicas."""

    def __init__(self, count, flags=()):
        self.fakes = []
        for i in range(count):
            self.fakes.append(Process([FAKE, "--index", i, "--instance", f"{i + 1:016x}", "--token-ms", 5,
                                       "--tokens", 20, "--slots", 4, "--cache", "boundary"], r"listening (\d+)"))
        words = [BIN / "quadriga-router", "--port", "0", *flags]
        for fake in self.fakes:
            words += ["--replica", f"http://127.0.0.1:{fake.port}"]
        self.router = Process(words, r"listening on http://127\.0\.0\.1:(\d+)", "stderr")
        self.url = f"http://127.0.0.1:{self.router.port}"

    def chat(self, text):
        body = '{"stream":true,"messages":[{"role":"user","content":"%s"}]}' % text
        request = urllib.request.Request(self.url + "/v1/chat/completions", body.encode(),
                                         {"content-type": "application/json"})
        with urllib.request.urlopen(request, timeout=60) as answer:
            return answer.read()

    def __enter__(self):
        return self

    def __exit__(self, kind, value, trace):
        for process in (self.router, *self.fakes):
            process.kill()


class DashboardTest(unittest.TestCase):
    def setUp(self):
        self.browser = Browser(*WIDE).__enter__()
        self.addCleanup(self.browser.__exit__, None, None, None)
        self.browser.look(*WIDE)

    def picture(self, name, size, scheme, whole_page=True):
        """Takes it, and holds that nothing stands out at the side."""
        self.browser.look(*size, scheme=scheme)
        self.assertLessEqual(self.browser.overflow(), 0, f"{name}: the page is wider than {size[0]} px")
        self.browser.screenshot(PICTURES / f"{name}.png", whole_page)

    def assert_quiet(self, origin):
        """No complaint in the console, and no request to anyone else."""
        self.assertEqual(self.browser.errors(), [])
        urls = self.browser.requests()
        self.assertTrue(urls)
        foreign = [url for url in urls if not url.startswith(origin + "/") and not url.startswith("data:")]
        self.assertEqual(foreign, [])

    def test_the_fleet_as_it_lives_and_dies(self):
        browser = self.browser
        with Scripted(4) as fleet:
            wait_until(lambda: all_ready(fleet.url), "all replicas ready")
            in_parallel([lambda i=i: fleet.chat(f"hello {i % 3}") for i in range(24)])
            browser.open(fleet.url + "/dashboard")
            browser.wait("document.querySelectorAll('#tiles > [data-state=READY]').length === 4", "four READY tiles")
            self.assertEqual(browser.text("#live-text"), "live")
            self.assertEqual(browser.text("#warnings"), "")
            self.assertEqual(browser.text("#fact-address"), fleet.url + "/v1")
            self.assertIn("4 of 4", browser.text("#fact-layout"))
            for i in range(4):
                tile = browser.text(f"[data-replica='{i}']")
                self.assertIn(f"{i + 1:016x}", tile)
                self.assertIn("0 of 4", tile)
            browser.wait("document.querySelectorAll('#decision-rows tr').length === 24", "24 decisions")
            self.assertIn("ok", browser.text("#decision-rows tr"))
            self.assertEqual(browser.text("#decisions-more"), "Show all")
            browser.wait("document.querySelector('[data-plot=requests] path.line.color-1').getAttribute('d').length > 0",
                         "a plot with a line")
            self.assertRegex(browser.script("document.querySelector('[data-plot=ttft] svg').getAttribute('aria-label')"),
                             r"^Time to first token, last 1 min 0 s; now: p50 .+, p95 ")
            self.picture("fleet-light", WIDE, "light")
            self.picture("fleet-dark", WIDE, "dark")
            self.picture("fleet-narrow-light", NARROW, "light")
            self.picture("fleet-narrow-dark", NARROW, "dark")
            self.assert_quiet(fleet.url)

            self.browser.look(*WIDE)
            fleet.fakes[2].kill()
            browser.wait("document.querySelector('[data-replica=\"2\"]').dataset.state === 'DOWN'", "the death of replica 2")
            self.assertIn("ago", browser.text("[data-replica='2'] dl"))
            self.assertIn("Replica 2 is DOWN.", browser.text("#warnings"))
            self.assertIn("3 of 4", browser.text("#fact-layout"))
            self.picture("fleet-replica-down", WIDE, "light")

            fleet.router.kill()
            browser.wait("document.querySelector('#live').dataset.state === 'lost'", "word that the router is gone")

    def test_a_key_is_asked_for_once_and_kept_for_the_tab(self):
        browser = self.browser
        with tempfile.TemporaryDirectory() as folder:
            keys = pathlib.Path(folder, "keys.toml")
            keys.write_text('[[key]]\nname = "alice"\nsha256 = "%s"\n' % hashlib.sha256(b"open sesame").hexdigest())
            with Scripted(1, ["--keys-file", keys]) as fleet:
                browser.open(fleet.url + "/dashboard")
                browser.wait("document.querySelector('#key-dialog').open", "the question for a key")
                self.assertEqual(browser.script("document.activeElement.id"), "key")
                self.assertEqual(browser.script("document.querySelectorAll('#tiles > li').length"), 0)
                self.picture("key-light", WIDE, "light", whole_page=False)
                self.picture("key-narrow-dark", NARROW, "dark", whole_page=False)
                browser.keys("wrong", "Enter")
                browser.wait("document.querySelector('#key-message').textContent.includes('not accepted')", "the refusal")
                browser.keys("open sesame", "Enter")
                browser.wait("document.querySelectorAll('#tiles > [data-state=READY]').length === 1", "the fleet")
                browser.open(fleet.url + "/dashboard#playground")
                browser.call("POST", "/refresh")
                browser.wait("document.querySelector('#model').options.length > 0", "the model, without another question")
                browser.keys("hello", "Enter")
                browser.wait(ANSWERED.format(1), "an answer")
                self.assertIn("horse", browser.text(".turn:last-child [data-part=content]"))
                self.assertEqual(browser.script("document.cookie + localStorage.length"), "0")

    def test_the_keyboard_reaches_everything(self):
        browser = self.browser
        with Scripted(2) as fleet:
            browser.open(fleet.url + "/dashboard")
            browser.wait("document.querySelectorAll('#tiles > [data-state=READY]').length === 2", "two READY tiles")
            seen = []
            for _ in range(40):
                browser.keys("Tab")
                place = browser.script("(e => e === document.body ? 'end' : e.id || e.closest('[data-plot]')?.dataset.plot"
                                       " || e.tagName + (e.closest('[data-replica]')?.dataset.replica ?? e.className))"
                                       "(document.activeElement)")
                if place == "end" or place in seen:
                    break
                seen.append(place)
                self.assertNotEqual(browser.script("getComputedStyle(document.activeElement).outlineStyle"), "none", place)
            for place in ["Askip", "link-fleet", "link-playground", "SUMMARY0", "SUMMARY1", "requests", "ttft", "trouble"]:
                self.assertIn(place, seen)
            # A plot's mark moves with the arrow keys.
            browser.script("document.querySelector('[data-plot=ttft] svg').focus()")
            browser.keys("Left", "Left")
            self.assertEqual(browser.text("[data-plot=ttft] .when"), "20 s ago")
            # To the playground and through a chat, by keys alone.
            browser.script("document.querySelector('#link-fleet').focus()")
            browser.keys("Tab", "Enter")
            browser.wait(IN_PLAYGROUND, "the playground's message field")
            browser.keys("first line")
            browser.keys("Enter", held=["Shift"])
            browser.keys("second line", "Enter")
            browser.wait(ANSWERED.format(1), "an answer")
            self.assertEqual(browser.text(".turn[data-role=user] .text"), "first line\nsecond line")
            browser.keys("tokens=500 token_ms=500", "Enter")  # four minutes, unless stopped
            browser.wait("document.querySelector('.turn.running [data-part=content]')?.textContent.length > 5", "a long answer")
            self.assertIsNotNone(browser.script("document.querySelector('#stop').offsetParent && true"))
            browser.keys("Escape")
            browser.wait(ANSWERED.format(2), "the end by Escape")
            self.assertIn("stopped here", browser.text(".turn:last-child"))
            self.assert_quiet(fleet.url)

    def test_the_playground_with_the_demo_model(self):
        browser = self.browser
        with Fleet(replicas=1) as fleet:
            origin = f"http://127.0.0.1:{fleet.port}"
            browser.open(origin + "/dashboard#playground")
            browser.wait("document.querySelector('#model').options.length > 0", "the model's name")
            browser.script("document.querySelector('#temperature').value = '0'")
            browser.keys("What does a horse do?", "Enter")
            browser.wait(ANSWERED.format(1), "an answer")
            self.assertIn("horse", browser.text(".turn:last-child [data-part=content]").lower())
            self.assertEqual(browser.script("document.querySelector('.turn:last-child .reasoning').open"), False)
            self.assertTrue(browser.script("document.querySelector('[data-part=reasoning]').textContent.length > 0"))
            facts = browser.text(".turn:last-child .answer-facts")
            for part in ("stop", "tokens", "cached", "of reasoning", "replica 0", "reason only", "req-"):
                self.assertIn(part, facts)

            # A tool call, and the model's answer to its result.
            browser.script("document.querySelector('#thinking').click()")
            browser.script("document.querySelector('#tool').click()")
            browser.script("document.querySelector('#message').focus()")
            browser.keys("Compute 17 + 25.", "Enter")
            browser.wait(ANSWERED.format(2), "a tool call")
            self.assertIn("calculate", browser.text(".turn:last-child .calls"))
            self.assertIn("17 + 25", browser.text(".turn:last-child .calls pre"))
            self.assertEqual(browser.script("document.querySelector('.results input').value"), '{"result": 42}')
            self.picture("playground-light", WIDE, "light", whole_page=False)
            self.picture("playground-dark", WIDE, "dark", whole_page=False)
            browser.look(*NARROW)
            browser.script("document.querySelector('#settings').open = false")
            browser.script("document.querySelector('.results').scrollIntoView({ block: 'center' })")
            self.picture("playground-narrow-light", NARROW, "light", whole_page=False)
            self.picture("playground-narrow-dark", NARROW, "dark", whole_page=False)
            browser.look(*WIDE)
            browser.keys("Enter")  # the result's field has the focus
            browser.wait(ANSWERED.format(3), "the answer with the result")
            self.assertIn("42", browser.text(".turn:last-child [data-part=content]"))
            self.assert_quiet(origin)

            # What the server refuses is shown in its words; markup in a message is text.
            browser.script("document.querySelector('#temperature').value = '9'")
            browser.script("document.querySelector('#message').focus()")
            browser.keys("<b>bold</b>", "Enter")
            browser.wait(ANSWERED.format(4), "a refusal")
            self.assertIn("temperature", browser.text(".turn:last-child [role=alert]"))
            self.assertEqual(browser.script("document.querySelectorAll('.turns b').length"), 0)
            browser.click("#clear")
            self.assertEqual(browser.script("document.querySelectorAll('.turn').length"), 0)


def all_ready(url):
    try:
        with urllib.request.urlopen(url + "/dashboard/state", timeout=10) as answer:
            return all(replica["state"] == "READY" for replica in json.load(answer)["replicas"])
    except OSError:
        return False


if __name__ == "__main__":
    reason = browser_module.missing()
    if reason and not os.environ.get("CI"):
        print(f"skipped: {reason}")
        sys.exit(SKIPPED)
    assert reason is None, reason
    shutil.rmtree(PICTURES, ignore_errors=True)
    unittest.main(verbosity=2)
