"""Four replicas, sixteen clients, short and long prompts, plain and streamed, some cancelled midway: every request
ends rightly, gauges return to zero, shares are even, and at temperature 0 each answer equals one replica's alone."""

import random
import threading
import unittest

from fleet import Fleet, in_parallel

CLIENTS = 16
REQUESTS_PER_CLIENT = 6
SEED = 20261129

WORDS = "horse stable lantern router pencil valley forest river notebook brush battery garden".split()


def make_prompt(random_source, is_long):
    if not is_long:
        return random_source.choice(["What does a horse do?", "Who are you?", "Thank you!",
                                     "The opposite of true?", "Tell me a story about Oscar."])
    words = " ".join(random_source.choice(WORDS) for _ in range(400))
    return f"Document: {words}\n\nWhat is the document about?"


def plan_requests():
    source = random.Random(SEED)
    plans = []
    for client in range(CLIENTS):
        for index in range(REQUESTS_PER_CLIENT):
            is_long = source.random() < 0.3
            plans.append({"client": client, "prompt": make_prompt(source, is_long),
                          "max_tokens": source.choice([8, 24, 60]),
                          "mode": source.choice(["plain", "stream", "stream", "cancel"]),
                          "cancel_after": source.randrange(0, 6)})
    return plans


def fields_of(plan):
    return dict(temperature=0, max_tokens=plan["max_tokens"], enable_thinking=False)


class LoadTest(unittest.TestCase):
    def answer(self, fleet, plan, port=None):
        """The text of a completed request; None of a cancelled one."""
        messages = [{"role": "user", "content": plan["prompt"]}]
        if plan["mode"] == "plain":
            status, body = fleet.chat(messages, port, **fields_of(plan))
            self.assertEqual(status, 200, body)
            choice = body["choices"][0]
            self.assertIn(choice["finish_reason"], ("stop", "length"))
            self.assertLessEqual(body["usage"]["completion_tokens"], plan["max_tokens"])
            return choice["message"]["content"] or ""
        if plan["mode"] == "stream":
            joined = fleet.chat_streamed(messages, port, stream_options={"include_usage": True},
                                         **fields_of(plan))
            self.assertIsNone(joined.error)
            self.assertTrue(joined.done)
            self.assertIn(joined.finish_reason, ("stop", "length"))
            self.assertLessEqual(joined.usage["completion_tokens"], plan["max_tokens"])
            return joined.content
        stream = fleet.stream(messages, port, **{**fields_of(plan), "max_tokens": 2000,
                                                 "ignore_eos": True})
        self.assertEqual(stream.status, 200)
        for index, _ in enumerate(stream.events()):
            if index >= plan["cancel_after"]:
                break
        stream.close()
        return None

    def test_mixed_load_with_cancels(self):
        plans = plan_requests()
        with Fleet(replicas=4) as fleet:
            before = fleet.metrics()
            answers = [None] * len(plans)
            lock = threading.Lock()
            queue = list(range(len(plans)))

            def client():
                while True:
                    with lock:
                        if not queue:
                            return
                        index = queue.pop(0)
                    answers[index] = self.answer(fleet, plans[index])

            in_parallel([client] * CLIENTS)
            fleet.wait_until_idle()

            after = fleet.metrics()
            shares = []
            for replica in range(4):
                def served(metrics):
                    return sum(v for s, v in metrics.items()
                               if s.startswith("quadriga_router_upstream_requests_total{")
                               and f'replica="{replica}"' in s)
                shares.append(served(after) - served(before))
            def tokens(metrics, replica):
                names = ("quadriga_replica_prompt_tokens_total{", "quadriga_replica_generation_tokens_total{")
                return sum(v for s, v in metrics.items()
                           if s.startswith(names) and f'replica="{replica}"' in s)

            work = [tokens(after, r) - tokens(before, r) for r in range(4)]
            print("requests per replica:", [int(s) for s in shares], "tokens:", [int(w) for w in work])
            self.assertEqual(sum(shares), len(plans))
            # The router evens out work, which is tokens; requests differ in length by a factor of 50.
            self.assertGreaterEqual(min(work), 0.7 * sum(work) / 4)
            self.assertLessEqual(max(work), 1.3 * sum(work) / 4)
            self.assertGreaterEqual(min(shares), 0.4 * len(plans) / 4)

            completed = [i for i, plan in enumerate(plans) if plan["mode"] != "cancel"]
            self.assertTrue(all(answers[i] is not None for i in completed))

            # One replica, one request at a time: the same text.
            port = fleet.status()["replicas"][0]["port"]
            key = fleet.internal_key()
            alone = {}
            for i in completed:
                plan = {**plans[i], "mode": "plain"}
                text = (plan["prompt"], plan["max_tokens"])
                if text not in alone:
                    alone[text] = fleet.chat_alone(port, key, plan["prompt"], fields_of(plan))
                self.assertEqual(answers[i], alone[text], plan)
            print(f"{len(completed)} answers under load equal those of one replica alone")


if __name__ == "__main__":
    unittest.main(verbosity=2)
