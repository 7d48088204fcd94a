#!/usr/bin/python3
"""test_dlpack_headers.py - our declarations of DLPack's ABI against DLPack's own, of
every version at hand: Debian's 0.6 and, where a wheel brings it, 1.3; and weir/dlpack.h
before, after and without each of these, in C and in C++.

Without any of them that part is left out and said; with WEIR_CI set it fails.
"""
import glob
import os
import re
import subprocess
import sys
import tempfile
import unittest

TOP = os.path.dirname(os.path.dirname(os.path.realpath(__file__)))
CC = os.environ.get("CC", "cc")
CXX = os.environ.get("CXX", "c++")
WARNINGS = ["-Wall", "-Wextra", "-Wpedantic", "-Werror", "-fsyntax-only"]
DEBIAN = "/usr/include"
# What Apache TVM FFI brings, where other libraries are installed for the tests.
WHEEL = os.path.join(TOP, "build", "peers", "lib", "python3*", "site-packages",
                     "tvm_ffi", "include")

FIELDS = {
    "DLDevice": ("weir__dl_device", "device_type device_id"),
    "DLDataType": ("weir__dl_dtype", "code bits lanes"),
    "DLTensor": ("weir__dl_tensor",
                 "data device ndim dtype shape strides byte_offset"),
    "DLManagedTensor": ("weir__dl_managed", "dl_tensor manager_ctx deleter"),
}
VERSIONED = {
    "DLPackVersion": ("weir__dl_version", "major minor"),
    "struct DLManagedTensorVersioned": ("weir__dl_versioned",
                                        "version manager_ctx deleter flags dl_tensor"),
}
CODES = {"kDLOpaqueHandle": "WEIR__DL_OPAQUE"}
BOOLS = {"kDLBool": "WEIR__DL_BOOL"}
SMALL_CODES = {"kDLFloat8_e3m4": "WEIR__DL_FLOAT8_FIRST",
               "kDLFloat8_e8m0fnu": "WEIR__DL_FLOAT8_LAST",
               "kDLFloat6_e2m3fn": "WEIR__DL_FLOAT6_FIRST",
               "kDLFloat6_e3m2fn": "WEIR__DL_FLOAT6_LAST",
               "kDLFloat4_e2m1fn": "WEIR__DL_FLOAT4"}
MACROS = {"DLPACK_FLAG_BITMASK_READ_ONLY": "WEIR__DL_READ_ONLY",
          "DLPACK_FLAG_BITMASK_IS_COPIED": "WEIR__DL_IS_COPIED",
          "DLPACK_FLAG_BITMASK_IS_SUBBYTE_TYPE_PADDED": "WEIR__DL_SUBBYTE_PADDED"}


def version_of(folder):
    """(major, minor) of the dlpack/dlpack.h in a folder, or None."""
    try:
        with open(os.path.join(folder, "dlpack", "dlpack.h"), encoding="utf-8") as file:
            text = file.read()
    except OSError:
        return None
    numbers = dict(re.findall(r"#define DLPACK_(M\w+)_VERSION +(\d+)", text))
    if numbers:
        return int(numbers["MAJOR"]), int(numbers["MINOR"])
    old = re.search(r"#define DLPACK_VERSION +(\d+)", text)
    return divmod(int(old.group(1)), 100) if old else None


def headers():
    """The folder of each version that is there."""
    found = {}
    for folder in [DEBIAN, *sorted(glob.glob(WHEEL))]:
        version = version_of(folder)
        if version:
            found.setdefault(version, folder)
    return found


def compile_text(text, *arguments, compiler=CC, suffix=".c"):
    """What the compiler says; empty if it has nothing to say."""
    with tempfile.NamedTemporaryFile("w", suffix=suffix) as file:
        file.write(text)
        file.flush()
        done = subprocess.run([*compiler.split(), *WARNINGS, *arguments, file.name],
                              capture_output=True, text=True, check=False)
    if done.returncode != 0:
        return done.stderr or "it failed"
    return done.stderr


