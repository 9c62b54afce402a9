"""A whole fleet for end-to-end tests: the real launcher, router and replicas on ephemeral ports.

    with Fleet(replicas=4) as fleet:
        answer = fleet.chat([{"role": "user", "content": "Hi"}])

Waits are for events (a state, a byte, the end of a process), each with a deadline that says what it waited for.
"""

import http.client
import json
import os
import pathlib
import re
import shutil
import signal
import socket
import subprocess
import tempfile
import threading
import time

ROOT = pathlib.Path(__file__).resolve().parents[2]
BIN = pathlib.Path(os.environ.get("QUADRIGA_BIN", ROOT / "build/cpu/bin"))
MODEL = pathlib.Path(os.environ.get("QUADRIGA_MODEL", ROOT / "models/foal-iq4_xs.gguf"))
# cpu, or cuda: then all replicas share the card QUADRIGA_GPU.
BACKEND = os.environ.get("QUADRIGA_BACKEND", "cpu")
GPU = os.environ.get("QUADRIGA_GPU", "0")
# Sanitizer builds are slower; every deadline is multiplied by this.
PATIENCE = float(os.environ.get("QUADRIGA_PATIENCE", "1"))


def wait_until(condition, what, seconds=30.0, poll=0.02):
    """The first true value of condition(); fails with `what` at the deadline."""
    deadline = time.monotonic() + seconds * PATIENCE
    while True:
        value = condition()
        if value:
            return value
        if time.monotonic() > deadline:
            raise AssertionError(f"not within {seconds * PATIENCE:.0f} s: {what}")
        time.sleep(poll)


def process_alive(pid):
    """Whether the process runs; zombies do not."""
    try:
        stat = pathlib.Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return False
    return stat.rsplit(")", 1)[1].split()[0] not in "ZX"


class Event:
    """One server-sent event."""

    def __init__(self, name, data):
        self.name = name
        self.data = data

    def json(self):
        return json.loads(self.data)


class Stream:
    """A streamed answer, read event by event; close() leaves midway."""

    def __init__(self, connection, response):
        self.connection = connection
        self.response = response
        self.status = response.status

    def events(self):
        name, data = "", []
        while True:
            line = self.response.readline()
            if not line:
                return
            line = line.decode().rstrip("\r\n")
            if not line:
                if data:
                    yield Event(name, "\n".join(data))
                name, data = "", []
            elif line.startswith("event:"):
                name = line[6:].strip()
            elif line.startswith("data:"):
                data.append(line[5:].lstrip(" "))

    def close(self):
        # The socket must go, not only the object: the response holds a file on it.
        self.response.close()
        self.connection.close()


class Joined:
    """A streamed chat answer put together."""

    def __init__(self):
        self.content = ""
        self.reasoning = ""
        self.calls = []
        self.finish_reason = None
        self.usage = None
        self.done = False
        self.error = None

    def add(self, event):
        if event.data == "[DONE]":
            self.done = True
            return
        body = event.json()
        if event.name == "error":
            self.error = body["error"]
            return
        if body.get("usage"):
            self.usage = body["usage"]
        for choice in body["choices"]:
            delta = choice["delta"]
            self.content += delta.get("content") or ""
            self.reasoning += delta.get("reasoning_content") or ""
            for call in delta.get("tool_calls", []):
                if "name" in call.get("function", {}):
                    self.calls.append([call["function"]["name"], ""])
                self.calls[call["index"]][1] += call["function"].get("arguments", "")
            self.finish_reason = choice["finish_reason"] or self.finish_reason


