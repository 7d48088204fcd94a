"""bench_run - runs the benchmark programs for tools/bench, and takes medians.

One allocator per process; the processes of a case follow each other, and all cases are
run in each round, so that a change of the machine's mood meets all allocators alike.
Of what one thread does, where more are compared with it, a round has three.
"""
import json
import os
import platform
import re
import statistics
import subprocess
import sys
import time

import bench_plan

LIMIT_S = 300
CALLS = ["event_record", "event_query", "stream_wait_event", "others"]


class Bench:
    """Where the programs are, what has failed, and how long each measures."""

    def __init__(self, folder, seconds):
        self.folder, self.seconds, self.failures = folder, seconds, []

    def command(self, allocator, arguments):
        program, *options = bench_plan.PROGRAMS[allocator]
        return [os.path.join(self.folder, program), *arguments, *options]

    @staticmethod
    def words_of(command):
        return " ".join([os.path.basename(command[0]), *command[1:]])

    def output(self, command):
        """What it printed; "" and a failure on record if it failed."""
        words = self.words_of(command)
        try:
            ran = subprocess.run(command, stdin=subprocess.DEVNULL, text=True,
                                 capture_output=True, timeout=LIMIT_S, check=False)
        except subprocess.TimeoutExpired:
            self.fail(words, f"not done after {LIMIT_S} s")
            return ""
        except OSError as problem:
            self.fail(words, problem.strerror)
            return ""
        if ran.returncode != 0:
            said = ran.stderr.strip().split("\n")[-1] or f"status {ran.returncode}"
            self.fail(words, said)
            return ""
        return ran.stdout

    def fail(self, what, why):
        self.failures.append(f"{what}: {why}")
        print(f"bench: {what}: {why}", file=sys.stderr)

    def json(self, command):
        """What it printed, or {}; what is no object with something in it has failed."""
        text = self.output(command)
        if not text:
            return {}
        try:
            said = json.loads(text)
        except ValueError:
            said = None
        if isinstance(said, dict) and said:
            return said
        self.fail(self.words_of(command), "what it printed is no JSON object")
        return {}

    def measure(self, allocator, item):
        """One run, or None."""
        arguments = [*item.arguments_of(allocator), "--seconds", str(self.seconds)]
        said = self.json(self.command(allocator, arguments))
        if not said:
            return None
        try:
            run = said["benchmarks"][0]
            if run.get("error_occurred"):
                self.fail(f"{allocator} {item.key}", run["error_message"])
                return None
            return one_run(run, bench_plan.crew_of(item.key))
        except (LookupError, TypeError, ZeroDivisionError):
            self.fail(f"{allocator} {item.key}", "its JSON has no figures")
            return None


def one_run(run, crew):
    """{"ns", "wall", "cpu": per unit, "calls": per unit, by kind}. "wall" is by the
    clock, from one unit of a thread to its next, or of a crew, which are the threads
    that do a unit together; "cpu" the processor's time of all who do it. With one
    thread "ns" is "cpu", which does not grow where others take the core away; with
    more, "wall"."""
    wall = run["threads"] / crew * 1e9 / run["items_per_second"]
    cpu = run["cpu_time"] * crew
    return {"ns": cpu if run["threads"] == 1 else wall, "wall": wall, "cpu": cpu,
            "calls": {kind: run[kind] for kind in CALLS}}


def measure_all(bench, items, rounds, say):
    """Key to allocator to its runs."""
    runs = {item.key: {name: [] for name in item.allocators} for item in items}
    for number in range(rounds):
        for at, item in enumerate(items):
            say(f"round {number + 1} of {rounds}: {item.key} ({at + 1}/{len(items)})")
            for allocator in item.allocators * item.processes:
                one = bench.measure(allocator, item)
                if one is not None:
                    runs[item.key][allocator].append(one)
    return runs


