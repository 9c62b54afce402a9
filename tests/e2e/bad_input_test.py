"""Bad input through the whole line gets the answer the interface names, and the next request is served."""

import json
import pathlib
import subprocess
import tempfile
import unittest

from fleet import BIN, MODEL, Fleet

HI = [{"role": "user", "content": "Hi"}]


class BadRequestTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.fleet = Fleet(replicas=1, context=512).start()

    @classmethod
    def tearDownClass(cls):
        try:
            cls.fleet.stop()
        finally:
            cls.fleet.kill()

    def expect(self, status, code, body, path="/v1/chat/completions", param=None):
        answer, headers, text = self.fleet.request("POST", path, body)
        self.assertEqual(answer, status, text)
        error = json.loads(text)["error"]
        self.assertEqual(set(error), {"message", "type", "param", "code"})
        self.assertEqual(error["code"], code, error)
        if param is not None:
            self.assertEqual(error["param"], param)
        self.assertIn("x-request-id", headers)
        self.assertEqual(self.fleet.chat(HI, max_tokens=4, enable_thinking=False)[0], 200)
        return error

    def test_broken_json_names_the_offset(self):
        error = self.expect(400, "invalid_json", b'{"messages": [')
        self.assertRegex(error["message"], r"\d")

    def test_duplicate_keys_and_depth(self):
        self.expect(400, "duplicate_key", b'{"model": "a", "model": "b"}')
        self.expect(400, "json_too_deep", b'{"messages": ' + b"[" * 100000 + b"]" * 100000 + b"}")

    def test_wrong_types_and_ranges(self):
        for field, value, code in [("max_tokens", 0, "invalid_value"), ("max_tokens", 1.5, "invalid_type"),
                                   ("max_tokens", "5", "invalid_type"), ("temperature", -1, "invalid_value"),
                                   ("n", 17, "invalid_value"), ("stream", "yes", "invalid_type"),
                                   ("top_p", 2, "invalid_value"), ("stop", [""], "invalid_value")]:
            with self.subTest(field=field, value=value):
                self.expect(400, code, {"messages": HI, field: value})

    def test_missing_messages(self):
        self.expect(400, "missing_required_parameter", {}, param="messages")

    def test_unknown_model_lists_the_known_ones(self):
        error = self.expect(404, "model_not_found", {"model": "gpt-9", "messages": HI})
        self.assertIn("foal-iq4_xs", error["message"])

    def test_a_prompt_that_does_not_fit_names_both_numbers(self):
        messages = [{"role": "user", "content": "stable " * 2000}]
        error = self.expect(400, "context_length_exceeded", {"messages": messages})
        self.assertIn("512", error["message"])

    def test_a_system_message_out_of_place_is_folded_with_a_warning(self):
        messages = [{"role": "user", "content": "Hi"}, {"role": "system", "content": "Be brief."},
                    {"role": "user", "content": "Hi"}]
        status, headers, _ = self.fleet.request("POST", "/v1/chat/completions",
                                                {"messages": messages, "max_tokens": 4})
        self.assertEqual(status, 200)
        self.assertIn("system_messages_folded", headers["x-quadriga-warning"])

    def test_images_are_not_supported(self):
        part = {"type": "image_url", "image_url": {"url": "http://127.0.0.1/x.png"}}
        self.expect(400, "unsupported_content", {"messages": [{"role": "user", "content": [part]}]},
                    param="messages[0].content[0]")

    def test_unknown_paths_and_methods(self):
        self.expect(404, "unknown_url", {}, path="/v1/embeddings")
        status, headers, _ = self.fleet.request("DELETE", "/v1/chat/completions")
        self.assertEqual(status, 405)
        self.assertIn("POST", headers["allow"])


class BadStartTest(unittest.TestCase):
    """`quadriga up` with something that cannot be served: one clear line, the documented exit code."""

    def up(self, model, *args):
        with tempfile.TemporaryDirectory() as folder:
            return subprocess.run([str(BIN / "quadriga"), "up", str(model), "--backend", "cpu", "--port", "0",
                                   "--replica-port-base", "0", "--metrics-port", "0", "--runtime-dir", folder, *args],
                                  capture_output=True, text=True, timeout=120)

    def test_a_model_that_does_not_exist(self):
        result = self.up("/nonexistent/model.gguf")
        self.assertEqual(result.returncode, 4, result.stderr)
        self.assertIn("/nonexistent/model.gguf", result.stderr)

    def test_a_file_that_is_no_model(self):
        with tempfile.NamedTemporaryFile(suffix=".gguf") as file:
            file.write(b"this is not a model" * 100)
            file.flush()
            result = self.up(file.name)
            self.assertEqual(result.returncode, 4, result.stderr + result.stdout)

    def test_a_truncated_model(self):
        with tempfile.TemporaryDirectory() as folder:
            path = pathlib.Path(folder, "half.gguf")
            path.write_bytes(MODEL.read_bytes()[:5_000_000])
            result = self.up(path)
            self.assertEqual(result.returncode, 4, result.stderr + result.stdout)

    def test_usage_errors(self):
        self.assertEqual(self.up(MODEL, "--layout", "banana").returncode, 2)
        self.assertEqual(self.up(MODEL, "--prot", "8080").returncode, 2)


class ModelFileToolTest(unittest.TestCase):
    def test_quantising_a_file_onto_itself_is_refused_and_loses_nothing(self):
        with tempfile.TemporaryDirectory() as folder:
            path = pathlib.Path(folder, "model.gguf")
            path.write_bytes(MODEL.read_bytes())
            link = pathlib.Path(folder, "link.gguf")
            link.symlink_to(path)
            for out in (path, link):
                result = subprocess.run([str(BIN / "quadriga-gguf"), "quantize", str(path), str(out), "--type", "q8_0"],
                                        capture_output=True, text=True, timeout=120)
                self.assertEqual(result.returncode, 2, result.stderr)
                self.assertIn("same file", result.stderr)
            self.assertEqual(path.read_bytes(), MODEL.read_bytes())


if __name__ == "__main__":
    unittest.main(verbosity=2)
