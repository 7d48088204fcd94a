#!/usr/bin/env python3
"""client.py - a Python process loads libweir.so with ctypes and uses it.

    WEIR_LIBRARY=.../libweir.so client.py ctypes | ctypes_after_libgomp

Loaded so late, the library lives on what room for thread-local memory the process has
left; libgomp takes some of it first. Status 77 where there is no library to load.
"""
import ctypes
import os
import sys

NON_BLOCKING = 0
BYTES = 1 << 20
ALIGNMENT = 256
OUT_OF_MEMORY = 4


class Error(ctypes.Structure):
    _fields_ = [("status", ctypes.c_int), ("native_code", ctypes.c_int32),
                ("message", ctypes.c_char_p)]


def load(path):
    lib = ctypes.CDLL(path)
    pointer, size = ctypes.c_void_p, ctypes.c_size_t
    lib.weir_version_string.restype = ctypes.c_char_p
    lib.weir_last_error.restype = Error
    lib.weir_emulated_findings.restype = size
    lib.weir_deallocate.restype = ctypes.c_bool
    arguments = {
        "weir_device_open": [ctypes.c_char_p, pointer, pointer],
        "weir_device_memory": [pointer, pointer, pointer],
        "weir_device_resource_create": [pointer, pointer],
        "weir_pool_create": [pointer, pointer, pointer],
        "weir_stream_create": [pointer, ctypes.c_int, pointer],
        "weir_stream_destroy": [pointer, pointer],
        "weir_fill": [pointer, pointer, pointer, ctypes.c_uint8, size],
        "weir_copy_sync": [pointer, pointer, pointer, pointer, size],
        "weir_allocate": [pointer, pointer, size, size, pointer],
        "weir_deallocate": [pointer, pointer, pointer, size, size],
        "weir_emulated_findings": [pointer],
        "weir_resource_unref": [pointer],
        "weir_device_unref": [pointer],
    }
    for name, types in arguments.items():
        getattr(lib, name).argtypes = types
    return lib


class Weir:
    """The calls, with a failure raised and the last argument returned."""

    def __init__(self, lib):
        self.lib = lib

    def get(self, name, *arguments):
        out = ctypes.c_void_p()
        self.must(name, *arguments, ctypes.byref(out))
        return out.value

    def must(self, name, *arguments):
        status = getattr(self.lib, name)(*arguments)
        if status != 0:
            words = self.lib.weir_last_error().message.decode()
            raise RuntimeError(f"{name}: status {status}: {words}")


def use(weir):
    device = weir.get("weir_device_open", b"emulated", None)
    free_bytes, total_bytes = ctypes.c_size_t(), ctypes.c_size_t()
    weir.must("weir_device_memory", device, ctypes.byref(free_bytes),
              ctypes.byref(total_bytes))
    assert 0 < free_bytes.value <= total_bytes.value

    leaf = weir.get("weir_device_resource_create", device)
    pool = weir.get("weir_pool_create", leaf, None)
    weir.lib.weir_resource_unref(leaf)

    stream = weir.get("weir_stream_create", device, NON_BLOCKING)
    block = weir.get("weir_allocate", pool, stream, BYTES, ALIGNMENT)
    assert block and block % ALIGNMENT == 0
    weir.must("weir_fill", device, stream, block, 0xA5, BYTES)
    seen = ctypes.create_string_buffer(BYTES)
    weir.must("weir_copy_sync", device, stream, seen, block, BYTES)
    assert seen.raw == b"\xA5" * BYTES, "not the bytes that were written"

    out = ctypes.c_void_p(1)
    status = weir.lib.weir_allocate(pool, stream, 2 * total_bytes.value, ALIGNMENT,
                                    ctypes.byref(out))
    assert status == OUT_OF_MEMORY and not out.value, (status, out.value)
    assert weir.lib.weir_last_error().message

    assert weir.lib.weir_deallocate(pool, stream, block, BYTES, ALIGNMENT)
    weir.must("weir_stream_destroy", device, stream)
    assert weir.lib.weir_emulated_findings(device) == 0
    weir.lib.weir_resource_unref(pool)
    weir.lib.weir_device_unref(device)


def main(case):
    if "WEIR_LIBRARY" not in os.environ:
        print("skipped: WEIR_LIBRARY does not say which library to load")
        return 77
    if case == "ctypes_after_libgomp":
        ctypes.CDLL("libgomp.so.1", mode=ctypes.RTLD_GLOBAL)
    elif case != "ctypes":
        print(__doc__, file=sys.stderr)
        return 2
    weir = Weir(load(os.environ["WEIR_LIBRARY"]))
    use(weir)
    print(f"{case}: weir {weir.lib.weir_version_string().decode()}")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1] if len(sys.argv) > 1 else ""))
