"""bench_plan - what tools/bench runs: cases, allocators, and the figures to reach.

A key names a figure: a case of the bench programs, "CASE/tN" with N threads,
"trace/NAME" for a trace.
"""
import csv
import gzip
import os
import re

TOP = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))

PEERS = ["tcmalloc", "jemalloc", "mimalloc", "glibc"]
# What a program is started with; each is a process of its own.
PROGRAMS = {name: ["bench_" + name] for name in ["null", "weir", *PEERS]}
PROGRAMS["weir-unknown"] = ["bench_weir", "--unknown"]
PROGRAMS["weir-own"] = ["bench_weir", "--own"]
PROGRAMS["weir-bounded"] = ["bench_weir"]  # with the case's own limit
PROGRAMS["weir-arena"] = ["bench_weir", "--spec", "arena/device"]
ALL = ["null", "weir", *PEERS]
BY_THREADS = ["null", "weir", "weir-arena", *PEERS]

# In ns per pair net of the harness; of traces per event.
TARGETS = {
    "W1/256": 8, "W1/4K": 8, "W1/1M": 10, "W1/4Kx32": 10, "W1/1Mx32": 10,
    "W2/1000/4096M": 40, "W2/100k/1M": 80, "W3": 20, "W4": 20,
    "W5/100": 45, "W5/1k": 45, "W5/10k": 45, "W5/100k": 70, "W5/1M/small": 70,
}
TRACE_TARGET = 30
# Threads that do a pair together, which is counted once.
CREWS = {"threads/freed-by-another": 2, "threads/freed-by-another/later": 2}
# Times a hit.
HIT = "W1/4K"
MEETINGS = ["threads/shared-stream/t2", "threads/freed-by-another/t2",
            "threads/freed-by-another/later/t2"]
MEETING_TARGET = 3
# Threads apart from each other: what a core does of what it does with one thread, at
# least.
APART = ["W6a", "W6b", "W6b/10k"]
SHARE_TARGET = 0.9
# Of the emulated device: 10 000 live blocks need 1.3, and a pool that grows holds more.
GIB_PER_THREAD = 4
DEVICE_GIB = 64  # without being asked
LOOKUP_TARGET = 2

WORKLOADS = ["W1/256", "W1/4K", "W1/1M", "W1/4Kx32", "W1/1Mx32", "W2/1000/4096M",
             "W2/10k/1M", "W2/100k/1M", "W3", "W4", "W4/ring", "W5/100", "W5/1k",
             "W5/10k", "W5/100k", "W5/10k/4s", "W5/10k/small", "W5/1M/small"]
UNKNOWN = ["W1/4K", "W3", "W4", "W5/10k"]
OWN = ["W1/4K", "W5/10k"]
# Beside a pool that is half as large again as the smallest that does the workload once.
BOUNDED = ["W1/4K", "W3", "W4", "W5/100", "W5/10k", "W5/10k/small"]
BOUND = 1.5
BOUND_LEAST = 32 << 20
LOOKUPS = {"W5/100k": "lookup/100k", "W5/1M/small": "lookup/1M"}
SIZES = ["size/" + size for size in ["256", "1K", "4K", "16K", "64K", "256K", "1M",
                                     "4M", "16M", "64M"]]
LIVE = ["W5/%s/small" % live for live in ["10", "100", "1k", "10k", "100k", "1M"]]
LIVE_LARGE = ["W5/" + live for live in ["10", "100", "1k", "10k", "100k"]]
# RMM's own, of which the harness can do only those that merely allocate. Half of the
# emulated device is drawn at once, as theirs does.
RMM_POOL = ["--spec", "pool(initial=32GiB)/device"]
RMM_RANDOM = [f"RMM/RANDOM_ALLOCATIONS/{count}/{mib}"
              for count in [1000, 10000, 100000] for mib in [1, 4, 64, 256, 1024, 4096]]
RMM_OTHERS = ["RMM/" + name for name in [
    *(f"MULTI_STREAM_ALLOCATIONS/{streams}{warm}"
      for warm in ["", "/prewarm"] for streams in [1, 2, 4]),
    *("UVECTOR/" + count for count in ["10k", "100k", "1M", "10M", "100M", "1G"]),
    "CUDA_STREAM_POOL/pool", "CUDA_STREAM_POOL/new"]]

# Buffers, and the two host allocations that a round trip by DLPack needs.
RECORDS, ROUND_TRIP = "dlpack/records", "dlpack/round-trip"
BUFFERS = ["buffer/allocate", "buffer/slice", ROUND_TRIP, RECORDS]
ROUND_TRIP_TARGET = 6
# What the emulated device takes for a call.
DEVICE = ["device/event_record", "device/event_query", "device/stream_wait_event"]

QUICK = ["W1/256", "W1/4K", "W1/1Mx32", "W2/10k/1M", "W3", "W4", "W4/ring", "W5/100",
         "W5/1k", "W5/10k", "W5/10k/small"]


def case_and_threads(key):
    """Of "CASE/tN"; of what has no such end, one."""
    case, threads = re.fullmatch(r"(.*?)(?:/t(\d+))?", key).groups()
    return case, int(threads or 1)


def crew_of(key):
    return CREWS.get(case_and_threads(key)[0], 1)


