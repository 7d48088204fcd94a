"""bench_reference - what the same workloads took on the machine of the targets:
2 cores of an AMD EPYC (Zen 5), Debian 12, g++ 12.2.

The mallocs, which tools/bench measures again, tell how much slower another machine is.
RMM's resources, and the Vulkan Memory Allocator's virtual block, which has neither lock
nor streams, were measured there only.
"""
import statistics

KEYS = ["W1/256", "W1/4K", "W1/1M", "W1/1Mx32", "W2/1000/4096M", "W2/10k/1M",
        "W2/100k/1M", "W3", "W4", "W5/100", "W5/1k", "W5/10k"]
# ns per pair, gross.
NULL = [3.4, 3.5, 3.4, 3.7, 5.1, 6.1, 8.5, 3.5, 3.7, 3.8, 3.5, 3.6]
GROSS = {
    "tcmalloc": [4.2, 4.7, 34, 58, None, 508, 624, 25, None, 27, 49, 160],
    "jemalloc": [5.8, 8.9, 209, 230, None, 709, 1194, 204, None, 232, 245, 361],
    "mimalloc": [6.9, 12, 144, 169, None, 1075, 1171, 70, None, 81, 125, 220],
    "glibc": [6.5, 39, 41, 3012, None, 1766, 2712, 142, None, 173, 311, 669],
    "RMM": [72.6, 72.3, 72.8, 70.9, 108, 4573, 55415, 210, 77, 281, 988, 7830],
    "RMM binning": [75, 76, 77, 84, 120, 110, 112, 82, 83, 80, 80, 80],
    "VMA": [12.5, 12.8, 12.4, 14.6, 29, 80, 110, 39, None, 60, 66, 69],
}
# The smallest pool over peak live, which no machine changes.
FIT = {
    "RMM": {"W5/10k": 1.070, "W5/10k/4s": 1.133, "W5/10k/small": 1.074, "W3": 1.51},
    "RMM arena": {"W5/10k": 1.215, "W5/10k/4s": 1.223, "W5/10k/small": 1.180,
                  "W3": 1.43},
    "RMM binning": {"W5/10k": 3.48, "W5/10k/4s": 3.54, "W5/10k/small": 69, "W3": 65},
    "VMA": {"W5/10k": 1.098, "W5/10k/4s": 1.066, "W5/10k/small": 1.102, "W3": 1.11},
}
# Less than this, net, is mostly the harness and the clock.
LEAST_NS = 5


def net_of(name, key):
    """None: it was not measured."""
    if key not in KEYS:
        return None
    gross = GROSS[name][KEYS.index(key)]
    return None if gross is None else gross - NULL[KEYS.index(key)]


def scale_of(figures):
    """How many times as long it takes here: the median over all mallocs and workloads.
    None: there is nothing to compare."""
    ratios = []
    for key in KEYS:
        for name, found in figures.get(key, {}).items():
            there = net_of(name, key) if name in GROSS else None
            if there is not None and there >= LEAST_NS and found.get("net"):
                ratios.append(found["net"] / there)
    return statistics.median(ratios) if ratios else None
