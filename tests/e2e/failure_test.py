"""Killed processes under load: what had no first byte is answered by another replica, what had begun ends with an
error event, the replica comes back; and when the launcher is killed nothing is left."""

import json
import os
import signal
import threading
import time
import unittest

from fleet import Fleet, in_parallel, process_alive, wait_until

LONG = dict(temperature=0, max_tokens=1500, ignore_eos=True, enable_thinking=False)
MESSAGES = [{"role": "user", "content": "Tell me a story about Oscar."}]


class FailureTest(unittest.TestCase):
    def test_a_killed_replica_loses_only_begun_streams_and_comes_back(self):
        with Fleet(replicas=4, sequences=2, args=["--backoff-first-s", "0.2"]) as fleet:
            victim = fleet.status()["replicas"][1]
            began = threading.Semaphore(0)
            killed = threading.Event()
            outcomes = []

            def client():
                stream = fleet.stream(MESSAGES, **LONG)
                if stream.status != 200:
                    outcomes.append(("status", stream.status, killed.is_set()))
                    began.release()
                    return
                finished, error, first = False, None, True
                for event in stream.events():
                    if first:
                        began.release()
                        first = False
                    if event.name == "error":
                        error = event.json()["error"]["code"]
                    elif event.data == "[DONE]":
                        finished = True
                stream.close()
                outcomes.append(("stream", finished, error))

            # 8 places on 4 replicas; 12 clients: some stream, the rest wait in the router.
            threads = [threading.Thread(target=client, daemon=True) for _ in range(12)]
            for thread in threads:
                thread.start()
            for _ in range(8):
                self.assertTrue(began.acquire(timeout=60))
            os.kill(victim["pid"], signal.SIGKILL)
            killed.set()
            for thread in threads:
                thread.join(timeout=180)
                self.assertFalse(thread.is_alive(), "a request never ended")

            finished = [o for o in outcomes if o[1] is True]
            broken = [o for o in outcomes if o[0] == "stream" and o[1] is False]
            self.assertEqual(len(outcomes), 12, outcomes)
            self.assertEqual(len(finished) + len(broken), 12, outcomes)
            self.assertTrue(1 <= len(broken) <= 2, outcomes)  # the two places of the victim
            self.assertTrue(all(o[2] == "replica_lost" for o in broken), outcomes)

            status = fleet.wait_for_states(["READY"] * 4)
            again = status["replicas"][1]
            self.assertNotEqual(again["pid"], victim["pid"])
            self.assertNotEqual(again["instance"], victim["instance"])
            fleet.wait_until_idle()

    def test_waiting_requests_are_answered_by_another_replica(self):
        with Fleet(replicas=2, sequences=2, args=["--backoff-first-s", "0.2"]) as fleet:
            victim = fleet.status()["replicas"][0]
            key = fleet.internal_key()
            # A prompt long enough that its first byte is some time away.
            document = "lantern stable horse river notebook " * 500
            messages = [{"role": "user", "content": document + "\n\nThank you!"}]
            fields = dict(temperature=0, max_tokens=8, enable_thinking=False)

            def ask():
                return fleet.chat(messages, **fields)

            def kill_when_busy():
                headers = {"Authorization": f"Bearer {key}"}

                def victim_works():
                    _, _, text = fleet.request("GET", "/internal/status", headers=headers,
                                               port=victim["port"])
                    return json.loads(text)["running"] > 0
                wait_until(victim_works, "the victim prefills", poll=0.005)
                os.kill(victim["pid"], signal.SIGKILL)

            results = in_parallel([ask, ask, ask, ask, kill_when_busy])
            for status, body in results[:4]:
                self.assertEqual(status, 200, body)
            self.assertEqual(len({r[1]["choices"][0]["message"]["content"] for r in results[:4]}), 1)
            fleet.wait_for_states(["READY"] * 2)

    def test_nothing_is_left_when_the_launcher_is_killed(self):
        fleet = Fleet(replicas=3).start()
        try:
            pids = fleet.pids()
            self.assertEqual(len(pids), 4)
            stream = fleet.stream(MESSAGES, **LONG)
            next(stream.events())
            fleet.process.kill()
            fleet.process.wait()
            killed_at = time.monotonic()
            wait_until(lambda: not any(process_alive(p) for p in pids), "all children gone", 5)
            print(f"all children gone {time.monotonic() - killed_at:.2f} s after kill -9 of the launcher")
            stream.close()
            # The next start in the same place works.
            fleet.start()
            fleet.stop()
        finally:
            fleet.kill()

    def test_nothing_is_left_when_the_launcher_is_killed_while_loading(self):
        fleet = Fleet(replicas=4).launch()
        try:
            status = wait_until(lambda: (s := fleet.status()) and s["replicas"][0]["pid"] and s,
                                "the first replica starts", poll=0.01)
            pids = [p for p in [status["router"]["pid"], *[r["pid"] for r in status["replicas"]]] if p]
            fleet.process.kill()
            fleet.process.wait()
            wait_until(lambda: not any(process_alive(p) for p in pids), "all children gone", 5)
        finally:
            fleet.kill()


if __name__ == "__main__":
    unittest.main(verbosity=2)
