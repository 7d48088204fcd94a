"""bench_targets - the figures to reach, and which of them tools/bench has found missed.

Times are scaled by the mallocs beside them (bench_reference.py), all else is not.
"""
import bench_plan
import bench_reference
import bench_words as words

FIT = {"W5/10k": 1.08, "W5/10k/4s": 1.07, "W5/10k/small": 1.07}
TRACE_FIT = 1.06


class Target:
    def __init__(self, name, value, limit, show, is_least=False):
        self.name, self.value, self.limit, self.show = name, value, limit, show
        self.is_missed = value < limit if is_least else value > limit

    def words(self):
        return f"{self.name} {self.show(self.value)} ({self.show(self.limit)})"


def net_of(figures, key, allocator):
    return figures.get(key, {}).get(allocator, {}).get("net")


def share_of(figures, key, name, cores):
    """What a core does of what it did with one thread, by the clock; or None."""
    case, count = bench_plan.case_and_threads(key)
    one, many = (figures.get(each, {}).get(name) for each in (case, key))
    if not one or not many:
        return None
    return one["gross"] / many["gross"] * count / min(count, cores)


def in_ns(value):
    return f"{words.number_of(value)} ns"


def in_times(value):
    return f"{value:.2f} times"


def of_times(figures):
    scale = bench_reference.scale_of(figures) or 1
    for key in figures:
        target, net = bench_plan.target_of(key), net_of(figures, key, "weir")
        if target is not None and net is not None:
            yield "time", key, Target(key, net, target * scale, in_ns)
    for key, lookup in bench_plan.LOOKUPS.items():
        net = net_of(figures, key, "weir")
        bare = figures.get(lookup, {}).get("null", {}).get("gross")
        if net is not None and bare:
            yield "lookup", key, Target(f"{key} beside a lookup", net / bare,
                                        bench_plan.LOOKUP_TARGET, in_times)


def of_threads(figures, cores):
    for key in figures:
        case, count = bench_plan.case_and_threads(key)
        share = share_of(figures, key, "weir", cores)
        if case in bench_plan.APART and 1 < count <= cores and share is not None:
            yield "share", key, Target(f"{key} per core", share,
                                       bench_plan.SHARE_TARGET, words.percent, True)
    hit = net_of(figures, bench_plan.HIT, "weir")
    for key in bench_plan.MEETINGS:
        met = net_of(figures, key, "weir")
        if hit and met is not None:
            yield "meeting", key, Target(f"{key} beside a hit", met / hit,
                                         bench_plan.MEETING_TARGET, in_times)
    trip, records = (figures.get(key, {}).get("weir")
                     for key in (bench_plan.ROUND_TRIP, bench_plan.RECORDS))
    if trip and records:
        yield "records", bench_plan.ROUND_TRIP, Target(
            f"{bench_plan.ROUND_TRIP} beside its records",
            trip["gross"] / records["gross"], bench_plan.ROUND_TRIP_TARGET, in_times)


def of_memory(memory):
    for case, it in memory.get("fit", {}).items():
        if case in FIT:
            yield "fit", case, Target(f"the smallest pool of {case}", it["fit"],
                                      FIT[case], in_times)
    for name, it in memory.get("traces", {}).items():
        yield "fit", name, Target(f"the smallest pool of trace/{name}", it["fit"],
                                  TRACE_FIT, in_times)
    for case, it in memory.get("host", {}).items():
        yield "host", case, Target(f"host memory of {case}", it["of_allowed"], 1,
                                   words.percent)


def targets_of(results):
    """(Kind, key) to target: "time", "lookup", "share", "meeting", "records", "fit" and
    "host". Of what was measured."""
    figures, cores = results["figures"], results["machine"]["cores"]
    found = [*of_times(figures), *of_threads(figures, cores),
             *of_memory(results.get("memory") or {})]
    return {(kind, key): target for kind, key, target in found}


def mark(targets, kind, key):
    target = targets.get((kind, key))
    return "" if target is None else "NO" if target.is_missed else "yes"


def sentence_of(targets):
    missed = [target.words() for target in targets.values() if target.is_missed]
    if not missed:
        return f"Targets missed: none of {len(targets)}."
    return (f"Targets missed: {len(missed)} of {len(targets)} (in brackets what is to "
            f"be reached): {'; '.join(missed)}.")
