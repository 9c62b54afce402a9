"""Eight tool calls through the router: two wordings of each of four tools, thinking on and off, streamed and not.
Each must name the right function with the right arguments, and the tool's result must be reported."""

import json
import unittest

from fleet import Fleet, tool

TOOLS = [tool("calculate", formula="string"), tool("set_light", room="string", on="boolean"),
         tool("set_timer", minutes="integer"), tool("search_docs", query="string", limit="integer")]

# text, thinking, streamed, function, arguments
CASES = [
    ("Compute 17 + 25.", True, False, "calculate", {"formula": "17 + 25"}),
    ("Please calculate 90 - 34.", False, True, "calculate", {"formula": "90 - 34"}),
    ("Turn the light in the kitchen on.", True, True, "set_light", {"room": "kitchen", "on": True}),
    ("Turn the light in the garage off.", False, False, "set_light", {"room": "garage", "on": False}),
    ("Set a timer for 45 minutes.", True, False, "set_timer", {"minutes": 45}),
    ("Wake me in 12 minutes.", False, True, "set_timer", {"minutes": 12}),
    ("Find documents about how to clean a lantern. Give me 3 results.", True, True, "search_docs",
     {"query": "how to clean a lantern", "limit": 3}),
    ("Find documents about history of Oslo. Give me 8 results.", False, False, "search_docs",
     {"query": "history of Oslo", "limit": 8}),
]


class ToolCallsTest(unittest.TestCase):
    def ask(self, fleet, text, thinking, streamed):
        """(function, arguments, finish_reason) of the one call."""
        fields = dict(tools=TOOLS, temperature=0, max_tokens=200,
                      chat_template_kwargs={"enable_thinking": thinking})
        messages = [{"role": "user", "content": text}]
        if streamed:
            joined = fleet.chat_streamed(messages, **fields)
            self.assertTrue(joined.done)
            self.assertEqual(bool(joined.reasoning), thinking, joined.reasoning)
            calls, reason = joined.calls, joined.finish_reason
        else:
            status, body = fleet.chat(messages, **fields)
            self.assertEqual(status, 200, body)
            message = body["choices"][0]["message"]
            self.assertEqual(bool(message.get("reasoning_content")), thinking, message)
            calls = [(c["function"]["name"], c["function"]["arguments"])
                     for c in message.get("tool_calls", [])]
            reason = body["choices"][0]["finish_reason"]
        self.assertEqual(len(calls), 1, calls)
        return calls[0][0], json.loads(calls[0][1]), reason

    def test_eight_of_eight(self):
        with Fleet(replicas=2) as fleet:
            right = 0
            for text, thinking, streamed, function, arguments in CASES:
                with self.subTest(text=text, thinking=thinking, streamed=streamed):
                    answer = self.ask(fleet, text, thinking, streamed)
                    self.assertEqual(answer, (function, arguments, "tool_calls"))
                    right += 1
            print(f"tool calls: {right} of {len(CASES)} right")
            self.assertEqual(right, len(CASES))

    def test_the_result_of_a_call_is_reported(self):
        with Fleet(replicas=1) as fleet:
            call = {"id": "call_1", "type": "function",
                    "function": {"name": "calculate", "arguments": '{"formula": "17 + 25"}'}}
            status, body = fleet.chat(
                [{"role": "user", "content": "Compute 17 + 25."},
                 {"role": "assistant", "content": None, "tool_calls": [call]},
                 {"role": "tool", "tool_call_id": "call_1", "content": '{"result": 42}'}],
                tools=TOOLS, temperature=0, max_tokens=200)
            self.assertEqual(status, 200, body)
            self.assertIn("42", body["choices"][0]["message"]["content"])


if __name__ == "__main__":
    unittest.main(verbosity=2)
