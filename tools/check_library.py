#!/usr/bin/env python3
"""check_library.py - looks at libweir.so from outside: exports, needs, flags.

    tools/check_library.py LIBRARY      prints each finding; status 1 if there is any
    tools/check_library.py --module FILE  the same for libweir_cuda.so
    tools/check_library.py --self-test  the canary: each finding is made when it should

Held here: only weir_ names are exported, and all of the public headers' functions are;
the thread-local block is small enough for the room that the dynamic linker keeps for
libraries which a running process opens; the library stays once it is loaded; and it
needs nothing but the system's C library.
"""
import os
import re
import subprocess
import sys

TLS_BYTES_MAX = 64
OTHERS = {"jemalloc.h"}  # headers of libraries of their own
NEEDED = {"libc.so.6", "libm.so.6", "libpthread.so.0", "libdl.so.2",
          "ld-linux-x86-64.so.2", "ld-linux-aarch64.so.1"}


def output_of(*command):
    environment = dict(os.environ, LC_ALL="C")
    return subprocess.run(command, stdout=subprocess.PIPE, check=True, text=True,
                          env=environment).stdout


def symbol_findings(nm_output, declared):
    """`nm -D --defined-only`; an absolute symbol is the name of a version."""
    exported = set()
    for line in nm_output.splitlines():
        kind, name = line.split()[-2:]
        name = name.split("@")[0]
        if kind != "A":
            exported.add(name)
    if not exported:
        yield "exports nothing"
    for name in sorted(exported):
        if not re.match(r"weir_[a-z]", name):
            yield f"exports {name}, which does not begin with weir_"
    for name in sorted(declared - exported):
        yield f"does not export {name}, which a public header declares"
    for name in sorted(exported - declared):
        if name.startswith("weir_"):
            yield f"exports {name}, which no public header declares"


def segment_findings(readelf_output):
    """`readelf -lW`: the TLS segment's size and alignment."""
    for line in readelf_output.splitlines():
        words = line.split()
        if words and words[0] == "TLS":
            size, alignment = int(words[5], 16), int(words[-1], 16)
            if size > TLS_BYTES_MAX:
                yield f"{size} thread-local bytes; {TLS_BYTES_MAX} is the most"
            if alignment > TLS_BYTES_MAX:
                yield f"thread-local memory aligned to {alignment} bytes"


def dynamic_findings(readelf_output, has_tls):
    """`readelf -dW`: flags and needed libraries."""
    flags = " ".join(re.findall(r"\(FLAGS(?:_1)?\)\s+(.*)", readelf_output))
    if "NODELETE" not in flags:
        yield "can be unloaded: not linked with -z nodelete"
    if has_tls and "STATIC_TLS" not in flags:
        yield "its thread-local memory is not initial-exec"
    for name in re.findall(r"\(NEEDED\)\s+Shared library: \[(.*?)\]", readelf_output):
        if name not in NEEDED:
            yield f"needs {name}"
    if re.search(r"\((?:RPATH|RUNPATH)\)", readelf_output):
        yield "has a path to search libraries in"
    if "(TEXTREL)" in readelf_output:
        yield "has relocations in its code"


def relocation_findings(readelf_output):
    """`readelf -rW`: calls of __tls_get_addr and descriptors mean another model."""
    for line in readelf_output.splitlines():
        if re.search(r"R_\w+_(DTPMOD|DTPOFF|TLSDESC)", line):
            yield f"thread-local access that is not initial-exec: {line.strip()}"


def declared_functions(folder):
    """The names that its headers declare with WEIR_API; comments left out."""
    declared = set()
    for name in set(os.listdir(folder)) - OTHERS:
        with open(os.path.join(folder, name), encoding="utf-8") as file:
            text = re.sub(r"/\*.*?\*/", " ", file.read(), flags=re.DOTALL)
        text = re.sub(r"^\s*#\s*define(?:.*\\\n)*.*", "", text, flags=re.MULTILINE)
        for declaration in re.findall(r"\bWEIR_API\b([^;{]*);", text):
            found = re.search(r"\b(weir_\w+)\s*\(", declaration)
            if found:
                declared.add(found.group(1))
    return declared


