#!/usr/bin/env python3
"""check_bounds.py - holds the tests to the bounds that they once ran at.

    tools/check_bounds.py LOG quick|full   prints the bounds in a log of ctest, and each
                                           finding; status 1 if there is any
    tools/check_bounds.py LOG quick|full --record   raises the record to what ran
    tools/check_bounds.py LOG quick|full --part     some programs were left out
    tools/check_bounds.py --self-test      the canary

A test prints `bound: NAME = NUMBER` for each bound that it ran at: programs, seeds,
points of a sweep. tests/bounds.txt keeps them, one `NAME = QUICK FULL` in a line. A
bound may only grow: below its record, or not printed at all, it is a finding, and so is
one without a record. A change that raises a bound raises its record.
"""
import os
import re
import sys

HEADING = """\
# What the tests run at, at least: tools/check_bounds.py holds them to it. The numbers
# may only grow.
# NAME = QUICK FULL
"""
KINDS = {"quick": 0, "full": 1}


def read_record(text):
    record = {}
    for line in text.splitlines():
        name, equals, numbers = line.partition(" = ")
        if equals and not line.startswith("#"):
            quick, full = numbers.split()
            record[name.strip()] = (int(quick), int(full))
    return record


def read_log(text):
    """The largest number for each name: a program may say it once for each part."""
    seen = {}
    for name, number in re.findall(r"^bound: (.+?) = (\d+)$", text, re.MULTILINE):
        seen[name] = max(int(number), seen.get(name, 0))
    return seen


def findings_of(record, seen, kind, part=False):
    for name, least in sorted(record.items()):
        if name not in seen and part:
            continue
        if name not in seen:
            yield f"{name} did not run; its {kind} bound is {least[KINDS[kind]]}"
        elif seen[name] < least[KINDS[kind]]:
            yield f"{name} ran {seen[name]}; its {kind} bound is {least[KINDS[kind]]}"
    for name in sorted(set(seen) - set(record)):
        yield f"{name} ran {seen[name]} and has no record in tests/bounds.txt"


def raised(record, seen, kind):
    """The text of a record that holds what was seen, and nothing lower than before. A
    new bound's other number is the one that was seen until that has run too."""
    numbers = {name: list(pair) for name, pair in record.items()}
    for name, number in seen.items():
        pair = numbers.setdefault(name, [number, number])
        pair[KINDS[kind]] = max(pair[KINDS[kind]], number)
    return HEADING + "".join(f"{name} = {quick} {full}\n"
                             for name, (quick, full) in sorted(numbers.items()))


def self_test():
    record = read_record("# all = 1 2\nseeds of a = 10 100\n\n")
    at = "bound: seeds of a = "
    cases = [("quick", at + "10\n", 0), ("quick", at + "11\n", 0),
             ("quick", at + "9\n", 1), ("full", at + "99\n", 1),
             ("full", at + "9\n" + at + "100\n", 0), ("quick", "", 1),
             ("quick", at + "10\nbound: others = 1\n", 1)]
    surprises = 0
    for kind, log, wanted in cases:
        found = list(findings_of(record, read_log(log), kind))
        if len(found) != wanted:
            surprises += 1
            print(f"{kind} {log!r} gave {found}")
    if list(findings_of(record, {}, "quick", part=True)):
        surprises += 1
        print("a part that leaves all out gave findings")
    text = raised(record, {"seeds of a": 9, "others": 2}, "quick")
    if read_record(text) != {"seeds of a": (10, 100), "others": (2, 2)}:
        surprises += 1
        print(f"raised to {text}")
    print(f"bounds: {len(cases)} canaries, {surprises} surprises")
    return 1 if surprises else 0


def main(arguments):
    if arguments == ["--self-test"]:
        return self_test()
    recording = arguments[2:] == ["--record"]
    part = arguments[2:] == ["--part"]
    if len(arguments) != 2 + recording + part or arguments[1] not in KINDS:
        print("usage: check_bounds.py LOG quick|full [--record|--part] | --self-test",
              file=sys.stderr)
        return 2
    top = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
    kept = os.path.join(top, "tests", "bounds.txt")
    with open(kept, encoding="utf-8") as file:
        record = read_record(file.read())
    with open(arguments[0], encoding="utf-8", errors="replace") as file:
        seen = read_log(file.read())
    if recording:
        with open(kept, "w", encoding="utf-8") as file:
            file.write(raised(record, seen, arguments[1]))
        return 0
    for name, number in sorted(seen.items()):
        print(f"bound: {name} = {number}")
    findings = list(findings_of(record, seen, arguments[1], part))
    for finding in findings:
        print(f"bounds: {finding}")
    return 1 if findings else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
