"""bench_results - reads the results.json of tools/bench.
"""
import json

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
