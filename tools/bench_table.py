"""bench_table - what tools/bench says: the table of figures, for a terminal and for
bench/README.md.
"""
import textwrap

import bench_memory
import bench_plan
import bench_reference
import bench_results
import bench_targets
import bench_words as words
from bench_targets import mark, net_of

COLUMNS = ["null", "weir", "weir-unknown", "weir-own", *bench_plan.PEERS]
# Measured elsewhere, see bench_reference.py.
FROM_THERE = ["RMM", "RMM binning", "VMA"]
# Of what a core can do, with what may be left to chance.
NOISE = 1.05


def calls_of(figure):
    """Device calls per unit, as words."""
    short = {"event_record": "record", "event_query": "query",
             "stream_wait_event": "wait", "others": "other"}
    return ", ".join(f"{short[kind]} {value:.2g}"
                     for kind, value in figure.get("calls", {}).items())


def is_workload(key):
    return key in bench_plan.WORKLOADS or key.startswith("trace/")


def times(number, scale):
    return None if number is None or scale is None else number * scale


def time_rows(figures, targets):
    """Harness gross, everything else net of it."""
    scale = bench_reference.scale_of(figures)
    rows = [["workload", "harness", "target", "scaled", "reached", *COLUMNS[1:],
             *(name + "*" for name in FROM_THERE),
             "weir's device calls", "those of weir-unknown"]]
    for key, by_name in figures.items():
        if "null" not in by_name or not is_workload(key):
            continue
        target = bench_plan.target_of(key)
        there = [bench_reference.net_of(name, key) for name in FROM_THERE]
        cells = [words.number_of(net_of(figures, key, name)) for name in COLUMNS[1:]]
        rows.append([key, words.number_of(by_name["null"]["gross"]),
                     "" if target is None else str(target),
                     words.number_of(times(target, scale)),
                     mark(targets, "time", key), *cells,
                     *(words.number_of(times(ns, scale)) for ns in there),
                     *(calls_of(by_name.get(name, {}))
                       for name in ["weir", "weir-unknown"])])
    return rows


def bounded_rows(figures, limits):
    """A pool that grows beside one that may not. Net."""
    rows = [["workload", "limit", "weir", "weir-bounded", "times",
             "weir-bounded's device calls"]]
    for key, limit in limits.items():
        free = net_of(figures, key, "weir")
        bounded = net_of(figures, key, "weir-bounded")
        if free and bounded is not None:
            rows.append([key, words.size(limit), words.number_of(free),
                         words.number_of(bounded), f"{bounded / free:.1f}",
                         calls_of(figures[key]["weir-bounded"])])
    return rows


def lookup_rows(figures, targets):
    rows = [["workload", "weir", "lookup", "by a table", "all at once",
             "times lookup", "target", "reached", "times by a table"]]

    def ratio(a, b):
        return "" if b is None else f"{a / b:.2f}"

    for key, lookup in bench_plan.LOOKUPS.items():
        weir = net_of(figures, key, "weir")
        bare, table, ahead = [
            figures.get(lookup.replace("lookup", kind), {}).get("null", {}).get("gross")
            for kind in ("lookup", "lookup-table", "lookup-ahead")]
        if weir is None or bare is None:
            continue
        rows.append([key, *map(words.number_of, (weir, bare, table, ahead)),
                     ratio(weir, bare), str(bench_plan.LOOKUP_TARGET),
                     mark(targets, "lookup", key), ratio(weir, table)])
    return rows


def share_words(share):
    """More than a core can do is noise: of what one thread did, mostly."""
    if share is None:
        return "-"
    return words.percent(share) + (" (noise)" if share > NOISE else "")


