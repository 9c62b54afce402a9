"""What operators hand to the fleet and change under it: keys and certificates, over the whole line. A slip in one of
those files must not cost the loaded replicas, even when the router has to be started again meanwhile.

Certificates are made by the openssl program for this test alone.
"""

import http.client
import os
import pathlib
import signal
import ssl
import subprocess
import sys
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).parent))
from fleet import BIN, PATIENCE, Fleet, wait_until  # noqa: E402

KEY = "open sesame"


def write(path, text):
    """Replaces the file in one step, as an editor does."""
    fresh = path.with_suffix(".new")
    fresh.write_text(text)
    fresh.rename(path)


def key_table(name, key):
    import hashlib
    return '[[key]]\nname = "%s"\nsha256 = "%s"\n' % (name, hashlib.sha256(key.encode()).hexdigest())


def openssl(*args):
    subprocess.run(["openssl", *args], check=True, capture_output=True)


class TlsFleet(Fleet):
    """A fleet that its clients reach by https with a key."""

    def __init__(self, **options):
        super().__init__(**options)
        folder = pathlib.Path(self.folder)
        self.cert, self.key, self.keys = folder / "cert.pem", folder / "key.pem", folder / "keys.toml"
        self.issue()
        write(self.keys, key_table("alice", KEY))
        self.args += ["--tls-cert", str(self.cert), "--tls-key", str(self.key), "--keys-file", str(self.keys)]

    def issue(self):
        """A certificate that vouches for itself."""
        openssl("req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-days", "30",
                "-keyout", str(self.key), "-out", str(self.cert), "-subj", "/CN=localhost",
                "-addext", "subjectAltName=DNS:localhost,IP:127.0.0.1")

    def connect(self, port=None):
        context = ssl.create_default_context(cafile=str(self.cert))
        return http.client.HTTPSConnection("127.0.0.1", port or self.port, timeout=60 * PATIENCE, context=context)

    def request(self, method, path, body=None, headers=None, port=None):
        return super().request(method, path, body, {"Authorization": f"Bearer {KEY}", **(headers or {})}, port)

    def models(self):
        """The status of a question, or None while nobody answers it over TLS."""
        try:
            return self.get("/v1/models")[0]
        except OSError:
            return None

    def router_pid(self):
        status = self.status()
        return status and status["router"]["pid"]

    def kill_router(self):
        """Kills it; waits until the launcher has seen that."""
        pid = self.router_pid()
        os.kill(pid, signal.SIGKILL)
        wait_until(lambda: self.router_pid() != pid, "the launcher has seen the router's end", 30)

    def replica_pids(self):
        return [replica["pid"] for replica in self.status()["replicas"]]


class SurfaceTest(unittest.TestCase):
    def test_a_slip_in_a_file_costs_no_replica(self):
        with TlsFleet(replicas=1) as fleet:
            self.assertIn("https://127.0.0.1:", fleet.log_text())
            status, answer = fleet.chat([{"role": "user", "content": "Hi"}], max_tokens=4, temperature=0)
            self.assertEqual(status, 200, answer)
            self.assertEqual(fleet.get("/v1/models")[0], 200)
            loaded = fleet.replica_pids()

            with self.subTest("keys: the copy that was good"):
                write(fleet.keys, "a slip of the editor")
                fleet.kill_router()
                wait_until(lambda: fleet.models() == 200, "the router serves with the old keys", 30)
                self.assertIn("event=keys_bad", fleet.log_text())
                wait_until(lambda: fleet.ready_in_router() == 1, "the replica is back in the router", 30)

            with self.subTest("certificate: waited for until it is mended"):
                good = fleet.cert.read_text()
                fleet.cert.write_text("a slip of the editor")
                fleet.kill_router()
                wait_until(lambda: "cannot be used" in fleet.log_text(), "the router says what is wrong", 30)
                self.assertIsNone(fleet.process.poll())
                fleet.cert.write_text(good)
                wait_until(lambda: fleet.models() == 200, "the router serves again", 60)

            with self.subTest("reload"):
                write(fleet.keys, key_table("bob", "another key"))
                fleet.issue()
                fleet.process.send_signal(signal.SIGHUP)
                wait_until(lambda: fleet.models() == 401, "the new certificate and the new keys are in use", 30)
                write(fleet.keys, key_table("alice", KEY))
                run = str(pathlib.Path(fleet.folder, "run"))
                result = subprocess.run([str(BIN / "quadriga"), "reload", "--runtime-dir", run], capture_output=True, text=True)
                self.assertEqual(result.returncode, 0, result.stderr)
                self.assertIn("keys: 1", result.stdout)
                self.assertIn("tls: ", result.stdout)
                self.assertEqual(fleet.models(), 200, "and the old key again")
                write(fleet.keys, "a slip of the editor")
                result = subprocess.run([str(BIN / "quadriga"), "reload", "--runtime-dir", run], capture_output=True, text=True)
                self.assertEqual(result.returncode, 2)
                self.assertIn(str(fleet.keys), result.stderr)
                self.assertEqual(fleet.models(), 200, "the old keys stay")

            self.assertEqual(fleet.replica_pids(), loaded, "no replica was loaded again")
            socket_path = pathlib.Path(fleet.folder, "run", "router-admin.sock")
            self.assertEqual(socket_path.stat().st_mode & 0o777, 0o660)

    def test_a_bad_file_at_the_first_start_ends_it(self):
        fleet = TlsFleet(replicas=1)
        try:
            write(fleet.keys, "nonsense")
            fleet.launch()
            self.assertEqual(fleet.process.wait(timeout=60 * PATIENCE), 2)
            self.assertIn(str(fleet.keys), fleet.log_text())
        finally:
            fleet.kill()


if __name__ == "__main__":
    unittest.main(verbosity=2)
