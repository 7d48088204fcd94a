"""The README's first program compiles without a warning and prints what it promises."""
import os
import re
import subprocess
import sys
import tempfile

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
LIBRARY = os.environ.get("WEIR_LIBRARY")
SKIPPED = 77


def program_and_promise():
    """The one C block of the README that is a program, and the line that it promises;
    the others are parts of one."""
    with open(os.path.join(ROOT, "README.md"), encoding="utf-8") as file:
        text = file.read()
    blocks = re.findall(r"^```c\n(.*?)^```$", text, re.MULTILINE | re.DOTALL)
    programs = [block for block in blocks if "int main(" in block]
    promises = re.findall(r"^It prints `([^`]+)`", text, re.MULTILINE)
    assert len(programs) == 1 and len(promises) == 1, (len(programs), promises)
    return programs[0], promises[0]


def run_program(program, folder):
    """Compiles and runs `program`; returns what it printed."""
    source = os.path.join(folder, "first.c")
    binary = os.path.join(folder, "first")
    with open(source, "w", encoding="utf-8") as file:
        file.write(program)
    place = os.path.dirname(LIBRARY)
    subprocess.run(
        ["cc", "-std=c11", "-Wall", "-Wextra", "-Wpedantic", "-Werror",
         "-I", os.path.join(ROOT, "include"), source, LIBRARY,
         "-Wl,-rpath," + place, "-o", binary], check=True)
    run = subprocess.run([binary], check=True, capture_output=True, text=True)
    return run.stdout.strip()


def main():
    """Runs the program as it stands, and without its wait, which must be found."""
    if LIBRARY is None:
        print("skipped: the library is built with a sanitizer")
        return SKIPPED
    program, promise = program_and_promise()
    wait = "TRY(weir_stream_wait(device, second, first));"
    assert program.count(wait) == 1
    with tempfile.TemporaryDirectory() as folder:
        printed = run_program(program, folder)
        assert printed == promise, printed
        unordered = run_program(program.replace(wait, ""), folder)
        assert not unordered.endswith("findings 0"), unordered
    print("the first program printed:", promise)
    print("and without its wait:", unordered)
    return 0


if __name__ == "__main__":
    sys.exit(main())
