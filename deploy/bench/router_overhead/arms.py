"""The programs that are compared: how each is found, configured and started, one core each.

An arm that cannot be had raises NotBuilt with the reason, which the table then prints.
"""
import os
import pathlib
import shutil
import signal
import socket
import subprocess
import time
import urllib.request

RUST_ROUTERS = {"sglang-router": "0.3.2", "vllm-router": "0.1.17"}  # PyPI
START_S = 60
SETTLE_S = 1.0


class NotBuilt(Exception):
    pass


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def make_venv(folder: pathlib.Path) -> None:
    """Installs the Rust routers; what fails is told by the arm that misses its program."""
    if all((folder / "bin" / name).exists() for name in RUST_ROUTERS):
        return
    subprocess.run(["python3", "-m", "venv", str(folder)], check=True)
    for name, version in RUST_ROUTERS.items():
        subprocess.run([folder / "bin" / "pip", "install", "-q", f"{name}=={version}"], check=False)


def on_core(core: int, is_realtime: bool) -> list[str]:
    """The beginning of a command that keeps it on one core."""
    return ["taskset", "-c", str(core)] + (["chrt", "--rr", "10"] if is_realtime else [])


class Arm:
    """A proxy in front of `upstreams` (ports), started behind `prefix`, which pins it to its core."""

    def __init__(self, name: str, upstreams: list[int], prefix: list[str], folder: pathlib.Path, bin_folder: pathlib.Path,
                 venv: pathlib.Path):
        self.name, self.upstreams, self.prefix = name, upstreams, prefix
        self.folder = folder / name
        self.folder.mkdir(parents=True, exist_ok=True)
        self.bin_folder, self.venv = bin_folder, venv
        self.port = free_port()
        self.process: subprocess.Popen | None = None

    def command(self) -> list[str]:
        kind = self.name.split(":")[0]
        return {"quadriga-router": self._quadriga, "nginx": self._nginx, "haproxy": self._haproxy,
                "sglang-router": self._rust, "vllm-router": self._rust}[kind]()

    def _quadriga(self) -> list[str]:
        program = self.bin_folder / "quadriga-router"
        if not program.exists():
            raise NotBuilt(f"{program} is not built")
        # A fresh replica rises to all its slots over 30 s; the comparison is about the time after that.
        command = [str(program), "--port", str(self.port), "--slow-start-s", "0"]
        for port in self.upstreams:
            command += ["--replica", f"http://127.0.0.1:{port}"]
        return command

    def _nginx(self) -> list[str]:
        program = shutil.which("nginx", path=os.environ["PATH"] + ":/usr/sbin")
        if program is None:
            raise NotBuilt("nginx is not installed (apt-get install nginx-light)")
        servers = "\n".join(f"    server 127.0.0.1:{port};" for port in self.upstreams)
        temp = "\n".join(f"  {kind}_temp_path {self.folder}/{kind};"
                         for kind in ("client_body", "proxy", "fastcgi", "uwsgi", "scgi"))
        config = self.folder / "nginx.conf"
        config.write_text(f"""
daemon off; worker_processes 1; pid {self.folder}/nginx.pid; error_log stderr warn;
worker_rlimit_nofile 16384;
events {{ worker_connections 8192; }}
http {{
  access_log off;
{temp}
  client_max_body_size 16m; client_body_buffer_size 2m; keepalive_requests 1000000;
  upstream replicas {{
{servers}
    keepalive 1024; keepalive_requests 1000000;
  }}
  server {{
    listen 127.0.0.1:{self.port} backlog=4096;
    location / {{
      proxy_pass http://replicas; proxy_http_version 1.1; proxy_set_header Connection "";
      proxy_buffering off; proxy_read_timeout 600s;
    }}
  }}
}}
""")
        return [program, "-c", str(config), "-e", "stderr"]

    def _haproxy(self) -> list[str]:
        program = shutil.which("haproxy", path=os.environ["PATH"] + ":/usr/sbin")
        if program is None:
            raise NotBuilt("haproxy is not installed (apt-get install haproxy)")
        servers = "\n".join(f"  server s{i} 127.0.0.1:{port}" for i, port in enumerate(self.upstreams))
        config = self.folder / "haproxy.cfg"
        config.write_text(f"""
global
  nbthread 1
  maxconn 8192
defaults
  mode http
  option http-no-delay
  http-reuse always
  timeout connect 5s
  timeout client 600s
  timeout server 600s
frontend clients
  bind 127.0.0.1:{self.port} backlog 4096
  default_backend replicas
backend replicas
  balance roundrobin
{servers}
""")
        return [program, "-db", "-f", str(config)]

    def _rust(self) -> list[str]:
        kind, _, policy = self.name.partition(":")
        program = self.venv / "bin" / kind
        if not program.exists():
            raise NotBuilt(f"{kind}=={RUST_ROUTERS[kind]} could not be installed from PyPI")
        command = [str(program)] + (["launch"] if kind == "sglang-router" else [])
        command += ["--host", "127.0.0.1", "--port", str(self.port), "--prometheus-port", str(free_port()),
                    "--policy", policy or "cache_aware", "--max-concurrent-requests", "8192",
                    "--worker-urls"] + [f"http://127.0.0.1:{port}" for port in self.upstreams]
        return command

    def start(self) -> None:
        command = self.command()
        log = open(self.folder / "log", "wb")
        environment = {**os.environ, "LC_ALL": "C", "TOKIO_WORKER_THREADS": "1"}
        try:
            self.process = subprocess.Popen(self.prefix + command, stdout=log, stderr=log,
                                            start_new_session=True, env=environment)
        except FileNotFoundError as error:
            raise NotBuilt(str(error)) from error
        end = time.monotonic() + START_S
        while time.monotonic() < end:
            if self.process.poll() is not None:
                raise NotBuilt(f"it ended at once with {self.process.returncode}: {self._last_words()}")
            if self._answers():
                return
            time.sleep(0.2)
        raise NotBuilt(f"it did not answer within {START_S} s: {self._last_words()}")

    def _last_words(self) -> str:
        text = (self.folder / "log").read_text(errors="replace").strip()
        return text.splitlines()[-1][:200] if text else "it said nothing"

    def _answers(self) -> bool:
        """A generation passes, so replicas are known and ready."""
        body = (b'{"model":"bench","messages":[{"role":"user","content":'
                b'"bench events=1 burst=1 gap_us=0 ttft_us=0 stream=0;"}],"max_tokens":1,"stream":false}')
        request = urllib.request.Request(f"http://127.0.0.1:{self.port}/v1/chat/completions", body,
                                         {"Content-Type": "application/json"})
        try:
            with urllib.request.urlopen(request, timeout=2) as answer:
                return answer.status == 200
        except OSError:
            return False

    def pause(self) -> None:
        """What is not measured must not run: under SCHED_RR an idle program's housekeeping holds the core for 20 ms."""
        os.killpg(self.process.pid, signal.SIGSTOP)

    def resume(self) -> None:
        os.killpg(self.process.pid, signal.SIGCONT)
        time.sleep(SETTLE_S)  # what has gathered meanwhile is done by then
        end = time.monotonic() + START_S
        while not self._answers():
            if time.monotonic() > end:
                raise RuntimeError(f"{self.name} did not come back: {self._last_words()}")
            time.sleep(0.2)

    def processes(self) -> list[int]:
        """All processes of this arm: they share its session."""
        found = []
        for stat in pathlib.Path("/proc").glob("[0-9]*/stat"):
            try:
                fields = stat.read_text().rpartition(")")[2].split()
            except OSError:
                continue
            if self.process and int(fields[3]) == self.process.pid:
                found.append(int(stat.parent.name))
        return found

    def cpu_s(self) -> float:
        """CPU time so far, to the nanosecond where the kernel tells it."""
        total = 0.0
        for pid in self.processes():
            for task in pathlib.Path(f"/proc/{pid}/task").glob("*/schedstat"):
                try:
                    total += int(task.read_text().split()[0]) * 1e-9
                except OSError:
                    pass
        return total

    def rss_peak_mib(self) -> float:
        total = 0
        for pid in self.processes():
            try:
                for line in pathlib.Path(f"/proc/{pid}/status").read_text().splitlines():
                    if line.startswith("VmHWM"):
                        total += int(line.split()[1])
            except OSError:
                pass
        return total / 1024

    def stop(self) -> None:
        if self.process is None:
            return
        try:
            os.killpg(self.process.pid, signal.SIGCONT)
            os.killpg(self.process.pid, signal.SIGTERM)
            self.process.wait(5)
        except ProcessLookupError:
            pass
        except subprocess.TimeoutExpired:
            os.killpg(self.process.pid, signal.SIGKILL)
            self.process.wait()
        self.process = None
