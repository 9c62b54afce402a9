"""What an operator does to a fleet that serves: a replica is drained, undrained, removed and added over real replicas.

A stream that runs finishes, new requests go elsewhere, nobody gets an error; launcher and router know of each other's drains.
"""

import pathlib
import subprocess
import sys
import tempfile
import threading
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).parent))
from fleet import BIN, PATIENCE, AdminSocket, Fleet, Joined, wait_until  # noqa: E402
from replica_test import Replica  # noqa: E402

LONG = {"max_tokens": 400, "ignore_eos": True, "temperature": 0, "enable_thinking": False}
SHORT = {"max_tokens": 4, "temperature": 0, "enable_thinking": False}
HI = [{"role": "user", "content": "What does a horse do?"}]


def replica_of(headers):
    """The replica that the router's decision header names."""
    return int(headers["x-quadriga-decision"].split("replica=")[1].split(";")[0])


class Users:
    """Clients that ask one question after the other and count the answers that were none."""

    def __init__(self, fleet, count):
        self.fleet, self.answers, self.failures = fleet, 0, []
        self.is_over = threading.Event()
        self.lock = threading.Lock()
        self.threads = [threading.Thread(target=self.ask, args=(i,), daemon=True) for i in range(count)]
        for thread in self.threads:
            thread.start()

    def ask(self, number):
        while not self.is_over.is_set():
            messages = [{"role": "user", "content": f"Question {number}. What does a horse do?"}]
            try:
                if number % 2 == 0:
                    joined = self.fleet.chat_streamed(messages, **SHORT)
                    failure = joined.error or (None if joined.done else "no [DONE]")
                else:
                    status, body = self.fleet.chat(messages, **SHORT)
                    failure = None if status == 200 else body
            except Exception as error:  # noqa: BLE001 - counted
                failure = repr(error)
            with self.lock:
                self.answers += 1
                if failure:
                    self.failures.append(failure)

    def wait_for_more(self, count):
        wanted = self.answers + count
        wait_until(lambda: self.answers >= wanted, f"{count} more answers", 120)

    def stop(self):
        self.is_over.set()
        for thread in self.threads:
            thread.join(timeout=60 * PATIENCE)


class Prober:
    """Asks like a load balancer, on a fresh connection each time, and keeps every answer that says there is nothing."""

    def __init__(self, fleet):
        self.fleet, self.count, self.wrong = fleet, 0, []
        self.is_over = threading.Event()
        self.thread = threading.Thread(target=self.ask, daemon=True)
        self.thread.start()

    def ask(self):
        while not self.is_over.is_set():
            for path, word in (("/ready", "ready"), ("/v1/models", '"id"')):
                try:
                    status, _, text = self.fleet.request("GET", path)
                    if status != 200 or word not in text:
                        self.wrong.append((path, status, text))
                except Exception as error:  # noqa: BLE001 - counted
                    self.wrong.append((path, repr(error)))
                self.count += 1

    def stop(self):
        self.is_over.set()
        self.thread.join(timeout=60 * PATIENCE)


