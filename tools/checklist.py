#!/usr/bin/env python3
"""checklist.py - tells how each line of tests/checklist.txt fares on each device.

    tools/checklist.py LOG [--strict]   from a log of ctest: a row for each line and
                                        device; status 1 if any fails, or, with
                                        --strict, is missing
    tools/checklist.py --self-test      the canary

A test of cmocka belongs to the line that its name begins with, a9_..., and to the
device that the name of its ctest test ends in. Any test with the label `checklist` may
also print `A17 stepped pass NAME`, or `fail`, in a line of its own. One that was begun
and did not end has failed, and so has all that a program showed which then failed
without saying where. One that was skipped shows nothing.
"""
import os
import re
import sys

DEVICES = ("stepped", "threads", "stand-in")
SUFFIXES = {"_stepped": "stepped", "_threads": "threads", "_cuda": "stand-in"}
PLACES = {"c": "tests/check_*.c", "clients": "tests/clients"}

SECTION = re.compile(r"^\d+/\d+ Testing: (\S+)\n(.*?)(?=^\d+/\d+ Testing: |\Z)",
                     re.MULTILINE | re.DOTALL)
CASE = re.compile(r"^\[ +(RUN|OK|SKIPPED|FAILED) +\] (([a-e]\d+)_\w+)", re.MULTILINE)
ROW = re.compile(r"^([A-E]\d+) (stepped|threads|stand-in) (pass|fail) (\S+)$",
                 re.MULTILINE)


def read_list(text):
    """{line: place}, in order."""
    rows = [row.split(maxsplit=2) for row in text.splitlines()
            if row and not row.startswith("#")]
    return {line: place for line, place, _ in rows}


def cases_of(device, output):
    """(line, device, name, passed) for each of cmocka's, whose last word on it counts;
    for one that was skipped there is none."""
    ends = {}
    for word, name, line in CASE.findall(output):
        ends[name] = (line.upper(), word)
    for name, (line, word) in ends.items():
        if word != "SKIPPED":
            yield line, device, name, word == "OK"


def results_of(log):
    """The same for all tests in a log."""
    for name, section in SECTION.findall(log):
        output = section.split("<end of output>")[0]
        device = next((SUFFIXES[end] for end in SUFFIXES if name.endswith(end)), None)
        found = [(line, where, test, word == "pass")
                 for line, where, word, test in ROW.findall(output)]
        if device:
            found += cases_of(device, output)
        has_ended_well = re.search(r"^Test Passed\.$", section, re.MULTILINE)
        if not has_ended_well and all(passed for *_, passed in found):
            found = [(line, where, test, False) for line, where, test, _ in found]
        yield from found


def rows_of(listed, results):
    """(line, device, word, rest) for each line and device; `fail` if any test does."""
    shown = {}
    for line, device, name, passed in results:
        shown.setdefault((line, device), []).append((passed, name))
    for line, place in listed.items():
        for device in DEVICES:
            tests = shown.pop((line, device), [])
            failed = [name for passed, name in tests if not passed]
            names = failed or [name for _, name in tests]
            word = "fail" if failed else "pass" if tests else "missing"
            yield line, device, word, " ".join(names) or PLACES[place]
    for line, device in shown:  # which nobody has listed
        yield line, device, "fail", "is no line of the list"


def count_of(rows, word):
    return sum(1 for row in rows if row[2] == word)


def status_of(rows, strict):
    return 1 if count_of(rows, "fail") or strict and count_of(rows, "missing") else 0


def tell(listed, log, strict):
    rows = list(rows_of(listed, results_of(log)))
    for row in rows:
        print(*row)
    missing = [line for line in listed
               if any(row[0] == line and row[2] == "missing" for row in rows)]
    if missing:
        print(f"checklist: without a test on every device: {' '.join(missing)}")
    print(f"checklist: {len(listed)} lines on {len(DEVICES)} devices: "
          + ", ".join(f"{count_of(rows, word)} {told}" for word, told in
                      (("pass", "passed"), ("fail", "failed"), ("missing", "missing"))))
    return status_of(rows, strict)


# --- the canary ------------------------------------------------------------------

