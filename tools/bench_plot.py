"""bench_plot - draws what tools/bench measured. For Debian's Python, which has
matplotlib as a package.
"""
import os

import bench_plan
import bench_reference
import bench_targets

import matplotlib
matplotlib.use("Agg")
from matplotlib import pyplot

NAMES = ["weir", *bench_plan.PEERS]
COLOURS = {"weir": "#d1495b", "tcmalloc": "#00798c", "jemalloc": "#edae49",
           "mimalloc": "#66a182", "glibc": "#8d96a3", "null": "#cccccc"}
MARKERS = {"weir": "o", "tcmalloc": "s", "jemalloc": "^", "mimalloc": "v", "glibc": "D"}
# What was measured elsewhere, see bench_reference.py.
FROM_THERE = {"RMM": ("RMM's pool", "x"), "RMM binning": ("RMM's binning", "+"),
              "VMA": ("VMA", "o")}
# Of a logarithmic axis: what is quicker cannot be told from the harness.
LEAST_NS = 0.5


def net(figures, key, name):
    found = figures.get(key, {}).get(name, {}).get("net")
    return None if found is None else max(found, LEAST_NS)


def finish(figure, axes, folder, name):
    for each in axes:
        each.grid(True, which="major", axis="y", alpha=0.35)
        each.set_axisbelow(True)
    figure.tight_layout()
    figure.savefig(os.path.join(folder, name), dpi=110)
    pyplot.close(figure)


def draw_workloads(figures, folder):
    keys = [key for key in bench_plan.WORKLOADS if key in figures]
    keys += [key for key in figures if key.startswith("trace/")]
    if not keys:
        return
    figure, axis = pyplot.subplots(figsize=(14, 6))
    width, scale = 0.8 / len(NAMES), bench_reference.scale_of(figures) or 1
    for number, name in enumerate(NAMES):
        heights = [net(figures, key, name) or 0 for key in keys]
        places = [i + (number - (len(NAMES) - 1) / 2) * width for i in range(len(keys))]
        axis.bar(places, heights, width, label=name, color=COLOURS[name])
    for i, key in enumerate(keys):
        target = bench_plan.target_of(key)
        if target:
            axis.plot([i - 0.45, i + 0.45], [target * scale] * 2, color="black",
                      linewidth=1.5, label="to reach, scaled" if i == 0 else None)
    for name, (label, marker) in FROM_THERE.items():
        there = [(i, bench_reference.net_of(name, key)) for i, key in enumerate(keys)]
        there = [(i, ns * scale) for i, ns in there if ns]
        if there:
            axis.plot(*zip(*there), linestyle="", marker=marker, color="black",
                      markerfacecolor="none", label=label + ", scaled")
    axis.set_yscale("log")
    axis.set_ylim(bottom=LEAST_NS)
    axis.set_xlim(-0.6, len(keys) - 0.4)
    axis.set_xticks(range(len(keys)))
    axis.set_xticklabels([key.replace("_ctx1024", "") for key in keys], rotation=40,
                         ha="right")
    axis.set_ylabel("ns per pair (traces: per event), net of the harness")
    axis.legend(ncol=5, loc="lower left", bbox_to_anchor=(0, 1), frameon=False)
    axis.set_title("less is better", loc="right")
    finish(figure, [axis], folder, "workloads.png")


def draw_lines(axis, keys, labels, figures, title):
    for name in NAMES:
        points = [(i, net(figures, key, name)) for i, key in enumerate(keys)]
        points = [point for point in points if point[1] is not None]
        if points:
            axis.plot(*zip(*points), marker=MARKERS[name], label=name,
                      color=COLOURS[name], linewidth=2.5 if name == "weir" else 1.3)
    axis.set_yscale("log")
    axis.set_xticks(range(len(keys)))
    axis.set_xticklabels(labels)
    axis.set_title(title)