class Fleet:
    def __init__(self, replicas=4, model=MODEL, args=(), sequences=4, context=4096):
        self.replicas = replicas
        self.model = model
        self.args = list(args)
        self.sequences = sequences
        self.context = context
        self.folder = tempfile.mkdtemp(prefix="quadriga-e2e-")
        self.log_path = pathlib.Path(self.folder, "log")
        self.process = None
        self.port = None

    # -- life ---------------------------------------------------------------------------------

    def launch(self):
        command = [str(BIN / "quadriga"), "up", str(self.model), "--backend", BACKEND,
                   "--layout", f"{self.replicas}x1", "--port", "0", "--replica-port-base", "0",
                   "--metrics-port", "0", "--runtime-dir", str(pathlib.Path(self.folder, "run")),
                   "--sequences", str(self.sequences), "--context", str(self.context),
                   "--drain-grace-s", "0", *self.args]
        if BACKEND == "cuda":
            command += ["--gpus", ",".join([GPU] * self.replicas)]
        with open(self.log_path, "wb") as log:
            self.process = subprocess.Popen(command, stdout=log, stderr=subprocess.STDOUT,
                                            stdin=subprocess.DEVNULL)
        return self

    def start(self):
        self.launch()
        self.wait_for_states(["READY"] * self.replicas)
        return self

    def __enter__(self):
        try:
            return self.start()
        except BaseException:
            print(self.log_text())
            self.kill()
            raise

    def __exit__(self, kind, value, trace):
        try:
            if kind is not None:
                print(self.log_text()[-8000:])
                self.kill()
                return
            self.stop()
        finally:
            self.kill()
            shutil.rmtree(self.folder, ignore_errors=True)

    def stop(self):
        """An orderly end: exit code 0 and no process left."""
        if self.process.poll() is not None:
            return
        pids = self.pids()
        self.process.send_signal(signal.SIGTERM)
        code = self.process.wait(timeout=60 * PATIENCE)
        assert code == 0, f"the launcher ended with {code}:\n{self.log_text()[-4000:]}"
        left = [pid for pid in pids if process_alive(pid)]
        assert not left, f"processes left after an orderly end: {left}"

    def kill(self):
        if self.process is None:
            return
        pids = []
        try:
            pids = self.pids() if self.process.poll() is None else []
        except (AssertionError, OSError, ValueError, KeyError, subprocess.SubprocessError):
            pass
        if self.process.poll() is None:
            self.process.kill()
            self.process.wait()
        for pid in pids:
            if process_alive(pid):
                os.kill(pid, signal.SIGKILL)

    def log_text(self):
        return self.log_path.read_text(errors="replace") if self.log_path.exists() else ""

    # -- what the launcher says -----------------------------------------------------------------

    def status(self):
        """The launcher's own picture, or None while it does not answer."""
        if self.process.poll() is not None:
            raise AssertionError(f"the launcher ended with {self.process.returncode}:\n"
                                 + self.log_text()[-4000:])
        result = subprocess.run([str(BIN / "quadriga"), "status", "--json", "--runtime-dir",
                                 str(pathlib.Path(self.folder, "run"))],
                                capture_output=True, timeout=30 * PATIENCE)
        if result.returncode != 0:
            return None
        status = json.loads(result.stdout)
        self.port = status["router"]["port"]
        return status

    def pids(self):
        status = self.status()
        return [status["router"]["pid"], *[r["pid"] for r in status["replicas"]]] if status else []

    def wait_for_states(self, wanted, seconds=120.0):
        def states_hold():
            status = self.status()
            return status and [r["state"] for r in status["replicas"]] == wanted and status

        status = wait_until(states_hold, f"replica states {wanted}", seconds, poll=0.1)
        # READY to the launcher is one announcement away from READY to the router.
        count = wanted.count("READY")
        wait_until(lambda: self.ready_in_router() >= count, f"{count} replicas ready in the router")
        return status

    def ready_in_router(self):
        try:
            status, _, body = self.get("/info")
        except OSError:
            return 0
        if status != 200:
            return 0
        return sum(r["state"] == "READY" for r in json.loads(body)["replicas"])

    # -- HTTP -----------------------------------------------------------------------------------

    def connect(self, port=None):
        return http.client.HTTPConnection("127.0.0.1", port or self.port, timeout=60 * PATIENCE)

    def request(self, method, path, body=None, headers=None, port=None):
        connection = self.connect(port)
        try:
            payload = json.dumps(body).encode() if isinstance(body, (dict, list)) else body
            connection.request(method, path, payload, {"Content-Type": "application/json", **(headers or {})})
            response = connection.getresponse()
            return response.status, dict((k.lower(), v) for k, v in response.getheaders()), response.read().decode()
        finally:
            connection.close()

    def get(self, path, port=None):
        return self.request("GET", path, port=port)

    def chat(self, messages, port=None, **fields):
        """A plain answer: (status, body)."""
        status, _, body = self.request("POST", "/v1/chat/completions", {"messages": messages, **fields}, port=port)
        return status, json.loads(body)

    def stream(self, messages, port=None, **fields):
        connection = self.connect(port)
        connection.request("POST", "/v1/chat/completions",
                           json.dumps({"messages": messages, "stream": True, **fields}).encode(),
                           {"Content-Type": "application/json"})
        return Stream(connection, connection.getresponse())

    def chat_streamed(self, messages, port=None, **fields):
        stream = self.stream(messages, port, **fields)
        assert stream.status == 200, stream.response.read()
        joined = Joined()
        for event in stream.events():
            joined.add(event)
        stream.close()
        return joined

    def internal_key(self):
        return pathlib.Path(self.folder, "run", "internal.key").read_text().strip()

    def chat_alone(self, port, key, prompt, fields):
        """The same question asked of one replica directly."""
        body = {"messages": [{"role": "user", "content": prompt}], **fields}
        status, _, text = self.request("POST", "/v1/chat/completions", body, {"Authorization": f"Bearer {key}"}, port)
        assert status == 200, text
        return json.loads(text)["choices"][0]["message"]["content"] or ""

    def metrics(self, path="/metrics/all"):
        """{'name{label="value"}': number}"""
        status, _, body = self.get(path)
        assert status == 200, body
        result = {}
        for line in body.splitlines():
            if line and not line.startswith("#"):
                series, value = line.rsplit(" ", 1)
                result[series] = float(value)
        return result

    def wait_until_idle(self):
        """Every gauge of work in flight is back at zero, in the router and in every replica."""
        pattern = re.compile(r"quadriga_(router_requests_inflight|router_queue_requests|"
                             r"router_upstream_inflight|replica_requests_running|"
                             r"replica_requests_waiting|replica_kv_blocks_used|replica_queued_tokens)\b")

        def is_idle():
            busy = {s: v for s, v in self.metrics().items() if pattern.match(s) and v != 0}
            return not busy

        wait_until(is_idle, "all in-flight gauges at zero", 30)
        negative = {s: v for s, v in self.metrics().items() if pattern.match(s) and v < 0}
        assert not negative, negative