def thread_rows(figures, cores, targets):
    """Million units a second, all threads together, each counted once; and what a core
    does of what it did with one thread, by the clock and by the processor's time, which
    does not see who waits. Gross: the harness is in it."""
    rows = [["workload", "threads", *bench_plan.BY_THREADS, "weir per core", "reached",
             "by processor time", "weir-arena per core"]]
    for key, by_name in figures.items():
        if not key.startswith(("W6", "threads/")):
            continue
        case, count = bench_plan.case_and_threads(key)
        crews = count // bench_plan.crew_of(key)
        cells = []
        for name in bench_plan.BY_THREADS:
            gross = by_name.get(name, {}).get("gross")
            cells.append("-" if gross is None else f"{crews * 1e3 / gross:.1f}")
        one, many = (figures.get(each, {}).get("weir") for each in (case, key))
        by_time = words.percent(one["cpu"] / many["cpu"]) if one and many else "-"
        weir, arena = (share_words(bench_targets.share_of(figures, key, name, cores))
                       for name in ["weir", "weir-arena"])
        rows.append([case, str(count), *cells, weir, mark(targets, "share", key),
                     by_time, arena])
    return rows


def meeting_rows(figures, targets):
    """Threads that share a stream, or a block, against a hit: a pair of one thread, of
    the same size. Net, by the clock, from one pair to the next: of a thread, or of the
    two that do it together; and what the processors spend on a pair, gross."""
    rows = [["threads that meet", "weir", "times a hit", "target", "reached",
             "processors' time, gross"]]
    hit = net_of(figures, bench_plan.HIT, "weir")
    for key in bench_plan.MEETINGS:
        met = net_of(figures, key, "weir")
        if hit and met is not None:
            rows.append([key, words.number_of(met), f"{met / hit:.1f}",
                         str(bench_plan.MEETING_TARGET), mark(targets, "meeting", key),
                         words.number_of(figures[key]["weir"]["cpu"])])
    return rows


def buffer_rows(figures, targets):
    """Gross; and against what the host allocations of a round trip cost alone."""
    rows = [["a buffer or tensor made and ended", "ns", "times the records", "target",
             "reached"]]
    records = figures.get(bench_plan.RECORDS, {}).get("weir")
    for key in bench_plan.BUFFERS:
        weir = figures.get(key, {}).get("weir")
        if weir and records:
            is_trip = key == bench_plan.ROUND_TRIP
            rows.append([key, words.number_of(weir["gross"]),
                         f"{weir['gross'] / records['gross']:.1f}",
                         str(bench_plan.ROUND_TRIP_TARGET) if is_trip else "",
                         mark(targets, "records", key)])
    return rows


def device_rows(figures, counts):
    """Gross: the loop, and what Weir does around the call, are in it."""
    rows = [["call of the emulated device", "ns", "instructions"]]
    for key in bench_plan.DEVICE:
        weir = figures.get(key, {}).get("weir")
        if weir:
            rows.append([key.split("/")[1], words.number_of(weir["gross"]),
                         words.number_of(counts.get(key, {}).get("weir"))])
    return rows


def rmm_rows(figures):
    """With RMM's names; net of the harness where that can do it, or else gross."""
    rows = [["RMM's benchmark", "ns per pair, kernel, vector or stream", "runs",
             "harness"]]
    for key, by_name in figures.items():
        weir = by_name.get("weir") if key.startswith("RMM/") else None
        if weir:
            harness = by_name.get("null", {}).get("gross")
            runs = [words.number_of(run - (harness or 0)) for run in weir["runs"]]
            rows.append([key[len("RMM/"):],
                         words.number_of(weir["gross"] - (harness or 0)),
                         ", ".join(runs),
                         "in it" if harness is None else words.number_of(harness)])
    return rows


def sweep_rows(figures, what, keys):
    """`keys` are named by their second word: "size/4K", "W5/100/small"."""
    rows = [[what, "weir", *bench_plan.PEERS]]
    for key in keys:
        if key in figures:
            nets = [net_of(figures, key, name) for name in rows[0][1:]]
            rows.append([key.split("/")[1], *map(words.number_of, nets)])
    return rows


def instruction_rows(counts):
    rows = [["workload", "harness", "weir", *bench_plan.PEERS]]
    for case, by_name in counts.items():
        harness = by_name.get("null")
        if harness is None:
            continue
        cells = [None if by_name.get(name) is None else by_name[name] - harness
                 for name in ["weir", *bench_plan.PEERS]]
        rows.append([case, words.number_of(harness), *map(words.number_of, cells)])
    return rows