def findings_of(library, headers):
    segments = output_of("readelf", "-lW", library)
    yield from symbol_findings(output_of("nm", "-D", "--defined-only", library),
                               declared_functions(headers))
    yield from segment_findings(segments)
    yield from dynamic_findings(output_of("readelf", "-dW", library),
                                has_tls=" TLS " in segments)
    yield from relocation_findings(output_of("readelf", "-rW", library))


def module_findings(nm_output, readelf_output):
    """It exports its entry alone; like the library it stays, and needs nothing else."""
    names = [line.split()[-1] for line in nm_output.splitlines()]
    if names != ["weir__cuda_module"]:
        yield f"exports {names}, not weir__cuda_module alone"
    yield from dynamic_findings(readelf_output, has_tls=False)


def findings_of_module(module):
    yield from module_findings(output_of("nm", "-D", "--defined-only", module),
                               output_of("readelf", "-dW", module))


# What the tools print for a library that is as it should be; and for each finding, what
# a broken one has instead.
NM = "0000 A WEIR_0\n0010 T weir_open@@WEIR_0\n"
SEGMENTS = "  TLS            0x1 0x2 0x2 0x000000 0x000028 R   0x8\n"
DYNAMIC = (" 0x1 (NEEDED)  Shared library: [libc.so.6]\n 0x2 (FLAGS)  STATIC_TLS\n"
           " 0x3 (FLAGS_1)  Flags: NODELETE\n")
RELOCATION = "0010  0003 R_X86_64_TPOFF64  0\n"
BROKEN_SYMBOLS = [NM + "0020 T weir__hidden\n", NM + "0020 T helper\n", "",
                  "0020 T weir_other\n0010 T weir_open\n", "0020 T weir_openly\n"]
BROKEN_SEGMENTS = [SEGMENTS.replace("0x000028", "0x000048"),
                   SEGMENTS.replace("0x8\n", "0x1000\n")]
BROKEN_DYNAMIC = [DYNAMIC.replace("NODELETE", "NOW"), DYNAMIC.replace("STATIC_TLS", ""),
                  DYNAMIC.replace("libc.so.6", "libz.so.1"),
                  DYNAMIC + " 0x4 (RUNPATH)  Library runpath: [/x]\n",
                  DYNAMIC + " 0x4 (TEXTREL)  0x0\n"]
MODULE_NM = "0010 T weir__cuda_module\n"
BROKEN_MODULE_NM = ["", MODULE_NM + "0020 T cudaMalloc\n"]
BROKEN_RELOCATIONS = [RELOCATION.replace("TPOFF64", "DTPMOD64"),
                      RELOCATION.replace("TPOFF64", "TLSDESC")]


def self_test():
    def in_dynamic(text):
        return dynamic_findings(text, has_tls=True)

    def in_symbols(text):
        return symbol_findings(text, {"weir_open"})

    def in_module(text):
        return module_findings(text, DYNAMIC)

    surprises = 0
    for finder, good, broken in ((in_symbols, NM, BROKEN_SYMBOLS),
                                 (segment_findings, SEGMENTS, BROKEN_SEGMENTS),
                                 (in_dynamic, DYNAMIC, BROKEN_DYNAMIC),
                                 (in_module, MODULE_NM, BROKEN_MODULE_NM),
                                 (relocation_findings, RELOCATION, BROKEN_RELOCATIONS)):
        for text, wanted in [(good, False)] + [(text, True) for text in broken]:
            if bool(list(finder(text))) != wanted:
                surprises += 1
                print(f"{finder.__name__}: {'missed' if wanted else 'wrong'}: {text!r}")
    print(f"library: {surprises} surprises")
    return 1 if surprises else 0


def main(arguments):
    if arguments == ["--self-test"]:
        return self_test()
    of_module = arguments[:1] == ["--module"]
    if len(arguments) != 1 + of_module:
        print("usage: check_library.py [--module] LIBRARY | --self-test",
              file=sys.stderr)
        return 2
    here = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
    if of_module:
        findings = list(findings_of_module(arguments[1]))
    else:
        findings = list(findings_of(arguments[0],
                                    os.path.join(here, "include", "weir")))
    for finding in findings:
        print(f"{os.path.basename(arguments[-1])}: {finding}")
    print(f"library: {len(findings)} findings")
    return 1 if findings else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
