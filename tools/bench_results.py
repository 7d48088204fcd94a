"""bench_results - reads the results.json of tools/bench, also those of older versions.

Version 2: what a crew of threads does together is counted once: "cpu" and "calls" are
those of all of them; and what a pool grows to is told by the drift. In version 1, which
has no number, they are of one side, "grown" was of a sixteenth of the drift, and a
refusal was one that found the caches empty. What cannot be told from it: its records
beside DLPack were of 192 and 384 bytes, and no second thread slept beside its moments.
"""
import copy
import json

import bench_plan

VERSION = 2

PARTS = ["machine", "rounds", "seconds", "figures"]


class Unreadable(Exception):
    """Says why a file is none of tools/bench."""


def read(path):
    try:
        with open(path, encoding="utf-8") as file:
            results = json.load(file)
    except OSError as problem:
        raise Unreadable(f"{path}: {problem.strerror}") from problem
    except ValueError as problem:
        raise Unreadable(f"{path}: no JSON: {problem}") from problem
    if not isinstance(results, dict) or not all(part in results for part in PARTS):
        raise Unreadable(f"{path}: not the results of tools/bench")
    return results


def as_now(results):
    """The same as of this version; a copy, where it is older."""
    if results.get("version", 1) == VERSION:
        return results
    results = copy.deepcopy(results)
    results["version"] = VERSION
    memory = results.get("memory") or {}
    for it in memory.get("fit", {}).values():
        it.pop("grown", None)
    for it in memory.get("drift", {}).values():
        held, live, _ = map(max, zip(*it["samples"]))
        it["grown"] = held / live  # as far as the samples know
    for it in memory.get("moments", []):
        if it["name"].startswith("refusal/"):
            it["name"] += ", again"
    for key, by_name in results["figures"].items():
        crew = bench_plan.crew_of(key)
        for figure in by_name.values() if crew > 1 else []:
            if "cpu" in figure:
                figure["cpu"] = round(crew * figure["cpu"], 3)
            calls = figure.get("calls", {})
            calls.update({kind: crew * calls[kind] for kind in calls})
    return results