def changed_rows(results, before):
    """Weir's own figures that are others than before by a seventh or more, as seen from
    the mallocs beside them; the worst first."""
    figures, old_figures = (bench_results.as_now(each)["figures"]
                            for each in (results, before))
    scale = (bench_reference.scale_of(figures) or 1) / \
        (bench_reference.scale_of(old_figures) or 1)
    changed = []
    for key, by_name in figures.items():
        for name in (name for name in by_name if name.startswith("weir")):
            old = old_figures.get(key, {}).get(name, {})
            kind = "net" if old.get("net") and by_name[name].get("net") else "gross"
            was, now = old.get(kind), by_name[name].get(kind)
            if was and now and not 7 / 8 < now / was / scale < 8 / 7:
                changed.append((now / was / scale, key, name, was * scale, now))
    return [["figure", "", "ns before, scaled", "ns now", "times"]] + [
        [key, name, words.number_of(was), words.number_of(now), f"{ratio:.2f}"]
        for ratio, key, name, was, now in sorted(changed, reverse=True)]


def tables_of(results):
    """Pairs of a heading and rows, the first of which names the columns."""
    results = bench_results.as_now(results)
    figures, cores = results["figures"], results["machine"]["cores"]
    targets = bench_targets.targets_of(results)
    scale = bench_reference.scale_of(figures)
    heading = ("workloads, ns per pair (of traces per event), net of the harness; "
               f"scaled and *: of another machine, times {words.number_of(scale)}")
    tables = [(heading, time_rows(figures, targets)),
              (f"what a bounded pool costs: {bench_plan.BOUND} times the smallest that "
               f"does it once, and {bench_plan.BOUND_LEAST >> 20} MiB at least; ns per "
               "pair, net",
               bounded_rows(figures, results.get("limits", {}))),
              ("beside a bare lookup of 16 bytes per block, ns",
               lookup_rows(figures, targets)),
              ("threads, million units per second, all together",
               thread_rows(figures, cores, targets)),
              ("threads that meet, ns per pair by the clock, net; a hit is W1/4K",
               meeting_rows(figures, targets)),
              ("buffers, and tensors handed over by DLPack, ns",
               buffer_rows(figures, targets)),
              ("calls of the emulated device, with what Weir does around them",
               device_rows(figures, results.get("instructions", {}))),
              ("RMM's benchmarks, on Weir", rmm_rows(figures)),
              ("one block of each size, ns per pair, net",
               sweep_rows(figures, "size", bench_plan.SIZES)),
              ("so many live of 256 B to 1 MiB, ns per pair, net",
               sweep_rows(figures, "live", bench_plan.LIVE_LARGE)),
              ("so many live of 256 B to 16 KiB, ns per pair, net",
               sweep_rows(figures, "live", bench_plan.LIVE)),
              ("instructions per pair, net",
               instruction_rows(results.get("instructions", {})))]
    if results.get("memory"):
        tables += bench_memory.tables_of(results["memory"], targets)
    return [(heading, rows) for heading, rows in tables if len(rows) > 1]


def as_text(rows):
    widths = [max(len(row[i]) for row in rows) for i in range(len(rows[0]))]
    lines = []
    for row in rows:
        cells = [row[0].ljust(widths[0])]
        cells += [cell.rjust(width) for cell, width in zip(row[1:], widths[1:])]
        lines.append("  ".join(cells).rstrip())
    lines.insert(1, "-" * len(lines[0]))
    return "\n".join(lines) + "\n"


def as_markdown(rows):
    lines = ["| " + " | ".join(row) + " |" for row in rows]
    lines.insert(1, "|---" + "|--:" * (len(rows[0]) - 1) + "|")
    return "\n".join(lines) + "\n"


def missed_sentence(results):
    targets = bench_targets.targets_of(bench_results.as_now(results))
    return bench_targets.sentence_of(targets)


def text_of(results):
    sentence = "\n".join(textwrap.wrap(missed_sentence(results), 88))
    return "\n".join([sentence + "\n", *(f"{heading}\n\n{as_text(rows)}"
                                         for heading, rows in tables_of(results))])


def markdown_of(results):
    return "\n".join(f"### {heading[0].upper() + heading[1:]}\n\n{as_markdown(rows)}"
                     for heading, rows in tables_of(results))