def claims(version):
    """Static asserts that our declarations are those of this version."""
    structs = dict(FIELDS, **(VERSIONED if version >= (1, 0) else {}))
    for theirs, (ours, fields) in structs.items():
        yield f"sizeof({theirs}) == sizeof({ours})"
        yield f"_Alignof({theirs}) == _Alignof({ours})"
        for field in fields.split():
            yield f"offsetof({theirs}, {field}) == offsetof({ours}, {field})"
            yield (f"sizeof((({theirs} *)0)->{field})"
                   f" == sizeof((({ours} *)0)->{field})")
    names = dict(CODES, **(BOOLS if version >= (0, 80) else {}))
    if version >= (1, 1):
        names.update(BOOLS, **SMALL_CODES, **MACROS)
    for theirs, ours in names.items():
        yield f"(unsigned long long){theirs} == (unsigned long long){ours}"
    if version >= (1, 3):
        yield "DLPACK_MAJOR_VERSION == WEIR__DL_MAJOR"
        yield "DLPACK_MINOR_VERSION >= WEIR__DL_MINOR"


def text_of(version, extra=()):
    lines = ["#include <dlpack/dlpack.h>", '#include "dlpack_abi.h"']
    lines += [f'static_assert({claim}, "");' for claim in [*claims(version), *extra]]
    return "\n".join(lines) + "\n"


OURS = "#include <weir/dlpack.h>\n"
THEIRS = "#include <dlpack/dlpack.h>\n"
USE = """
extern DLManagedTensor *old;
DLManagedTensor *old;
int use(weir_buffer *buffer, weir_tensor *tensor);
int use(weir_buffer *buffer, weir_tensor *tensor)
{
    weir_dlpack out;
    if (weir_dlpack_export(buffer, tensor, NULL, &out) != WEIR_OK)
        return 1;
    old = out.legacy;
    return old->dl_tensor.ndim != tensor->ndim || weir_dlpack_done(old, NULL);
}
"""
USE_NEW = """
extern DLPackManagedTensorAllocator allocator;
DLPackManagedTensorAllocator allocator =
    (DLPackManagedTensorAllocator)(void (*)(void))weir_dlpack_allocate;
extern struct DLManagedTensorVersioned *newer;
struct DLManagedTensorVersioned *newer;
int use_new(weir_dlpack *out);
int use_new(weir_dlpack *out)
{
    newer = out->versioned;
    return weir_dlpack_done_versioned(newer, NULL) != WEIR_OK;
}
"""
LANGUAGES = ((CC, ".c", "-std=c11"), (CXX, ".cc", "-std=c++17"))


class Headers(unittest.TestCase):
    def each(self, wanted):
        """Folder and version of each header with `wanted` as its major version."""
        found = [(version, folder) for version, folder in headers().items()
                 if version[0] == wanted]
        if not found:
            words = f"no dlpack/dlpack.h of version {wanted}.x"
            self.assertNotIn("WEIR_CI", os.environ, words)
            self.skipTest(words)
        return found

    def abi_is_theirs(self, wanted):
        for version, folder in self.each(wanted):
            includes = ["-std=c11", "-isystem", folder, "-I", os.path.join(TOP, "src")]
            text = text_of(version)
            self.assertGreater(text.count("static_assert"), 35)
            self.assertEqual(compile_text(text, *includes), "", version)
            wrong = text_of(version, ["sizeof(DLTensor) == 56"])
            self.assertIn("assert", compile_text(wrong, *includes))

    def stands_beside_theirs(self, wanted):
        for version, folder in self.each(wanted):
            use = USE + (USE_NEW if version >= (1, 3) else "")
            for includes in (OURS + THEIRS, THEIRS + OURS, OURS + THEIRS + OURS):
                self.compiles(includes + use, "-isystem", folder)

    def compiles(self, text, *arguments):
        for compiler, suffix, standard in LANGUAGES:
            words = compile_text(text, standard, "-I", os.path.join(TOP, "include"),
                                 *arguments, compiler=compiler, suffix=suffix)
            self.assertEqual(words, "", (compiler, arguments, text))

    def test_our_abi_is_that_of_0(self):
        self.abi_is_theirs(0)

    def test_our_abi_is_that_of_1(self):
        self.abi_is_theirs(1)

    def test_our_header_stands_beside_that_of_0(self):
        self.stands_beside_theirs(0)

    def test_our_header_stands_beside_that_of_1(self):
        self.stands_beside_theirs(1)

    def test_our_header_stands_alone(self):
        self.compiles(OURS + "extern weir_dlpack_request it;\n"
                      "weir_dlpack_request it = WEIR_DLPACK_REQUEST_INIT;\n"
                      "extern weir_dlpack_import_options other;\n"
                      "weir_dlpack_import_options other = WEIR_DLPACK_IMPORT_INIT;\n")


if __name__ == "__main__":
    sys.exit(unittest.main())
