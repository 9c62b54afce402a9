"""Cases of the router's specification over real replicas with the demo model: clients that leave at every phase, crowds
that do not fit, a replica that is stopped and goes on. What is asserted are counts, codes and gauges; times of the
router itself come from its own histogram."""

import os
import random
import signal
import tempfile
import unittest

from fleet import Fleet, in_parallel, wait_until

LONG = dict(temperature=0, max_tokens=1500, ignore_eos=True, enable_thinking=False)
SHORT = dict(temperature=0, max_tokens=8, enable_thinking=False)
MESSAGES = [{"role": "user", "content": "Tell me a story about Oscar."}]
DOCUMENT = [{"role": "user", "content": "lantern stable horse river notebook " * 500}]


class RouterCasesTest(unittest.TestCase):
    def test_r1_clients_that_leave_at_every_phase_leave_nothing_behind(self):
        folder = tempfile.TemporaryDirectory(prefix="quadriga-cases-")
        self.addCleanup(folder.cleanup)
        config = os.path.join(folder.name, "quadriga.toml")
        with open(config, "w") as file:
            file.write("[router]\ndispatch_ahead = 1\n")
        with Fleet(replicas=1, sequences=1, args=["--config", config]) as fleet:
            def left(phase):
                return fleet.metrics("/metrics").get(f'quadriga_router_client_aborts_total{{phase="{phase}"}}', 0)

            # One decodes, the next is sent ahead and waits in the replica, the third waits in the router.
            decoding = fleet.stream(MESSAGES, **LONG)
            next(decoding.events())
            ahead = fleet.connect()
            ahead.request("POST", "/v1/chat/completions", b'{"messages":[{"role":"user","content":"hi"}]}',
                          {"Content-Type": "application/json"})
            wait_until(lambda: fleet.metrics("/metrics")['quadriga_router_requests_inflight{phase="prefill"}'] == 1,
                       "the second is at the replica")
            queued = fleet.connect()
            queued.request("POST", "/v1/chat/completions", b'{"messages":[{"role":"user","content":"hi"}]}',
                           {"Content-Type": "application/json"})
            wait_until(lambda: fleet.metrics("/metrics")['quadriga_router_requests_inflight{phase="queued"}'] == 1,
                       "the third waits")
            queued.close()
            wait_until(lambda: left("queued") == 1, "the router noticed that the third left")
            ahead.close()
            wait_until(lambda: left("prefill") == 1, "the second")
            decoding.close()
            wait_until(lambda: left("decode") == 1, "the first")
            fleet.wait_until_idle()  # KV blocks and sequences of the replica as well
            metrics = fleet.metrics("/metrics")
            self.assertEqual(metrics['quadriga_router_cancel_seconds_bucket{le="0.1"}'], 3, "the router's own share")
            status, body = fleet.chat(MESSAGES, **SHORT)
            self.assertEqual(status, 200, body)

    def test_r2_r3_r11_crowds_that_leave_fail_and_do_not_fit(self):
        folder = tempfile.TemporaryDirectory(prefix="quadriga-cases-")
        self.addCleanup(folder.cleanup)
        config = os.path.join(folder.name, "quadriga.toml")
        with open(config, "w") as file:
            file.write("[router]\nqueue_count_max = 16\n")
        with Fleet(replicas=2, sequences=2, context=1024, args=["--config", config]) as fleet:
            with self.subTest("R2: requests that are cancelled at random points leave every gauge at zero"):
                self.leave_at_random(fleet)
            with self.subTest("R3: prompts that do not fit are refused and open no breaker"):
                self.ask_too_much(fleet)
            with self.subTest("R11: the surplus of a crowd is told to come back"):
                self.crowd(fleet)
            for replica in (0, 1):
                metrics = fleet.metrics("/metrics")
                self.assertEqual(metrics[f'quadriga_router_breaker_state{{replica="{replica}"}}'], 0)
            self.assertEqual(fleet.chat(MESSAGES, **SHORT)[0], 200)

    def leave_at_random(self, fleet):
        seed = random.randrange(1 << 32)
        chance = random.Random(seed)

        def leaver(events):
            stream = fleet.stream(MESSAGES, temperature=0, max_tokens=60, enable_thinking=False)
            self.assertIn(stream.status, (200, 429), f"seed {seed}")
            for count, _ in enumerate(stream.events()):
                if count >= events:
                    break
            stream.close()

        for _ in range(4):
            in_parallel([lambda events=chance.randrange(40): leaver(events) for _ in range(10)])
        fleet.wait_until_idle()

    def ask_too_much(self, fleet):
        too_long = [{"role": "user", "content": "lantern stable horse river notebook " * 1500}]
        for _ in range(25):
            for status, body in in_parallel([lambda: fleet.chat(too_long, **SHORT)] * 2):
                self.assertEqual(status, 400)
                self.assertEqual(body["error"]["code"], "context_length_exceeded")
        self.assertEqual(fleet.chat(MESSAGES, **SHORT)[0], 200)

    def crowd(self, fleet):
        def ask():
            status, headers, body = fleet.request("POST", "/v1/chat/completions", {"messages": MESSAGES, **SHORT})
            return status, headers.get("retry-after"), body

        answers = in_parallel([ask] * 150)
        self.assertEqual({status for status, _, _ in answers}, {200, 429})
        for status, retry_after, body in answers:
            if status == 429:
                self.assertIn("queue_full", body)
                self.assertTrue(1 <= int(retry_after) <= 60, retry_after)
        self.assertGreaterEqual(sum(status == 200 for status, _, _ in answers), 16)
        fleet.wait_until_idle()

    def test_r4_a_stopped_replica_gets_no_work_and_comes_back(self):
        with Fleet(replicas=2, sequences=2) as fleet:
            victim = fleet.status()["replicas"][0]
            os.kill(victim["pid"], signal.SIGSTOP)
            try:
                wait_until(lambda: fleet.ready_in_router() == 1, "the router noticed the silence", 60)
                for _, body in in_parallel([lambda: fleet.chat(MESSAGES, **SHORT)] * 4):
                    self.assertIn("choices", body)
            finally:
                os.kill(victim["pid"], signal.SIGCONT)
            fleet.wait_for_states(["READY"] * 2)
            fleet.wait_until_idle()
            self.assertEqual(fleet.chat(DOCUMENT, **SHORT)[0], 200)

    def test_a_replica_that_comes_back_is_another_instance_and_is_used(self):
        with Fleet(replicas=1, sequences=2, args=["--backoff-first-s", "0.2"]) as fleet:
            self.assertEqual(fleet.chat(MESSAGES, **SHORT)[0], 200)
            victim = fleet.status()["replicas"][0]
            os.kill(victim["pid"], signal.SIGKILL)
            wait_until(lambda: (s := fleet.status()) and s["replicas"][0]["instance"] not in ("", None, victim["instance"])
                       and s["replicas"][0]["state"] == "READY", "another instance", 120)
            status, headers, _ = fleet.request("POST", "/v1/chat/completions", {"messages": MESSAGES, **SHORT})
            self.assertEqual(status, 200)
            self.assertNotEqual(headers["x-quadriga-instance"], victim["instance"])


if __name__ == "__main__":
    unittest.main(verbosity=2)