class AdminSocket:
    """The router's admin interface over its Unix socket."""

    def __init__(self, fleet):
        self.path = str(pathlib.Path(fleet.folder, "run", "router-admin.sock"))

    def request(self, method, target, body=None):
        """(status, parsed body)"""
        connection = http.client.HTTPConnection("localhost", timeout=60 * PATIENCE)
        connection.sock = socket.socket(socket.AF_UNIX)
        connection.sock.settimeout(60 * PATIENCE)
        connection.sock.connect(self.path)
        try:
            payload = None if body is None else json.dumps(body).encode()
            connection.request(method, target, payload, {"Content-Type": "application/json"})
            response = connection.getresponse()
            return response.status, json.loads(response.read())
        finally:
            connection.close()

    def post(self, target, body=None):
        status, answer = self.request("POST", target, body)
        assert status == 200, answer
        return answer

    def replica(self, number):
        """What is shown of a replica, None when there is none."""
        _, answer = self.request("GET", "/admin/replicas")
        return next((r for r in answer["replicas"] if r["replica"] == number), None)


def in_parallel(jobs):
    """Runs callables at once; returns results in order, raises the first exception."""
    results = [None] * len(jobs)
    errors = []

    def run(index, job):
        try:
            results[index] = job()
        except BaseException as error:  # noqa: BLE001 - handed to the caller below
            errors.append(error)

    threads = [threading.Thread(target=run, args=(i, job), daemon=True) for i, job in enumerate(jobs)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(timeout=300 * PATIENCE)
    if errors:
        raise errors[0]
    assert not any(thread.is_alive() for thread in threads), "a request never ended"
    return results


def tool(name, **properties):
    """A declaration; each property is its JSON type."""
    return {"type": "function", "function": {
        "name": name, "description": name.replace("_", " "),
        "parameters": {"type": "object", "required": list(properties),
                       "properties": {k: {"type": v, "description": k} for k, v in properties.items()}}}}
