"""One replica by itself on one device: recorded answers in whole and streamed, what /info and /metrics say of its kernels, kernels that are
required and that are disabled. On the CPU, or with QUADRIGA_BACKEND=cuda on the card QUADRIGA_GPU:

    QUADRIGA_BIN=build/cuda/carry QUADRIGA_BACKEND=cuda python3 tests/e2e/replica_test.py [--json FILE]
"""

import argparse
import json
import re
import subprocess
import sys
import time

from fleet import BACKEND, BIN, GPU, MODEL, PATIENCE, ROOT, Fleet, in_parallel, wait_until

# Above this gap between the best token and the next, at every place of an answer, the file's quantisation does not turn it.
MARGIN = 4.0
EXIT_KERNEL_REQUIRED = 7
DEVICE = GPU if BACKEND == "cuda" else "cpu"


class Replica(Fleet):
    """Speaks to one replica as to a fleet: no launcher, no router."""

    def __init__(self, *args, model=MODEL):
        super().__init__(replicas=1, model=model, args=args)

    def launch(self):
        with open(self.log_path, "wb") as log:
            self.process = subprocess.Popen([str(BIN / "quadriga-replica"), "--model", str(self.model), "--device", DEVICE, "--port", "0",
                                             "--context", "4096", *self.args], stdout=log, stderr=subprocess.STDOUT, stdin=subprocess.DEVNULL)
        return self

    def start(self):
        self.launch()
        self.port = int(wait_until(self.address, "an address").group(1))
        wait_until(self.is_ready, "ready", 120)
        return self

    def address(self):
        self.check_alive()
        return re.search(r"listening on http://127\.0\.0\.1:(\d+)\n", self.log_text())

    def is_ready(self):
        self.check_alive()
        return self.get("/ready")[0] == 200

    def check_alive(self):
        assert self.process.poll() is None, f"it ended with {self.process.returncode}:\n{self.log_text()}"

    def pids(self):
        return []

    def end(self):
        """The exit code and what it said, of one that is not to live."""
        try:
            return self.process.wait(timeout=120 * PATIENCE), self.log_text()
        finally:
            self.kill()

    def kernels(self):
        info = json.loads(self.get("/info")[2])
        return {k["name"] + ("/" + k["variant"] if k.get("variant") else ""): k for k in info["kernels"]}


def recorded_cases():
    """Answers in words, with what makes them: a reasoning in front, or none."""
    cases = json.loads((ROOT / "tests/golden/foal-greedy.json").read_text())["cases"]
    return [c for c in cases if c["least_margin"] >= MARGIN and "<tool_call>" not in c["greedy_text"]]


def ask(replica, case, **fields):
    return replica.chat_streamed(case["messages"], temperature=0, max_tokens=200, enable_thinking=case["enable_thinking"],
                                 **({"tools": case["tools"]} if case.get("tools") else {}), **fields)


def expected(case):
    text = case["greedy_text"].removesuffix("<|im_end|>")
    reasoning, _, content = text.rpartition("</think>\n\n")
    return reasoning.strip(), content.strip()


def check_answers(replica, report):
    cases = recorded_cases()
    begin = time.monotonic()
    answers = in_parallel([lambda c=c: ask(replica, c) for c in cases])
    report["recorded"] = {"answers": len(cases), "seconds": round(time.monotonic() - begin, 2)}
    for case, answer in zip(cases, answers):
        assert answer.done and answer.error is None, answer.error
        assert (answer.reasoning.strip(), answer.content.strip()) == expected(case), (answer.reasoning, answer.content, expected(case))
    assert len(cases) >= 10, f"only {len(cases)} recorded answers have this margin"
    plain = cases[0]
    status, whole = replica.chat(plain["messages"], temperature=0, max_tokens=200, enable_thinking=plain["enable_thinking"],
                                 **({"tools": plain["tools"]} if plain.get("tools") else {}))
    assert status == 200 and whole["choices"][0]["message"]["content"].strip() == expected(plain)[1], whole


def check_kernels(replica, report):
    kernels = replica.kernels()
    report["kernels"] = {name: [k["state"], k["runs"]] for name, k in kernels.items()}
    metrics = replica.metrics("/metrics")
    info = json.loads(replica.get("/info")[2])
    if BACKEND == "cpu":
        assert not kernels, kernels
        return
    assert info["gpu_uuid"].startswith("GPU-"), info
    missing = {name: k.get("reason") for name, k in kernels.items() if k["state"] != "armed"}
    report["missing"] = missing
    assert not set(missing) - {"matmul_cublaslt/prefill"}, missing  # a library this machine may lack
    for name in ("matmul_mma/IQ4_XS", "attention_decode/F16", "delta_step/F32"):
        assert kernels[name]["runs"] > 0, kernels[name]
    for name, k in kernels.items():
        gauges = {s: v for s, v in metrics.items() if f'kernel="{name}"' in s}
        armed = [v for s, v in gauges.items() if s.startswith("quadriga_replica_kernel_armed{")]
        assert armed == [1.0 if k["state"] == "armed" else 0.0], (name, gauges)
    memory = {s.split('kind="')[1].split('"')[0]: v for s, v in metrics.items()
              if s.startswith("quadriga_replica_device_memory_bytes{")}
    report["device_memory_bytes"] = memory
    assert memory["weights"] > 0 and memory["workspace"] > 0, memory


def check_requirements(report):
    """A kernel that is required and not there stops the start with its own code; one that is disabled leaves its work to others."""
    code, said = Replica("--require-kernels", "no_such_kernel").launch().end()
    assert code == EXIT_KERNEL_REQUIRED and "no_such_kernel" in said, (code, said)
    if BACKEND == "cpu":
        return
    code, said = Replica("--disable-kernels", "delta_step", "--require-kernels", "*").launch().end()
    assert code == EXIT_KERNEL_REQUIRED and "delta_step" in said, (code, said)
    disabled = "matmul_mma,attention_decode,delta_step"
    with Replica("--disable-kernels", disabled) as replica:
        case = recorded_cases()[0]
        answer = ask(replica, case)
        assert answer.content.strip() == expected(case)[1], answer.content
        kernels = replica.kernels()
        report["with_fallbacks"] = {name: [k["state"], k["runs"]] for name, k in kernels.items()}
        for name, k in kernels.items():
            if name.split("/")[0] in disabled.split(","):
                assert k["state"] == "disabled" and k["runs"] == 0, k
        assert json.loads(replica.get("/info")[2])["degraded"] is True


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", metavar="FILE", help="write what was seen")
    options = parser.parse_args()
    report = {"backend": BACKEND}
    try:
        with Replica() as replica:
            check_answers(replica, report)
            check_kernels(replica, report)
        check_requirements(report)
        report["passed"] = True
    finally:
        print(json.dumps(report))
        if options.json:
            with open(options.json, "w") as file:
                json.dump(report, file, indent=1)


if __name__ == "__main__":
    sys.exit(main())
