"""bench_memory - what memory Weir needs, and what happens seldom: the figures of
bench_memory, of bench_moments and of `weir replay`, for tools/bench.
"""
import json
import os

import bench_best_fit
import bench_plan
import bench_reference
import bench_targets
import bench_words as words

FIT = ["W3", "W4", "W4/ring", "W5/100", "W5/10k", "W5/10k/4s", "W5/10k/small"]
HOST = ["W5/10k", "W5/10k/small", "W5/1M/small"]
LITTLE = ["pool/device", "pool(cache=16MiB)/device",
          "pool(cache=4MiB, slack=128MiB)/device"]
HUGE = ["pool/device", "pool(slack=512MiB)/device"]
MANY = {"W5/320/4s": LITTLE, "W5/320/16s": LITTLE, "W5/320/64s": LITTLE,
        "W5/64/huge": ["pool/device"], "W5/64/huge/2s": HUGE, "W5/64/huge/4s": HUGE}
QUICK = ["W5/10k/small"]
# What is no turnover: one block, which is all that a pool has to hold.
ONE_BLOCK = {"W1/4K": 4 << 10}


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
            events = list(bench_plan.events_in(path))
            rounded = bench_plan.peak_of(events, bench_best_fit.UNIT)
            best = bench_best_fit.fit(events, rounded)
            found[name] = {"fit": fit["fit_over_live"],
                           "rounded": rounded / fit["peak_live_bytes"],
                           "best_fit": best / fit["peak_live_bytes"],
                           "peak_bytes": fit["peak_live_bytes"],
                           "fit_bytes": fit["fit_bytes"],
                           "held_over_live": fit["held_over_live"],
                           "held_over_live_by_streams": timed["held_over_live"],
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


def limits(bench, cases, say):
    """Case to bytes: what the pools of weir-bounded may hold."""
    turnovers = [case for case in cases if case not in ONE_BLOCK]
    found = of_cases(bench, "fit", turnovers, say)
    fits = {case: it["fit_bytes"] for case, it in found.items()}
    fits.update({case: ONE_BLOCK[case] for case in cases if case in ONE_BLOCK})
    return {case: max(int(bench_plan.BOUND * fits[case]) // 256 * 256,
                      bench_plan.BOUND_LEAST)
            for case in cases if case in fits}


def measure(bench, quick, say):
    return {"fit": of_cases(bench, "fit", QUICK if quick else FIT, say),
            "host": of_cases(bench, "host", QUICK if quick else HOST, say),
            "drift": of_cases(bench, "drift", QUICK if quick else FIT, say),
            "many": {} if quick else of_many(bench, say),
            "traces": of_traces(bench, quick, say),
            "moments": moments(bench, say)}


# --- tables ------------------------------------------------------------------------

def ratio(value):
    if value is None:
        return ""
    return f"{value:.4f}" if value < 10 else f"{value:.1f}"


def grown_cells(drift):
    """What a pool that begins with nothing comes to hold, over what is live at its
    most; and over what is live just then, at the worst of all samples."""
    if not drift:
        return ["", ""]
    return [ratio(drift["grown"]),
            ratio(max(held / live for held, live, _ in drift["samples"]))]


def there_cells(case):
    fits = [bench_reference.FIT[name].get(case) for name in bench_reference.FIT]
    return ["" if fit is None else f"{fit:g}" for fit in fits]


def fit_rows(memory, targets):
    rows = [["workload", "peak live", "smallest pool", "over peak", "target", "reached",
             "in units of 256 B", "best fit", "grown", "at worst",
             *(name + "*" for name in bench_reference.FIT)]]
    for case, it in memory["fit"].items():
        target = bench_targets.FIT.get(case)
        rows.append([case, words.size(it["peak_bytes"]), words.size(it["fit_bytes"]),
                     ratio(it["fit"]), "" if target is None else f"{target:.2f}",
                     bench_targets.mark(targets, "fit", case), ratio(it["rounded"]), "",
                     *grown_cells(memory["drift"].get(case)), *there_cells(case)])
    for name, it in memory["traces"].items():
        rows.append(["trace/" + name, words.size(it["peak_bytes"]),
                     words.size(it["fit_bytes"]), ratio(it["fit"]),
                     f"{bench_targets.TRACE_FIT:.2f}",
                     bench_targets.mark(targets, "fit", name), ratio(it["rounded"]),
                     ratio(it.get("best_fit")), ratio(it.get("held_over_live")), "",
                     *there_cells(name)])
    return rows


def many_rows(memory):
    rows = [["workload", "pool", "peak live", "held", "over peak", "ns per pair"]]
    for case, by_spec in memory.get("many", {}).items():
        for spec, it in by_spec.items():
            rows.append([case, spec, words.size(it["peak_bytes"]),
                         words.size(it["grown_bytes"]),
                         f"{it['grown_bytes'] / it['peak_bytes']:.1f}",
                         words.number_of(it["ns"])])
    return rows


def host_rows(memory, targets):
    rows = [["workload", "live blocks", "held", "host memory", "of it malloc",
             "bytes per block", "of 32 per block and 0.1 % of held", "reached"]]
    for case, it in memory["host"].items():
        rows.append([case, str(it["blocks"]), words.size(it["held_bytes"]),
                     words.size(it["private_bytes"]), words.size(it["malloc_bytes"]),
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
    rows = [["RMM's REPLAY, with the trace's own streams", "ns per event",
             "held over live, at most each"]]
    for name, it in memory["traces"].items():
        rows.append([name, words.number_of(it["ns_per_event"]),
                     ratio(it.get("held_over_live_by_streams"))])
    return rows


def tables_of(memory, targets):
    return [("memory", fit_rows(memory, targets)),
            ("many streams of one thread", many_rows(memory)),
            ("host memory", host_rows(memory, targets)),
            ("moments, with the device calls of each", moment_rows(memory)),
            ("replays", replay_rows(memory))]
