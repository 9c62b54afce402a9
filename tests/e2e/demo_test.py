"""`deploy/demo --check` from the README: right answers, exit 0, one JSON line, no process left."""

import json
import subprocess
import unittest

from fleet import ROOT


class DemoTest(unittest.TestCase):
    def test_check(self):
        result = subprocess.run([str(ROOT / "deploy/demo"), "--check", "--port", "0"], capture_output=True, text=True,
                                stdin=subprocess.DEVNULL, timeout=800)
        self.assertEqual(result.returncode, 0, result.stderr[-4000:] + result.stdout)
        lines = result.stdout.splitlines()
        self.assertEqual(len(lines), 1, result.stdout)
        answer = json.loads(lines[0])
        self.assertTrue(answer["passed"])
        self.assertEqual(answer["replicas"], 4)
        print(lines[0])

    def test_unknown_options_are_refused(self):
        for arguments, words in ((["--chekc"], "--help"), (["--port"], "number"), (["--port", "abc"], "number")):
            result = subprocess.run([str(ROOT / "deploy/demo"), *arguments], capture_output=True, text=True)
            self.assertEqual(result.returncode, 2)
            self.assertIn(words, result.stderr)


if __name__ == "__main__":
    unittest.main(verbosity=2)
