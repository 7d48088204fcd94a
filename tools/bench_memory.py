"""bench_memory - what memory Weir needs, and what happens seldom: the figures of
bench_memory, of bench_moments and of `weir replay`, for tools/bench.
"""
import json
import os

import bench_plan
import bench_targets
import bench_words as words

FIT = ["W5/10k", "W5/10k/4s", "W5/10k/small"]
HOST = ["W5/10k", "W5/10k/small", "W5/1M/small"]
DRIFT = ["W5/10k", "W5/10k/4s", "W5/10k/small"]
LITTLE = ["pool/device", "pool(cache=16MiB)/device",
          "pool(cache=4MiB, slack=128MiB)/device"]
HUGE = ["pool/device", "pool(slack=512MiB)/device"]
MANY = {"W5/320/4s": LITTLE, "W5/320/16s": LITTLE, "W5/320/64s": LITTLE,
        "W5/64/huge": ["pool/device"], "W5/64/huge/2s": HUGE, "W5/64/huge/4s": HUGE}
QUICK = ["W5/10k/small"]


def program(bench, name):
    return os.path.join(bench.folder, name)


def of_cases(bench, command, cases, say):
    found = {}
    for case in cases:
        say(f"memory: {command} of {case}")
        said = bench.json([program(bench, "bench_memory"), command, case])
        if said:
            found[case] = said
    return found


def replay(bench, trace, *options):
    """What `weir replay` found of its one resource; {} if it failed."""
    tool = os.path.join(os.path.dirname(bench.folder), "weir")
    said = bench.json([tool, "replay", trace, "--json", "--device", "emulated",
                       *options])
    if not said.get("results"):
        return {}
    return said["results"][0]


def of_traces(bench, quick, say):
    """On one stream, how large a pool has to be; with those that a trace has, RMM's
    REPLAY: how long an event takes."""
    found = {}
    for name, path in bench_plan.traces(quick).items():
        say(f"memory: fit of {name}")
        fit = replay(bench, path, "--streams", "1", "--repeat", "1", "--fit")
        say(f"replay of {name}")
        timed = replay(bench, path)
        if fit and timed:
            rounded = bench_plan.peak_of(bench_plan.events_in(path), 256)
            found[name] = {"fit": fit["fit_over_live"],
                           "rounded": rounded / fit["peak_live_bytes"],
                           "peak_bytes": fit["peak_live_bytes"],
                           "fit_bytes": fit["fit_bytes"],
                           "ns_per_event": timed["ns_per_event_median"]}
    return found


def of_many(bench, say):
    """Case to pools to what they hold, and what a pair takes, the harness included."""
    found = {}
    for case in MANY:
        found[case] = {}
        for spec in MANY[case]:
            say(f"memory: {case}, {spec}")
            held = bench.json([program(bench, "bench_memory"), "grown", case, spec])
            timed = bench.json([*bench.command("weir", [case, "--spec", spec]),
                                "--seconds", str(bench.seconds)])
            if held and timed:
                found[case][spec] = {**held, "ns": timed["benchmarks"][0]["cpu_time"]}
    return found


def moments(bench, say):
    say("moments")
    command = [program(bench, "bench_moments")]
    try:
        return [json.loads(line) for line in bench.output(command).splitlines()]
    except ValueError:
        bench.fail("bench_moments", "what it printed is not JSON, line by line")
        return []


def measure(bench, quick, say):
    return {"fit": of_cases(bench, "fit", QUICK if quick else FIT, say),
            "host": of_cases(bench, "host", QUICK if quick else HOST, say),
            "drift": of_cases(bench, "drift", [] if quick else DRIFT, say),
            "many": {} if quick else of_many(bench, say),
            "traces": of_traces(bench, quick, say),
            "moments": moments(bench, say)}


# --- tables ------------------------------------------------------------------------

def fit_rows(memory, targets):
    rows = [["workload", "peak live", "smallest pool", "over peak", "target", "reached",
             "in units of 256 B", "grown from nothing"]]
    for case, it in memory["fit"].items():
        rows.append([case, words.mib(it["peak_bytes"]),
                     words.mib(it["fit_bytes"]),
                     f"{it['fit']:.4f}", f"{bench_targets.FIT[case]:.2f}",
                     bench_targets.mark(targets, "fit", case),
                     f"{it['rounded']:.4f}", f"{it['grown']:.4f}"])
    for name, it in memory["traces"].items():
        rows.append(["trace/" + name, words.mib(it["peak_bytes"]),
                     words.mib(it["fit_bytes"]),
                     f"{it['fit']:.4f}", f"{bench_targets.TRACE_FIT:.2f}",
                     bench_targets.mark(targets, "fit", name),
                     f"{it['rounded']:.4f}", ""])
    return rows


def many_rows(memory):
    rows = [["workload", "pool", "peak live", "held", "over peak", "ns per pair"]]
    for case, by_spec in memory.get("many", {}).items():
        for spec, it in by_spec.items():
            rows.append([case, spec, words.mib(it["peak_bytes"]),
                         words.mib(it["grown_bytes"]),
                         f"{it['grown_bytes'] / it['peak_bytes']:.1f}",
                         words.number_of(it["ns"])])
    return rows


def host_rows(memory, targets):
    rows = [["workload", "live blocks", "held", "host memory", "of it malloc",
             "bytes per block", "of 32 per block and 0.1 % of held", "reached"]]
    for case, it in memory["host"].items():
        rows.append([case, str(it["blocks"]), words.mib(it["held_bytes"]),
                     words.mib(it["private_bytes"]), words.mib(it["malloc_bytes"]),
                     f"{it['per_block']:.1f}", words.percent(it["of_allowed"]),
                     bench_targets.mark(targets, "host", case)])
    return rows


def moment_rows(memory):
    rows = [["moment", "samples", "quartile", "median", "quartile", "records",
             "queries", "waits", "other calls"]]
    for it in memory["moments"]:
        calls = it["calls"]
        kinds = ["event_record", "event_query", "stream_wait_event", "others"]
        rows.append([it["name"], str(it["samples"]), *map(words.duration, it["ns"]),
                     *(words.number_of(calls[kind]) for kind in kinds)])
    return rows


def replay_rows(memory):
    rows = [["RMM's REPLAY, with the trace's own streams", "ns per event"]]
    for name, it in memory["traces"].items():
        rows.append([name, words.number_of(it["ns_per_event"])])
    return rows


def tables_of(memory, targets):
    return [("memory", fit_rows(memory, targets)),
            ("many streams of one thread", many_rows(memory)),
            ("host memory", host_rows(memory, targets)),
            ("moments, with the device calls of each", moment_rows(memory)),
            ("replays", replay_rows(memory))]