def section(name, lines, end="Test Passed."):
    return f"7/9 Testing: {name}\nOutput:\n---\n" + "".join(
        line + "\n" for line in lines) + f"<end of output>\n---\n{end}\n\n"


RUN, OK = "[ RUN      ] a1_x", "[       OK ] a1_x"
NO_LINE = [word.replace("a1_", "a_") for word in (RUN, OK)]
FAILED = "Test Failed."
GOOD = section("check_x_stepped", [RUN, OK])
ELSEWHERE = section("clients", ["A1 threads pass client", "B2 stand-in pass client"])
# A log, and the rows of it that are not missing.
CASES = [
    (GOOD, ["A1 stepped pass a1_x"]),
    (section("check_x_threads", [RUN, OK]), ["A1 threads pass a1_x"]),
    (section("check_x_cuda", [RUN, OK]), ["A1 stand-in pass a1_x"]),
    (GOOD + ELSEWHERE, ["A1 stepped pass a1_x", "A1 threads pass client",
                        "B2 stand-in pass client"]),
    (section("check_x_stepped", [RUN, OK, RUN.replace("a1_x", "a1_y"),
                                 OK.replace("a1_x", "a1_y")]),
     ["A1 stepped pass a1_x a1_y"]),
    # It says so; it never ended; another did; the program failed at its end.
    (section("check_x_stepped", [RUN, "[  FAILED  ] a1_x"], FAILED),
     ["A1 stepped fail a1_x"]),
    (section("check_x_stepped", [RUN], FAILED), ["A1 stepped fail a1_x"]),
    (section("check_x_stepped", [RUN], "Test Passed."), ["A1 stepped fail a1_x"]),
    (section("check_x_stepped", [RUN, OK, RUN.replace("a1", "b2")], FAILED),
     ["A1 stepped pass a1_x", "B2 stepped fail b2_x"]),
    (section("check_x_stepped", [RUN, OK], FAILED), ["A1 stepped fail a1_x"]),
    (section("check_x_stepped", [RUN, OK], ""), ["A1 stepped fail a1_x"]),
    (GOOD + section("clients", ["A1 stepped fail client"], FAILED),
     ["A1 stepped fail client"]),
    (section("clients", ["B2 threads pass client"], FAILED),
     ["B2 threads fail client"]),
    # Nothing is shown by what was skipped, has no line or no device, or is only named.
    (section("check_x_stepped", [RUN, "[  SKIPPED ] a1_x"]), []),
    (section("check_x_stepped", NO_LINE), []),
    (section("check_x", [RUN, OK]), []),
    (section("clients", ["see A1 stepped pass client", "A1 gpu pass client"]), []),
    ("", []),
    (section("clients", ["C3 stepped pass client"]),
     ["C3 stepped fail is no line of the list"]),
]


def self_test():
    listed = read_list("# A9 c no\n\nA1 c words of it\nB2 clients words\n")
    surprises = 0
    for log, wanted in CASES:
        rows = list(rows_of(listed, results_of(log)))
        told = [" ".join(row) for row in rows if row[2] != "missing"]
        fails = any(" fail " in row for row in wanted)
        if (told != wanted or count_of(rows, "pass") + count_of(rows, "missing") > 6
                or status_of(rows, False) != fails or status_of(rows, True) != 1):
            surprises += 1
            print(f"{log!r} gave {told}")
    whole = [(line, device, "pass", "x") for line in listed for device in DEVICES]
    if status_of(whole, True) != 0 or list(rows_of(listed, []))[5] != (
            "B2", "stand-in", "missing", "tests/clients"):
        surprises += 1
        print("all that passes failed, or what is missing was not told")
    print(f"checklist: {len(CASES)} canaries, {surprises} surprises")
    return 1 if surprises else 0


def main(arguments):
    if arguments == ["--self-test"]:
        return self_test()
    strict = arguments[1:] == ["--strict"]
    if len(arguments) != 1 + strict:
        print("usage: checklist.py LOG [--strict] | --self-test", file=sys.stderr)
        return 2
    top = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
    with open(os.path.join(top, "tests", "checklist.txt"), encoding="utf-8") as file:
        listed = read_list(file.read())
    with open(arguments[0], encoding="utf-8", errors="replace") as file:
        return tell(listed, file.read(), strict)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
