"""What is measured: one row is one way to load an arm, and the numbers that are read from it."""
from dataclasses import dataclass


@dataclass(frozen=True)
class Row:
    name: str
    load: tuple[str, ...]  # arguments of overhead-load
    reads: tuple[str, ...]  # first, total: added time; rate: per second and per core second; events; cpu; hotspot
    seconds: float = 1.5
    is_short: bool = True  # part of a run with --short


STREAM = ("--stream", "1")

# Streams at a steady pace, far from saturation: what is added to a token's way.
STREAMS = [
    Row("1 stream", ("--connections", "1", *STREAM, "--events", "8", "--gap-us", "1000"), ("first", "total"), 1.2),
    Row("64 streams", ("--connections", "64", *STREAM, "--events", "32", "--gap-us", "20000"), ("first", "total", "cpu"),
        2.0),
    Row("1,000 streams", ("--connections", "1000", *STREAM, "--events", "8", "--gap-us", "250000", "--warmup", "1.0"),
        ("first", "total", "cpu"), 3.0),
]
# As fast as it goes: the arm's core is the limit.
FULL = [
    Row("small requests", ("--connections", "64"), ("rate", "cpu", "hotspot")),
    Row("events, one a write", ("--connections", "64", *STREAM, "--events", "500"), ("events",)),
    Row("events, 16 a write", ("--connections", "64", *STREAM, "--events", "496", "--burst", "16"), ("events",)),
]
PROMPTS = [
    Row("prompts 10 KB", ("--connections", "16", "--prompt-bytes", "10000"), ("first", "rate", "cpu", "hotspot"), 1.2),
    Row("prompts 400 KB", ("--connections", "8", "--prompt-bytes", "400000"), ("first", "rate", "cpu", "hotspot"), 1.2),
    Row("prompts 1 MiB", ("--connections", "4", "--prompt-bytes", "1048576"), ("first", "rate", "cpu", "hotspot"), 1.2),
    Row("prompts 400 KB, hot", ("--connections", "8", "--prompt-bytes", "400000", "--reuse", "hot"),
        ("first", "rate", "cpu", "hotspot"), 1.2, False),
    Row("prompts 400 KB, mixed", ("--connections", "8", "--prompt-bytes", "400000", "--reuse", "mixed"),
        ("first", "rate", "cpu", "hotspot"), 1.2, False),
    Row("prompts 400 KB, CJK", ("--connections", "8", "--prompt-bytes", "400000", "--text", "cjk"),
        ("first", "rate", "cpu", "hotspot"), 1.2, False),
]
ROWS = STREAMS + FULL + PROMPTS

# An hour at ten prompts a second, every one new.
MEMORY_PROMPTS = 36_000
MEMORY_LOAD = ("--connections", "16", "--prompt-bytes", "100000", "--requests", str(MEMORY_PROMPTS), "--seconds", "300",
               "--warmup", "0")
