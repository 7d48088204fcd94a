#!/usr/bin/python3
"""make_fakes - what the stand-in takes from CUDA's headers as they are installed.

    make_fakes.py INCLUDE_FOLDER OUT_FOLDER SOURCE...

Writes OUT_FOLDER/fakes_errors.h, the names of all errors, and fakes_missing.c: each
function that cuda_runtime_api.h declares and no SOURCE defines stops the program with
its name.
"""
import os
import re
import sys

DECLARED = re.compile(r"CUDARTAPI\s+(cuda\w+)\s*\(")
DEFINED = re.compile(r"^(?:cudaError_t|const char \*)\s*(cuda\w+)\(", re.MULTILINE)
ERROR = re.compile(r"^\s*(cuda(?:Success|Error\w+))\s*=", re.MULTILINE)


def read(path):
    """The text of a file, headers in whatever encoding."""
    with open(path, encoding="utf-8", errors="replace") as file:
        return file.read()


def write(path, text):
    """Only where it differs, so that nothing is compiled again."""
    if not os.path.exists(path) or read(path) != text:
        with open(path, "w", encoding="utf-8") as file:
            file.write(text)


def main(include, out, sources):
    """Writes both files."""
    types = read(os.path.join(include, "driver_types.h"))
    enum = re.search(r"enum [^{;]*\bcudaError\s*\{(.*?)\};", types, re.DOTALL).group(1)
    errors = sorted(set(ERROR.findall(enum)))
    declared = set(DECLARED.findall(read(os.path.join(include, "cuda_runtime_api.h"))))
    defined = set(name for source in sources for name in DEFINED.findall(read(source)))
    # A macro may have made cudaX into cudaX_v2.
    declared = set(name for name in declared
                   if re.sub(r"_v\d$", "", name) not in defined)
    if not errors or not declared:
        sys.exit("make_fakes: these headers are not as expected")
    stub = "void {0}(void);\nvoid {0}(void)\n{{\n    fakes_not_provided(\"{0}\");\n}}\n"
    missing = "".join(stub.format(name) for name in sorted(declared))
    write(os.path.join(out, "fakes_errors.h"),
          "".join(f"X({name})\n" for name in errors))
    write(os.path.join(out, "fakes_missing.c"),
          "_Noreturn void fakes_not_provided(const char *name);\n" + missing)


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], sys.argv[3:])