def target_of(key):
    return TRACE_TARGET if key.startswith("trace/") else TARGETS.get(key)


class Item:
    """A figure to measure: so many processes per allocator and round. Options of
    `for_weir` mean nothing to the others, and `only` are those of one."""

    def __init__(self, key, arguments, allocators, for_weir=(), processes=1):
        self.key, self.arguments, self.allocators = key, arguments, allocators
        self.for_weir, self.processes, self.only = for_weir, processes, {}

    def arguments_of(self, allocator):
        more = self.for_weir if allocator.startswith("weir") else []
        return [*self.arguments, *more, *self.only.get(allocator, [])]


def case_item(name, allocators, threads=1):
    if threads == 1:
        return Item(name, [name], allocators)
    gib = GIB_PER_THREAD * threads
    more = ["--memory", str(gib << 30)] if gib > DEVICE_GIB else []
    return Item(f"{name}/t{threads}", [name, "--threads", str(threads)], allocators,
                more)


def thread_items(name, counts):
    """More of one thread, by whose figure all others are divided."""
    for count in counts:
        item = case_item(name, BY_THREADS, count)
        item.processes = 3 if count == 1 else 1
        yield item


def thread_counts(cores, quick):
    return [1, 2] if quick else sorted({1, 2, 4, 8, min(cores, 64)})


def workload_item(name, limits):
    others = [allocator for allocator, names in [
        ("weir-unknown", UNKNOWN), ("weir-own", OWN), ("weir-bounded", limits)]
        if name in names]
    item = case_item(name, ALL + others)
    if name in limits:
        size = limits[name]
        item.only["weir-bounded"] = ["--spec",
                                     f"pool(initial={size}, limit={size})/device"]
    return item


def items_of(quick, cores, scripts, limits):
    """`limits` in bytes, by workload, are those of the pools that have one."""
    items = [workload_item(name, limits) for name in (QUICK if quick else WORKLOADS)]
    for name in [] if quick else LOOKUPS.values():
        items.append(case_item(name, ["null"]))
        items += [case_item(name.replace("lookup", kind), ["null"])
                  for kind in ("lookup-table", "lookup-ahead")]
    threads = ["W6a"] if quick else [*APART, "threads/shared-stream"]
    for name in threads:
        items += thread_items(name, thread_counts(cores, quick))
    items += [case_item(name, BY_THREADS, 2) for name in CREWS]
    items += [case_item(name, ["weir"]) for name in [*BUFFERS, *DEVICE]]
    for name, path in scripts.items():
        items.append(Item("trace/" + name, ["trace", "--script", path], ALL))
    if not quick:
        items += [Item(name, [name], ["null", "weir"], RMM_POOL) for name in RMM_RANDOM]
        items += [Item(name, [name], ["weir"], RMM_POOL) for name in RMM_OTHERS]
        items += [case_item(name, ALL) for name in SIZES]
        items += [case_item(name, ALL) for name in [*LIVE, *LIVE_LARGE]
                  if name not in WORKLOADS]
    return items


# --- traces ------------------------------------------------------------------------

def events_of(rows):
    """("A", id, bytes) or ("F", id, 0), with ids that count up from 0, from either form
    of trace; allocations that failed and blocks never seen are left out."""
    numbers, count = {}, 0
    for row in rows:
        if "op" in row:
            allocates, name, size = row["op"] == "A", row["id"], int(row["size"])
        elif row["Action"] in ("allocate", "free"):
            allocates = row["Action"] == "allocate"
            name, size = row["Pointer"], int(row["Size"])
        else:
            continue
        if allocates and size > 0:
            numbers[name] = count
            yield "A", count, size
            count += 1
        elif not allocates and name in numbers:
            yield "F", numbers.pop(name), 0


def events_in(trace):
    """Those of a file, gzip and CSV."""
    with gzip.open(trace, "rt", encoding="utf-8", newline="") as source:
        yield from events_of(csv.DictReader(source))


def peak_of(events, unit):
    """The most that is live at once, if each block takes a multiple of `unit`."""
    live, now, peak = {}, 0, 0
    for op, number, size in events:
        if op == "A":
            live[number] = (size + unit - 1) // unit * unit
            now += live[number]
            peak = max(peak, now)
        else:
            now -= live.pop(number)
    return peak


def write_script(trace, path):
    """`trace` as the bench programs read it."""
    with open(path, "w", encoding="ascii") as out:
        for op, number, size in events_in(trace):
            out.write(f"A {number} {size}\n" if op == "A" else f"F {number}\n")


def traces(quick):
    """Name to path: the project's own, and those of ../shared where that is there."""
    found = {}
    for folder in [os.path.join(TOP, "bench", "traces"),
                   os.path.join(os.path.dirname(TOP), "shared", "traces")]:
        if os.path.isdir(folder):
            for name in sorted(os.listdir(folder)):
                if name.endswith(".csv.gz"):
                    found[name[:-len(".csv.gz")]] = os.path.join(folder, name)
    return dict(list(found.items())[:1]) if quick else found


def write_scripts(quick, folder):
    os.makedirs(folder, exist_ok=True)
    scripts = {}
    for name, trace in traces(quick).items():
        scripts[name] = os.path.join(folder, name + ".txt")
        write_script(trace, scripts[name])
    return scripts