class OperatorTest(unittest.TestCase):
    def command(self, fleet, *words):
        result = subprocess.run([str(BIN / "quadriga"), *words, "--runtime-dir", str(pathlib.Path(fleet.folder, "run"))],
                                capture_output=True, text=True, timeout=60 * PATIENCE)
        self.assertEqual(result.returncode, 0, result.stderr)
        return result.stdout

    def test_a_configuration_is_checked_without_a_start(self):
        with tempfile.TemporaryDirectory() as folder:
            file = pathlib.Path(folder, "quadriga.toml")

            def check(text):
                file.write_text(text)
                result = subprocess.run([str(BIN / "quadriga"), "check-config", "--config", str(file), "--backend", "cpu",
                                         "--runtime-dir", folder], capture_output=True, text=True, timeout=60 * PATIENCE)
                return result.returncode, result.stdout + result.stderr

            code, text = check("context = 4096\n[router]\nping_s = 5\n")
            self.assertEqual(code, 0, text)
            for line in (r"context = 4096 +# file .*:1", r"router\.ping_s = 5 +# file .*:3", r"router\.connect_s = 1 +# default",
                         r'replica_program = "" +# default; here ".*quadriga-replica"', r"threads_per_replica = 0 +# default; here [1-9]",
                         r"# digest of all this: sha256:[0-9a-f]{64}"):
                self.assertRegex(text, line)
            for wrong, word in (("[router]\nping = 5\n", "ping"), ("[router]\nping_s = -1\n", "ping-s"),
                                ("[router]\nping_s = \"x\"\n", "ping-s"), ("[router]\nadmin_listen = \"127.0.0.1:0\"\n", "admin-keys-file"),
                                ("keys_file = \"/no/such\"\n", "/no/such"), ("keys_file = \"%s\"\n" % file, "key file"),
                                ("host = \"0.0.0.0\"\n", "--keys-file"), ("prot = 1\n", "did you mean 'port'")):
                code, text = check(wrong)
                self.assertEqual(code, 2, wrong + text)
                self.assertIn(word, text)

    def asked(self, fleet):
        """The replica that a small question goes to."""
        body = {"messages": HI, **SHORT}
        status, headers, text = fleet.request("POST", "/v1/chat/completions", body)
        self.assertEqual(status, 200, text)
        return replica_of(headers)

    def test_drains_of_router_and_launcher_are_one(self):
        with Fleet(replicas=2) as fleet:
            admin = AdminSocket(fleet)
            loaded = fleet.pids()
            stream = fleet.stream(HI, **LONG)
            self.assertEqual(stream.status, 200)
            busy = replica_of(stream.response.headers)
            events = stream.events()
            next(events)

            with self.subTest("at the router: the stream goes on, new requests go elsewhere"):
                self.assertEqual(admin.post(f"/admin/replicas/{busy}/drain")["state"], "DRAINING")
                self.assertEqual({self.asked(fleet) for _ in range(4)}, {1 - busy})
                joined = Joined()
                for event in events:
                    joined.add(event)
                stream.close()
                self.assertTrue(joined.done)
                self.assertIsNone(joined.error)
                self.assertEqual(joined.finish_reason, "length")

            with self.subTest("the launcher shows it and undoes it"):
                shown = fleet.wait_for_states(["READY" if i != busy else "DRAINING" for i in range(2)])
                self.assertTrue(shown["replicas"][busy]["drained"])
                self.assertIn(f"quadriga undrain {busy}", self.command(fleet, "status"))
                self.command(fleet, "undrain", str(busy))
                fleet.wait_for_states(["READY"] * 2)
                self.assertFalse(admin.replica(busy)["drain_asked"])
                self.assertEqual(fleet.pids(), loaded, "no process was ended")

            with self.subTest("at the launcher: the router shows it and undoes it"):
                self.command(fleet, "drain", str(busy))
                fleet.wait_for_states(["READY" if i != busy else "ABSENT" for i in range(2)])
                wait_until(lambda: admin.replica(busy)["drain_asked"], "the router knows of the drain", 30)
                self.assertEqual(self.asked(fleet), 1 - busy)
                admin.post(f"/admin/replicas/{busy}/undrain")
                fleet.wait_for_states(["READY"] * 2)
                self.assertFalse(admin.replica(busy)["drain_asked"])

            with self.subTest("both replicas serve again"):
                first, second = fleet.stream(HI, **LONG), fleet.stream(HI, **LONG)
                served = {replica_of(s.response.headers) for s in (first, second)}
                first.close()
                second.close()
                self.assertEqual(served, {0, 1})
            fleet.wait_until_idle()

    def test_the_router_is_restarted_under_load(self):
        with tempfile.TemporaryDirectory() as folder:
            file = pathlib.Path(folder, "quadriga.toml")
            file.write_text("[router]\nping_s = 5\n")
            with Fleet(replicas=2, args=["--config", str(file)]) as fleet:
                loaded = fleet.pids()
                users, prober = Users(fleet, 4), Prober(fleet)
                streams = []
                try:
                    for shown in (False, True):
                        stream = fleet.stream(HI, **LONG)
                        self.assertEqual(stream.status, 200)
                        self.assertEqual("x-quadriga-decision" in stream.response.headers, not shown)
                        events = stream.events()
                        first = next(events)
                        file.write_text(f"[router]\ndecision_header = {str(shown).lower()}\n")
                        said = self.command(fleet, "restart", "router")
                        self.assertIn("serves with its new settings", said)
                        status, headers, text = fleet.request("POST", "/v1/chat/completions", {"messages": HI, **SHORT})
                        self.assertEqual(status, 200, text)
                        self.assertEqual("x-quadriga-decision" in headers, shown, "the new one answers")
                        streams.append((stream, first, events))
                        users.wait_for_more(8)
                    for stream, first, events in streams:
                        joined = Joined()
                        for event in [first, *events]:
                            joined.add(event)
                        stream.close()
                        self.assertTrue(joined.done, "a stream runs to its end at the router that began it")
                        self.assertIsNone(joined.error)
                        self.assertEqual(joined.finish_reason, "length")
                    users.wait_for_more(8)
                finally:
                    users.stop()
                    prober.stop()
                self.assertEqual(users.failures, [])
                self.assertEqual(prober.wrong, [])
                self.assertGreater(prober.count, 10)
                shown = lambda: self.command(fleet, "status")  # noqa: E731
                wait_until(lambda: "earlier router" not in shown(), "the earlier routers have ended", 60)
                router, *replicas = fleet.pids()
                self.assertNotEqual(router, loaded[0])
                self.assertEqual(replicas, loaded[1:], "no replica was loaded again")
                fleet.wait_until_idle()

    def test_a_replica_is_removed_and_added_under_load(self):
        with Fleet(replicas=1) as fleet, Replica("--threads", "1") as extra:
            admin = AdminSocket(fleet)
            url = f"http://127.0.0.1:{extra.port}"
            users = Users(fleet, 4)
            try:
                users.wait_for_more(8)
                number = admin.post("/admin/replicas", {"url": url})["replica"]
                self.assertEqual(number, 1)
                self.assertEqual(admin.post("/admin/replicas", {"url": url})["replica"], number, "once")
                wait_until(lambda: admin.replica(number)["state"] == "READY", "the added one is READY", 60)
                served = lambda: fleet.metrics("/metrics").get(  # noqa: E731
                    f'quadriga_router_upstream_requests_total{{outcome="ok",replica="{number}"}}', 0)
                wait_until(lambda: served() >= 4, "the added one serves", 60)
                gone = admin.request("DELETE", f"/admin/replicas/{number}")
                self.assertIn(gone[0], (200, 202))
                wait_until(lambda: admin.replica(number) is None, "it is forgotten", 60)
                users.wait_for_more(8)
                again = admin.post("/admin/replicas", {"url": url})["replica"]
                self.assertEqual(again, 2, "its number is not used again")
                wait_until(lambda: admin.replica(again)["state"] == "READY", "it is READY again", 60)
                users.wait_for_more(8)
            finally:
                users.stop()
            self.assertEqual(users.failures, [])
            fleet.wait_until_idle()
            self.assertEqual(admin.request("DELETE", "/admin/replicas/0")[0], 409, "the launcher's own")


if __name__ == "__main__":
    unittest.main(verbosity=2)
