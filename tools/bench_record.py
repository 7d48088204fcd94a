"""bench_record - keeps what tools/bench measured: results, tables and plots in
a folder; what is to stay, in bench/results and bench/README.md.
"""
import json
import os
import re

import bench_plan
import bench_table

README = os.path.join(bench_plan.TOP, "bench", "README.md")
BEGIN, END = "<!-- figures: tools/bench --record -->", "<!-- end of figures -->"
PLOTS = [("workloads.png", "ns per pair, by workload and allocator"),
         ("sweeps.png", "ns per pair, by size and by live blocks"),
         ("threads.png", "million pairs per second, by threads"),
         ("memory.png", "held over live over time, and the smallest pools")]


def write_results(results, folder):
    import bench_plot  # only here: setup may have had to install what it needs
    os.makedirs(folder, exist_ok=True)
    with open(os.path.join(folder, "results.json"), "w", encoding="utf-8") as file:
        json.dump(results, file, indent=1)
        file.write("\n")
    bench_plot.draw_all(results, folder)


def write(results, folder):
    write_results(results, folder)
    with open(os.path.join(folder, "table.txt"), "w", encoding="utf-8") as file:
        file.write(bench_table.text_of(results))


def folder_name(machine):
    words = re.findall(r"[a-z0-9]+", machine["processor"].split("(family")[0]
                       .replace("(R)", "").replace("(TM)", "").lower())
    return "-".join([*words, machine["date"]])


def words_of(machine):
    packages = ", ".join(f"{name} {version}"
                         for name, version in machine["packages"].items())
    before, after = (" ".join(f"{load:.1f}" for load in machine[when])
                     for when in ["load_before", "load_after"])
    return (f"{machine['processor']}, {machine['cores']} cores, Linux "
            f"{machine['kernel']}, {machine['system']}; {packages}. Weir at "
            f"{machine['commit']}, {machine['date']}. Load averages were {before} "
            f"before and {after} after.\n")


def block_of(results, name):
    """What stands in bench/README.md between the markers."""
    plots = "".join(f"![{words}](results/{name}/{plot})\n\n" for plot, words in PLOTS)
    machine = results["machine"]
    return (f"{BEGIN}\n\n{words_of(machine)}\n{results['rounds']} processes for each "
            f"figure, {results['seconds']} s each; all that was measured is in "
            f"`results/{name}/results.json`.\n\n"
            f"{bench_table.missed_sentence(results)}\n\n{plots}"
            f"{bench_table.markdown_of(results)}\n{END}")


def with_block(text, block):
    """`text` with `block` in place of what is between the markers, which it brings."""
    begin, end = text.index(BEGIN), text.index(END) + len(END)
    return text[:begin] + block + text[end:]


def keep(results):
    """Into bench/results and bench/README.md; False: they are of a part only, and not
    kept. A folder that README no longer names is the caller's to remove."""
    if "instructions" not in results or results["failures"]:
        print("bench: not kept: something failed, or it is only a part")
        return False
    name = folder_name(results["machine"])
    write_results(results, os.path.join(bench_plan.TOP, "bench", "results", name))
    with open(README, encoding="utf-8") as file:
        text = with_block(file.read(), block_of(results, name))
    with open(README, "w", encoding="utf-8") as file:
        file.write(text)
    print(f"bench: kept in bench/results/{name} and bench/README.md")
    return True