def median_of(runs, harness):
    """A figure of one allocator, `harness` the median of the null one."""
    gross = [run["ns"] for run in runs]
    figure = {"runs": [round(ns, 3) for ns in gross],
              "gross": round(statistics.median(gross), 3),
              **{clock: round(statistics.median(run[clock] for run in runs), 3)
                 for clock in ["wall", "cpu"]}}
    if harness is not None:
        figure["net"] = round(figure["gross"] - harness, 3)
    for kind in CALLS:
        calls = statistics.median(run["calls"][kind] for run in runs)
        if calls:
            figure.setdefault("calls", {})[kind] = round(calls, 6)
    return figure


def figures_of(runs):
    """Key to allocator to its figure."""
    figures = {}
    for key, by_name in runs.items():
        harness = None
        if by_name.get("null"):
            harness = statistics.median(run["ns"] for run in by_name["null"])
        figures[key] = {name: median_of(its, harness)
                        for name, its in by_name.items() if its}
    return figures


# --- instructions ------------------------------------------------------------------

COUNTED = ["W1/4K", "W5/10k"]
# Valgrind has not as much address space to give as the emulated device asks for.
SMALLER = ["--memory", str(8 << 30)]


def instructions_of(bench, allocator, case, say):
    """Instructions per pair, by valgrind; None: it has failed."""
    say(f"instructions: {case}, {allocator}")
    smaller = SMALLER if allocator.startswith("weir") else []
    programs = bench.command(allocator, [case, "--batches", "5", *smaller])
    out = os.path.join(bench.folder, "callgrind.out")
    command = ["valgrind", "--tool=callgrind", "--toggle-collect=bench_counted",
               "--callgrind-out-file=" + out, *programs]
    units = bench.json(command)
    if not units:
        return None
    with open(out, encoding="utf-8", errors="replace") as file:
        total = re.search(r"^(?:totals|summary): (\d+)", file.read(), re.MULTILINE)
    if total is None:
        bench.fail(f"callgrind {allocator} {case}", "no total")
        return None
    return int(total.group(1)) / units["units"]


def count_instructions(bench, say):
    programs = {case: bench_plan.ALL for case in COUNTED}
    programs.update({case: ["weir"] for case in bench_plan.DEVICE})
    return {case: {name: instructions_of(bench, name, case, say) for name in names}
            for case, names in programs.items()}


# --- the machine -------------------------------------------------------------------

PACKAGES = ["libc6", "gcc", "libbenchmark-dev", "libtcmalloc-minimal4", "libjemalloc2",
            "libmimalloc2.0", "valgrind"]


def said_by(command):
    try:
        return subprocess.run(command, capture_output=True, text=True, check=True,
                              cwd=bench_plan.TOP).stdout.strip()
    except (OSError, subprocess.CalledProcessError):
        return ""


def processor():
    with open("/proc/cpuinfo", encoding="utf-8") as file:
        text = file.read()
    fields = {}
    for field in ["model name", "cpu family", "model", "stepping"]:
        found = re.search(rf"^{field}\s*:\s*(.*)$", text, re.MULTILINE)
        fields[field] = found.group(1) if found else "?"
    return ("{model name} (family {cpu family}, model {model}, stepping {stepping})"
            .format(**fields))


def cores():
    return len(os.sched_getaffinity(0))


def machine():
    versions = {}
    for package in PACKAGES:
        version = said_by(["dpkg-query", "-W", "-f", "${Version}", package])
        versions[package] = version or "?"
    kernel = re.match(r"[\d.]*", platform.release()).group()
    system = platform.freedesktop_os_release().get("PRETTY_NAME", "?")
    return {"processor": processor(), "cores": cores(),
            "kernel": kernel, "system": system, "packages": versions,
            "commit": said_by(["git", "describe", "--always", "--dirty"]),
            "date": time.strftime("%Y-%m-%d", time.gmtime()),
            "load_before": list(os.getloadavg())}