def draw_sweeps(figures, folder):
    sizes = [key for key in bench_plan.SIZES if key in figures]
    if not sizes:
        return
    figure, axes = pyplot.subplots(1, 3, figsize=(16, 5), sharey=True)
    draw_lines(axes[0], sizes, [key[len("size/"):] for key in sizes], figures,
               "One block of this size, again and again")
    for axis, keys, title in [
            (axes[1], bench_plan.LIVE_LARGE, "So many live, 256 B to 1 MiB"),
            (axes[2], bench_plan.LIVE, "So many live, 256 B to 16 KiB")]:
        draw_lines(axis, keys, [key.split("/")[1] for key in keys], figures, title)
    axes[0].set_ylabel("ns per pair, net of the harness")
    axes[0].legend()
    finish(figure, axes, folder, "sweeps.png")


def draw_threads(figures, folder, cores):
    panels = [("W6a", "W6a: each its own stream, 4 KiB"),
              ("W6b", "W6b: each its own stream, 256 live"),
              ("threads/shared-stream", "All on one stream, 4 KiB")]
    panels = [panel for panel in panels if panel[0] in figures]
    if not panels:
        return
    figure, axes = pyplot.subplots(1, len(panels), figsize=(5.3 * len(panels), 5),
                                   squeeze=False)
    for axis, (case, title) in zip(axes[0], panels):
        for name in NAMES:
            points = []
            for count in bench_plan.thread_counts(cores, False):
                key = case if count == 1 else f"{case}/t{count}"
                gross = figures.get(key, {}).get(name, {}).get("gross")
                if gross:
                    points.append((count, count * 1e3 / gross))
            if points:
                axis.plot(*zip(*points), marker=MARKERS[name], label=name,
                          color=COLOURS[name], linewidth=2.5 if name == "weir" else 1.3)
        axis.set_yscale("log")
        axis.set_xscale("log", base=2)
        counts = bench_plan.thread_counts(cores, False)
        axis.set_xticks(counts)
        axis.set_xticklabels(map(str, counts))
        axis.set_xlabel(f"threads, on {cores} cores")
        axis.set_title(title)
    axes[0][-1].legend(loc="center left", bbox_to_anchor=(1.02, 0.5))
    axes[0][0].set_ylabel("million pairs per second, all together, gross")
    finish(figure, axes[0], folder, "threads.png")


def draw_memory(memory, folder):
    if not memory.get("drift"):
        return
    figure, (left, right) = pyplot.subplots(1, 2, figsize=(15, 5))
    for case, it in memory["drift"].items():
        steps = [i * it["steps"] / 1e6 for i in range(len(it["samples"]))]
        left.plot(steps, [held / live for held, live, _ in it["samples"]], label=case)
    if left.get_ylim()[1] > 5:
        left.set_yscale("log")
    left.set_ylim(bottom=1)
    left.set_xlabel("million frees and allocations")
    left.set_ylabel("held over live")
    left.set_title("A pool that grows from nothing, over time")
    left.legend(loc="upper center", bbox_to_anchor=(0.5, -0.12), ncol=4, frameon=False)
    fits = [(case, it["fit"], bench_targets.FIT.get(case))
            for case, it in memory["fit"].items()]
    fits += [(name, it["fit"], bench_targets.TRACE_FIT)
             for name, it in memory["traces"].items()]
    right.barh([name for name, _, _ in fits], [fit - 1 for _, fit, _ in fits], left=1,
               color=COLOURS["weir"])
    reached = [(i, target) for i, (_, _, target) in enumerate(fits) if target]
    for number, (i, target) in enumerate(reached):
        right.plot([target, target], [i - 0.45, i + 0.45], color="black", linewidth=1.5,
                   label="to reach" if number == 0 else None)
    right.invert_yaxis()
    right.set_xlim(left=1)
    right.set_xlabel("smallest pool over peak live")
    right.set_title("The smallest pool that does it")
    right.legend(loc="lower right")
    right.grid(True, axis="x", alpha=0.35)
    finish(figure, [left], folder, "memory.png")


def draw_all(results, folder):
    figures = results["figures"]
    draw_workloads(figures, folder)
    draw_sweeps(figures, folder)
    draw_threads(figures, folder, results["machine"]["cores"])
    draw_memory(results.get("memory", {}), folder)
