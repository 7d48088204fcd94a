"""support_bound - how much a test in Python tries: WEIR_BOUND=full asks for the long
runs. What it prints tools/check_bounds.py compares with tests/bounds.txt.
"""
import os

FULL = os.environ.get("WEIR_BOUND", "quick") == "full"


def bound(what, quick, full):
    number = full if FULL else quick
    print(f"bound: {what} = {number}", flush=True)
    return number
