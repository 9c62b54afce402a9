"""Turns samples into the table: medians over rounds, latency as what the proxy adds to the direct way of its round."""
import statistics

import rows as what

DIRECT = "direct"
AGAIN = "direct again"


def value_of(sample: dict, direct: dict | None, read: str, quantile: str) -> float:
    """One number of one sample; for latencies less the direct one, in milliseconds."""
    if read in ("first", "total"):
        key = f"{read}_us"
        return (sample[key][quantile] - (direct[key][quantile] if direct else 0.0)) / 1e3
    if read == "rate":
        return sample["completed"] / sample["elapsed_s"]
    if read == "rate_per_core":
        return sample["completed"] / sample["proxy_cpu_s"] if sample["proxy_cpu_s"] else 0.0
    if read == "cpu":
        return 1e3 * sample["proxy_cpu_s"] / sample["completed"] if sample["completed"] else 0.0
    if read == "hotspot":
        served = sample.get("served") or []
        return len(served) * max(served) / sum(served) if sum(served) else 1.0
    if read == "events":
        return sample["events"] / sample["elapsed_s"]
    if read == "events_per_core":
        return sample["events"] / sample["proxy_cpu_s"] if sample["proxy_cpu_s"] else 0.0
    raise KeyError(read)


# What a row's reads become: name, read, quantile, digits.
LINES = {
    "first": [("added to first byte, p50, ms", "first", "p50", 3), ("added to first byte, p99, ms", "first", "p99", 3)],
    "total": [("added to total, p50, ms", "total", "p50", 3), ("added to total, p99, ms", "total", "p99", 3)],
    "rate": [("requests/s", "rate", "", 0), ("requests per core second", "rate_per_core", "", 0)],
    "events": [("events/s", "events", "", 0), ("events per core second", "events_per_core", "", 0)],
    "cpu": [("CPU s per 1,000 requests", "cpu", "", 3)],
    # Upstreams times the largest share of the requests: 1 is even, 4 is all on one of four.
    "hotspot": [("hotspot", "hotspot", "", 2)],
}


def median_of(samples: list[dict], row: str, arm: str, read: str, quantile: str) -> float | None:
    direct = {s["round"]: s for s in samples if s["row"] == row and s["arm"] == DIRECT}
    values = [value_of(s, direct.get(s["round"]), read, quantile) for s in samples
              if s["row"] == row and s["arm"] == arm and s["is_valid"] and (s["timed"] or read not in ("first", "total"))]
    return statistics.median(values) if values else None


def spread_of(samples: list[dict], row: str, read: str, quantile: str) -> float | None:
    """Median distance of the two direct measurements of a round: the noise of this row."""
    pairs = {}
    for s in samples:
        if s["row"] == row and s["arm"] in (DIRECT, AGAIN):
            pairs.setdefault(s["round"], {})[s["arm"]] = value_of(s, None, read, quantile)
    distances = [abs(pair[AGAIN] - pair[DIRECT]) for pair in pairs.values() if len(pair) == 2]
    return statistics.median(distances) if distances else None


def cell(value: float | None, digits: int) -> str:
    return "not measured" if value is None else f"{value:,.{digits}f}"


def text_of(report: dict, arms: list[str]) -> str:
    samples, machine = report["samples"], report["machine"]
    lines = [f"{machine['cpu']}, {machine['cores']} cores, Linux {machine['kernel']}; {report['rounds']} rounds, "
             f"medians; client and upstreams on one core, each proxy on another"
             + (", all under SCHED_RR" if report.get("is_realtime") else ""), ""]
    lines.append("| row | what | " + " | ".join(arms) + " | A/A |")
    lines.append("|---|---|" + "---|" * (len(arms) + 1))
    for row in what.ROWS:
        if not any(s["row"] == row.name for s in samples):
            continue
        for read in row.reads:
            for title, kind, quantile, digits in LINES[read]:
                values = [cell(median_of(samples, row.name, arm, kind, quantile), digits) for arm in arms]
                is_of_proxy = kind in ("cpu", "rate_per_core", "events_per_core", "hotspot")
                noise = None if is_of_proxy else spread_of(samples, row.name, kind, quantile)
                lines.append(f"| {row.name} | {title} | " + " | ".join(values) +
                             f" | {'-' if noise is None else cell(noise, digits)} |")
    if report["memory"]:
        memory = report["memory"]
        for title, key in (("RSS at start, MiB", "at_start_mib"), ("RSS peak, MiB", "peak_mib")):
            values = [cell(memory[arm][key] if arm in memory else None, 0) for arm in arms]
            lines.append(f"| {what.MEMORY_PROMPTS:,} unique prompts of 100 KB | {title} | " + " | ".join(values) + " | - |")
    for name, reason in report["not_measured"].items():
        lines.append(f"\n{name}: not measured: {reason}")
    bad = [s for s in samples if not s["is_valid"]]
    for s in bad[:20]:
        lines.append(f"\nnot valid: {s['row']} over {s['arm']}, round {s['round'] + 1}: {s['failed']} failed, "
                     f"{s['differing']} differ, {s['unfinished']} unfinished {s['refusal']}")
    return "\n".join(lines)
