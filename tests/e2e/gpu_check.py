"""The whole line on one GPU, from carried programs and with nothing but python3: a question, a tool call, parallel
streams, four replicas on the card, and one of them killed. Prints one JSON line; exit 0 when all of it held.

    QUADRIGA_BIN=build/cuda/carry python3 tests/e2e/gpu_check.py          the demo model
    ... gpu_check.py --load MODEL.gguf                                    how fast a large file loads, too
"""

import argparse
import json
import os
import signal
import sys
import time

os.environ.setdefault("QUADRIGA_BACKEND", "cuda")

from fleet import BACKEND, Fleet, in_parallel, tool, wait_until  # noqa: E402

STREAMS = 16


def question(fleet, report):
    status, body = fleet.chat([{"role": "user", "content": "What does a horse do?"}], temperature=0, max_tokens=40,
                              enable_thinking=False)
    report["answer"] = body["choices"][0]["message"]["content"] if status == 200 else body
    return status == 200 and bool(report["answer"].strip())


def tool_call(fleet, report):
    status, body = fleet.chat([{"role": "user", "content": "Set a timer for 45 minutes."}], temperature=0,
                              max_tokens=200, tools=[tool("set_timer", minutes="integer")], enable_thinking=False)
    calls = body["choices"][0]["message"].get("tool_calls") if status == 200 else None
    report["call"] = calls[0]["function"] if calls else body
    return bool(calls) and json.loads(calls[0]["function"]["arguments"]) == {"minutes": 45}


def streams(fleet, report):
    """Equal questions side by side give equal answers."""
    def ask():
        return fleet.chat_streamed([{"role": "user", "content": "Tell me a story about Oscar."}], temperature=0,
                                   max_tokens=100, enable_thinking=False, stream_options={"include_usage": True})

    begin = time.monotonic()
    answers = in_parallel([ask] * STREAMS)
    seconds = time.monotonic() - begin
    tokens = sum(a.usage["completion_tokens"] for a in answers)
    report["streams"] = {"count": STREAMS, "tokens": tokens, "seconds": round(seconds, 3)}
    return all(a.done and a.error is None for a in answers) and len({a.content for a in answers}) == 1


def kernels_armed(fleet, report):
    status, body = fleet.get("/info")[0], json.loads(fleet.get("/info")[2])
    info = body["replicas"][0].get("info") or {}
    report["kernels"] = {(k["name"] + ("/" + k["variant"] if k["variant"] else "")): [k["state"], k["runs"]]
                         for k in info.get("kernels", [])}
    report["gpu_uuid"] = info.get("gpu_uuid")
    return status == 200 and not info.get("degraded", True)


def gpus_shown(fleet, report):
    replicas = fleet.status()["replicas"]
    report["gpu"] = replicas[0].get("gpu")
    return all(r.get("gpu", {}).get("uuid", "").startswith("GPU-") for r in replicas)


def killed_one(fleet, report):
    """Its work goes elsewhere, and it comes back."""
    victim = fleet.status()["replicas"][1]
    begin = time.monotonic()
    os.kill(victim["pid"], signal.SIGKILL)
    status, _ = fleet.chat([{"role": "user", "content": "Who are you?"}], temperature=0, max_tokens=20)
    wait_until(lambda: fleet.status()["replicas"][1]["pid"] not in (0, victim["pid"]), "another process")
    fleet.wait_for_states(["READY"] * 4)
    report["seconds_to_recover"] = round(time.monotonic() - begin, 2)
    return status == 200


def loads(path, report):
    """Bytes a second from the page cache to READY of one replica: the second start counts."""
    times = []
    for _ in range(2):
        with Fleet(replicas=1, model=path, args=["--drafts", "off"]) as fleet:
            replica = fleet.status()["replicas"][0]
            metrics = fleet.metrics()
            times.append({"load_s": replica["load_s"],
                          **{s.split('phase="')[1].split('"')[0] + "_s": v for s, v in metrics.items()
                             if s.startswith("quadriga_replica_load_seconds{")}})
    report["load"] = {"bytes": os.path.getsize(path), "starts": times}
    return True


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--load", metavar="MODEL.gguf", help="also load this file twice and report the times")
    options = parser.parse_args()
    report, passed = {"backend": BACKEND}, {}
    begin = time.monotonic()
    try:
        with Fleet(replicas=4) as fleet:
            report["seconds_to_ready"] = round(time.monotonic() - begin, 2)
            for check in (question, tool_call, streams, kernels_armed, gpus_shown, killed_one):
                try:
                    passed[check.__name__] = check(fleet, report)
                except (AssertionError, OSError, KeyError, ValueError) as error:
                    passed[check.__name__] = False
                    report.setdefault("errors", {})[check.__name__] = str(error)[-500:]
        passed["orderly_end"] = True
        if options.load:
            passed["load"] = loads(options.load, report)
    except (AssertionError, OSError, KeyError, ValueError) as error:
        passed["fleet"] = False
        report.setdefault("errors", {})["fleet"] = str(error)[-1500:]
    report["passed"] = passed
    print(json.dumps(report))
    return 0 if all(passed.values()) else 1


if __name__ == "__main__":
    sys.exit(main())
