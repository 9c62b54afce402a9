#!/usr/bin/env python3
"""Holds the source tree to its include graph.

proto and kernels are leaves and never meet; the parts of replica see the leaves and each other in the order below;
router and deploy see proto only; tests see everything. Boost.Beast stays inside proto's HTTP server and client,
CUDA types inside kernels/cuda.
"""
import pathlib
import re
import sys

ROOT = pathlib.Path(__file__).resolve().parents[2]
SOURCES = ("*.h", "*.cpp", "*.cu", "*.cuh")

# Folder -> folders it may include from (itself always). The longest matching prefix decides.
ALLOWED = {
    "proto": [],
    "kernels": [],
    "replica/gguf": ["kernels"],
    "replica/tokenizer": ["replica/gguf", "kernels", "replica/byte_span.h"],
    "replica/chat": ["replica/byte_span.h"],
    "replica/model": ["kernels", "replica/gguf", "replica/engine/step_runner.h"],
    "replica/cache": [],
    "replica/engine": ["kernels", "replica/cache"],
    "replica/server": ["kernels", "proto", "replica"],
    "replica": ["replica/server"],  # main.cpp
    "router": ["proto"],
    "deploy": ["proto"],
    "tests": [""],
}
BEAST_FILES = {"proto/http_server", "proto/http_client"}
INCLUDE = re.compile(r'^\s*#\s*include\s+(["<])([^">]+)[">]')


def folder_of(path: str) -> str:
    matches = [f for f in ALLOWED if path == f or path.startswith(f + "/")]
    return max(matches, key=len, default="")


def main() -> int:
    errors = []
    count = 0
    for folder in ("proto", "kernels", "replica", "router", "deploy", "tests"):
        for pattern in SOURCES:
            for file in sorted((ROOT / folder).rglob(pattern)):
                path = file.relative_to(ROOT).as_posix()
                home = folder_of(path)
                if not home:
                    errors.append(f"{path}: in no known folder")
                    continue
                count += 1
                for number, line in enumerate(file.read_text(encoding="utf-8").splitlines(), 1):
                    match = INCLUDE.match(line)
                    if not match:
                        continue
                    kind, name = match.groups()
                    where = f"{path}:{number}"
                    if name.startswith("boost/beast") and not any(path.startswith(b) for b in BEAST_FILES):
                        errors.append(f"{where}: Beast outside proto's HTTP server and client")
                    if re.match(r"(cuda|cublas|nccl|nvml)", name) and not path.startswith("kernels/cuda/"):
                        errors.append(f"{where}: CUDA header outside kernels/cuda")
                    if kind != '"':
                        continue
                    if not (ROOT / name).is_file():
                        errors.append(f'{where}: "{name}" is not a path from the root')
                        continue
                    permitted = [home, *ALLOWED[home]]
                    if not any(p == "" or name == p or name.startswith(p + "/") for p in permitted):
                        errors.append(f"{where}: {home} must not include {name}")
    for error in errors:
        print(error)
    print(f"{count} files, {len(errors)} errors")
    return 1 if errors or count == 0 else 0


if __name__ == "__main__":
    sys.exit(main())
