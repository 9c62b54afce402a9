"""The demo's own client: waits for the fleet, asks one question, calls one tool, prints both.

With --check it verifies the answers and prints a JSON document; with --gone it takes that document, makes sure that no process of it
is left, and prints the final line.
"""

import argparse
import http.client
import json
import pathlib
import subprocess
import sys
import time

READY_DEADLINE_S = 300
QUESTION = {"messages": [{"role": "user", "content": "What does a horse do?"}],
            "max_tokens": 60, "temperature": 0, "stream": True}
TOOL = {"type": "function", "function": {
    "name": "calculate", "description": "Calculate an expression",
    "parameters": {"type": "object", "required": ["formula"],
                   "properties": {"formula": {"type": "string", "description": "Expression"}}}}}
TOOL_CALL = {"messages": [{"role": "user", "content": "Calculate 17 + 25."}], "tools": [TOOL],
             "max_tokens": 120, "temperature": 0}


class DemoFailure(Exception):
    pass


def fleet_status(arguments):
    """The launcher's status, or None while it does not answer yet."""
    result = subprocess.run([arguments.launcher, "status", "--json", "--runtime-dir", arguments.runtime_dir],
                            capture_output=True, check=False)
    return json.loads(result.stdout) if result.returncode == 0 else None


def process_alive(pid):
    try:
        stat = pathlib.Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return False
    return stat.rsplit(")", 1)[1].split()[0] not in "ZX"


def wait_for_fleet(arguments):
    deadline = time.monotonic() + READY_DEADLINE_S
    while time.monotonic() < deadline:
        if not process_alive(arguments.pid):
            raise DemoFailure("the launcher ended before the fleet was ready")
        status = fleet_status(arguments)
        if status and all(r["state"] == "READY" for r in status["replicas"]):
            return status
        time.sleep(0.1)
    raise DemoFailure(f"the fleet was not ready within {READY_DEADLINE_S} s")


def post(port, body):
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=120)
    connection.request("POST", "/v1/chat/completions", json.dumps(body), {"Content-Type": "application/json"})
    response = connection.getresponse()
    if response.status != 200:
        raise DemoFailure(f"status {response.status}: {response.read().decode(errors='replace')}")
    return response


def ask_streamed(port, show):
    """The answer's content and its number of events; `show` gets each piece as it arrives."""
    content, reasoning, events, done = "", "", 0, False
    for line in post(port, QUESTION):
        if not line.startswith(b"data:"):
            continue
        data = line[5:].strip().decode()
        if data == "[DONE]":
            done = True
            break
        events += 1
        delta = json.loads(data)["choices"][0]["delta"]
        if delta.get("reasoning_content"):
            show("reasoning", delta["reasoning_content"])
            reasoning += delta["reasoning_content"]
        if delta.get("content"):
            show("content", delta["content"])
            content += delta["content"]
    if not done:
        raise DemoFailure("the stream ended without [DONE]")
    return content, reasoning, events


def call_tool(port):
    message = json.loads(post(port, TOOL_CALL).read())["choices"][0]["message"]
    calls = message.get("tool_calls") or []
    if len(calls) != 1:
        raise DemoFailure(f"one tool call was expected, the answer is {message}")
    return calls[0]["function"]["name"], json.loads(calls[0]["function"]["arguments"])


def curl_line(port, body):
    return (f"curl -sN http://127.0.0.1:{port}/v1/chat/completions -H 'content-type: application/json' \\\n"
            f"  -d '{json.dumps(body)}'")


def run_check(arguments):
    status = wait_for_fleet(arguments)
    ready_s = status["launcher"]["up_s"]  # from the start of the launcher until all replicas were READY
    port = status["router"]["port"]
    content, reasoning, events = ask_streamed(port, lambda kind, text: None)
    if "neigh" not in content or not reasoning or events < 4:
        raise DemoFailure(f"the streamed answer is {content!r} in {events} events")
    name, formula = call_tool(port)
    if (name, formula) != ("calculate", {"formula": "17 + 25"}):
        raise DemoFailure(f"the tool call is {name} {formula}")
    print(json.dumps({"passed": True, "replicas": len(status["replicas"]), "ready_s": round(ready_s, 2),
                      "answer": content, "stream_events": events,
                      "tool_call": {"name": name, "arguments": formula},
                      "pids": [status["router"]["pid"], *[r["pid"] for r in status["replicas"]]]}))


def run_shown(arguments):
    status = wait_for_fleet(arguments)
    port = status["router"]["port"]
    print(f"\nQuestion: {QUESTION['messages'][0]['content']}")
    kinds = []

    def show(kind, text):
        if kinds != [kind]:
            print(f"\n  {kind}: ", end="")
            kinds[:] = [kind]
        print(text.replace("\n", "\n  "), end="", flush=True)

    ask_streamed(port, show)
    print("\n\n" + curl_line(port, QUESTION))
    print(f"\nTool call: {TOOL_CALL['messages'][0]['content']}")
    name, formula = call_tool(port)
    print(f"\n  {name}({json.dumps(formula)})\n\n" + curl_line(port, TOOL_CALL))
    print(f"\nThe fleet stays up at http://127.0.0.1:{port}/v1 until Ctrl-C; dashboard: http://127.0.0.1:{port}/dashboard")


def run_gone(document):
    result = json.loads(document)
    left = [pid for pid in result.pop("pids") if process_alive(pid)]
    if left:
        result.update(passed=False, failed=f"processes left behind: {left}")
    print(json.dumps(result, ensure_ascii=False))
    return 1 if left else 0


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--launcher")
    parser.add_argument("--runtime-dir")
    parser.add_argument("--pid", type=int, help="the launcher's")
    parser.add_argument("--check", action="store_true")
    parser.add_argument("--gone", metavar="JSON")
    arguments = parser.parse_args()
    if arguments.gone is not None:
        return run_gone(arguments.gone)
    try:
        (run_check if arguments.check else run_shown)(arguments)
    except (DemoFailure, OSError, ValueError, KeyError) as failure:
        if arguments.check:
            print(json.dumps({"passed": False, "failed": str(failure)}))
        print(f"demo: {failure}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
