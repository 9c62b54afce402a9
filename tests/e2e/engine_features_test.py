"""What a client sees of the engine's features through router and replica, with the demo model: the prefix cache,
choices that share a prompt, log-probabilities, prompts as token ids, echo, limits on the end, seeds, drafts, metrics.

Two fleets answer the same questions: one as it comes, one without prefix cache and with drafts in every step. Greedy
answers must not differ."""

import json
import math
import unittest

from fleet import Fleet, in_parallel

GREEDY = {"temperature": 0, "max_tokens": 40}
SYSTEM = {"role": "system", "content": "You answer questions about a farm. Be brief and kind. " * 6}


def turns(*texts):
    """system, user, assistant, user, …"""
    roles = ["user", "assistant"]
    return [SYSTEM] + [{"role": roles[i % 2], "content": text} for i, text in enumerate(texts)]


def cached(body):
    return body["usage"]["prompt_tokens_details"]["cached_tokens"]


class EngineFeaturesTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.fleet = cls.enterClassContext(Fleet(replicas=1, sequences=8))
        cls.plain = cls.enterClassContext(
            Fleet(replicas=1, sequences=8, args=["--prefix-cache", "off", "--drafts", "always"]))

    def chat(self, fleet, messages, **fields):
        status, body = fleet.chat(messages, **fields)
        self.assertEqual(status, 200, body)
        return body

    def complete(self, expected=200, **fields):
        status, _, text = self.fleet.request("POST", "/v1/completions", fields)
        self.assertEqual(status, expected, text)
        return json.loads(text)

    def metric(self, name, fleet=None):
        """The sum over a family's series."""
        values = (fleet or self.fleet).metrics()
        return sum(v for s, v in values.items() if s.split("{")[0] == f"quadriga_replica_{name}")

    def test_a_second_turn_is_found_in_the_cache_and_says_the_same_as_without(self):
        question, more = "What does a horse do?", "And what does a cow do?"
        before = {name: self.metric(name) for name in ("prefix_hit_tokens_total", "cached_prompt_tokens_total")}
        first = self.chat(self.fleet, turns(question), **GREEDY)
        reply = first["choices"][0]["message"]["content"] or ""
        second = self.chat(self.fleet, turns(question, reply, more), **GREEDY)
        self.assertGreater(cached(second), first["usage"]["prompt_tokens"] // 2)
        for name, value in before.items():
            self.assertGreaterEqual(self.metric(name), value + cached(second), name)
        self.assertGreater(self.metric("checkpoints_created_total"), 0)
        self.assertGreater(self.metric("checkpoints_restored_total"), 0)
        without = self.chat(self.plain, turns(question, reply, more), **GREEDY)
        self.assertEqual(cached(without), 0)
        self.assertEqual(second["choices"][0]["message"], without["choices"][0]["message"])
        self.assertEqual(first["choices"][0]["message"],
                         self.chat(self.plain, turns(question), **GREEDY)["choices"][0]["message"])

    def test_the_header_and_the_streamed_usage_tell_cached_tokens_too(self):
        # The header is for the router, which keeps it: the replica itself is asked.
        body = {"messages": turns("Name three animals."), **GREEDY}
        port = self.fleet.status()["replicas"][0]["port"]
        key = {"Authorization": f"Bearer {self.fleet.internal_key()}"}
        self.fleet.request("POST", "/v1/chat/completions", body)
        status, headers, text = self.fleet.request("POST", "/v1/chat/completions", body, key, port)
        self.assertEqual(status, 200, text)
        self.assertGreater(cached(json.loads(text)), 0)
        self.assertEqual(int(headers["x-quadriga-cached-tokens"]), cached(json.loads(text)))
        joined = self.fleet.chat_streamed(body["messages"], stream_options={"include_usage": True}, **GREEDY)
        self.assertGreater(joined.usage["prompt_tokens_details"]["cached_tokens"], 0)

    def test_a_salt_parts_what_would_be_shared(self):
        messages = turns("Tell me about barns.")
        self.chat(self.fleet, messages, **GREEDY)
        salted = self.chat(self.fleet, messages, cache_salt="mine", prompt_cache_key="a key", **GREEDY)
        self.assertEqual(cached(salted), 0)
        self.assertGreater(cached(self.chat(self.fleet, messages, cache_salt="mine", **GREEDY)), 0)

    def test_choices_share_their_prompt(self):
        messages = turns("Say something about three choices.")
        before = self.metric("prompt_tokens_total")
        body = self.chat(self.fleet, messages, n=3, seed=7, temperature=1, max_tokens=16)
        self.assertEqual([c["index"] for c in body["choices"]], [0, 1, 2])
        prompt = body["usage"]["prompt_tokens"]
        self.assertLessEqual(self.metric("prompt_tokens_total") - before, prompt)
        alone = self.chat(self.fleet, messages, seed=7, temperature=1, max_tokens=16)
        self.assertEqual(alone["usage"]["prompt_tokens"], prompt)
        self.assertEqual(alone["choices"][0]["message"], body["choices"][0]["message"])

    def test_log_probabilities_are_probabilities_and_spell_the_answer(self):
        fields = {"logprobs": True, "top_logprobs": 20, "reasoning_effort": "none", **GREEDY}
        choice = self.chat(self.fleet, turns("What does a horse do?"), **fields)["choices"][0]
        entries = choice["logprobs"]["content"]
        spelled = b"".join(bytes(entry["bytes"]) for entry in entries).decode()
        self.assertIn(choice["message"]["content"], spelled)
        for entry in entries:
            best = entry["top_logprobs"]
            self.assertEqual(len(best), 20)
            self.assertLessEqual(sum(math.exp(top["logprob"]) for top in best), 1 + 1e-4)
            self.assertEqual(best, sorted(best, key=lambda top: -top["logprob"]))
            self.assertEqual(entry["bytes"], best[0]["bytes"], "greedy takes the best")
            self.assertAlmostEqual(entry["logprob"], best[0]["logprob"], places=5)
        drafted = self.chat(self.plain, turns("What does a horse do?"), **fields)["choices"][0]["logprobs"]["content"]
        self.assertEqual([e["bytes"] for e in drafted], [e["bytes"] for e in entries])
        for one, other in zip(drafted, entries):
            self.assertAlmostEqual(one["logprob"], other["logprob"], places=4)
        stream = self.fleet.stream(turns("What does a horse do?"), **fields)
        streamed = []
        for event in stream.events():
            if event.data != "[DONE]":
                for part in event.json()["choices"]:
                    streamed += (part["logprobs"] or {}).get("content", [])
        stream.close()
        self.assertEqual([e["bytes"] for e in streamed], [e["bytes"] for e in entries])
        for one, other in zip(streamed, entries):
            self.assertAlmostEqual(one["logprob"], other["logprob"], places=4)

    def test_a_stop_string_cuts_text_and_entries_alike(self):
        whole = self.chat(self.fleet, turns("What does a horse do?"), reasoning_effort="none", **GREEDY)
        text = whole["choices"][0]["message"]["content"]
        stop = text[2:5]
        choice = self.chat(self.fleet, turns("What does a horse do?"), reasoning_effort="none", stop=stop,
                           logprobs=True, **GREEDY)["choices"][0]
        self.assertEqual(choice["message"]["content"], text[:text.index(stop)])
        spelled = b"".join(bytes(e["bytes"]) for e in choice["logprobs"]["content"]).decode(errors="replace")
        self.assertTrue(spelled.startswith(choice["message"]["content"]))
        entries = choice["logprobs"]["content"]
        if entries:
            self.assertLess(len(spelled) - len(entries[-1]["token"]), len(choice["message"]["content"]))

    def test_prompts_are_texts_or_token_ids_alone_or_in_lists(self):
        texts = ["The horses of the farm", "A cow"]
        ids = []
        for text in texts:
            _, _, answer = self.fleet.request("POST", "/tokenize", {"content": text, "add_special": True})
            ids.append(json.loads(answer)["tokens"])
        fields = {"temperature": 0, "max_tokens": 8}
        by_text = [c["text"] for c in self.complete(prompt=texts, **fields)["choices"]]
        self.assertEqual(by_text, [c["text"] for c in self.complete(prompt=ids, **fields)["choices"]])
        self.assertEqual(by_text[0], self.complete(prompt=texts[0], **fields)["choices"][0]["text"])
        self.assertEqual(by_text[1], self.complete(prompt=ids[1], **fields)["choices"][0]["text"])
        twice = self.complete(prompt=ids, n=2, best_of=2, **fields)
        self.assertEqual([c["text"] for c in twice["choices"]], [by_text[0]] * 2 + [by_text[1]] * 2)
        self.assertEqual(twice["usage"]["prompt_tokens"], sum(map(len, ids)))
        echoed = self.complete(prompt=ids[0], echo=True, **fields)["choices"][0]["text"]
        self.assertEqual(echoed, texts[0] + by_text[0])
        for prompt in ([], [[]], [10**9], [-1], ["a"] * 17, [1.5], "", ["a", [1]]):
            self.assertEqual(self.complete(400, prompt=prompt)["error"]["param"].split("[")[0], "prompt")
        self.assertEqual(self.complete(400, prompt="a", echo=True, logprobs=1)["error"]["param"], "echo")
        self.assertEqual(self.complete(400, prompt="a", n=3, best_of=4)["error"]["param"], "best_of")

    def test_completion_log_probabilities_line_up_with_the_text(self):
        choice = self.complete(prompt="The horses of the farm", logprobs=5, temperature=0, max_tokens=8)["choices"][0]
        logprobs = choice["logprobs"]
        self.assertEqual("".join(logprobs["tokens"]), choice["text"])
        for token, offset, value, best in zip(logprobs["tokens"], logprobs["text_offset"],
                                              logprobs["token_logprobs"], logprobs["top_logprobs"]):
            self.assertTrue(choice["text"][offset:].startswith(token))
            self.assertAlmostEqual(best[token], value, places=5)
            self.assertAlmostEqual(max(best.values()), value, places=5)

    def test_the_end_can_be_kept_away_or_brought_about(self):
        messages = turns("What does a horse do?")
        fields = {"temperature": 0, "reasoning_effort": "none", "return_token_ids": True}
        free = self.chat(self.fleet, messages, max_tokens=60, **fields)
        self.assertEqual(free["choices"][0]["finish_reason"], "stop")
        length = free["usage"]["completion_tokens"]
        longer = self.chat(self.fleet, messages, max_tokens=60, min_tokens=length + 5, **fields)
        self.assertGreaterEqual(longer["usage"]["completion_tokens"], length + 5)
        endless = self.chat(self.fleet, messages, max_tokens=length + 9, ignore_eos=True, **fields)
        self.assertEqual(endless["choices"][0]["finish_reason"], "length")
        self.assertEqual(endless["usage"]["completion_tokens"], length + 9)
        ids = free["choices"][0]["token_ids"]
        stopped = self.chat(self.fleet, messages, max_tokens=60, stop_token_ids=[ids[2]], **fields)
        self.assertEqual(stopped["choices"][0]["stop_reason"], ids[2])
        self.assertEqual(stopped["choices"][0]["token_ids"], ids[:ids.index(ids[2])])

    def test_a_seed_gives_its_text_alone_and_in_company(self):
        messages = turns("Tell me a story about a foal.")
        fields = {"seed": 4711, "temperature": 1.2, "max_tokens": 48, "ignore_eos": True}
        alone = self.chat(self.fleet, messages, **fields)["choices"][0]["message"]
        jobs = [lambda: self.chat(self.fleet, messages, **fields)["choices"][0]["message"]]
        jobs += [lambda i=i: self.chat(self.fleet, turns("Company " * (3 * i + 1)), temperature=1, seed=i,
                                       max_tokens=40 + i, ignore_eos=True) for i in range(7)]
        self.assertEqual(in_parallel(jobs)[0], alone)
        self.assertEqual(self.chat(self.plain, messages, **fields)["choices"][0]["message"], alone, "with drafts")
        other = self.chat(self.fleet, messages, **{**fields, "seed": 4712})["choices"][0]["message"]
        self.assertNotEqual(other, alone)

    def test_drafts_change_the_speed_and_nothing_else(self):
        before = self.metric("draft_tokens_total", self.plain)
        for text in ("What does a horse do?", "Name three animals.", "Compute 17 + 25."):
            fields = {"include_timings": True, "cache_salt": text, **GREEDY}
            drafted = self.chat(self.plain, turns(text), **fields)
            without = self.chat(self.plain, turns(text), draft_tokens=0, **fields)
            self.assertEqual(drafted["choices"][0]["message"], without["choices"][0]["message"])
            self.assertEqual(drafted["usage"]["completion_tokens"], without["usage"]["completion_tokens"])
            self.assertEqual((without["timings"]["drafted"], without["timings"]["accepted"]), (0, 0))
            self.assertGreater(drafted["timings"]["drafted"], 0)
            self.assertLessEqual(drafted["timings"]["accepted"], drafted["timings"]["drafted"])
        self.assertGreater(self.metric("draft_tokens_total", self.plain), before)
        _, _, info = self.plain.get("/info")
        self.assertTrue(json.loads(info)["replicas"][0]["info"]["mtp"]["available"])

    def test_nothing_is_left_behind(self):
        self.fleet.wait_until_idle()
        self.plain.wait_until_idle()


if __name__ == "__main__":
    unittest.main(verbosity=2)
