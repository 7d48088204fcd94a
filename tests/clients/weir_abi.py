"""weir_abi.py - libweir.so for ctypes: its structs and functions, and DLPack's structs.

    weir_abi.py OUT.c    writes a source that only compiles where C has every field of
                         them at the same place, in the same size; the build does that
"""
import ctypes
import sys
from ctypes import (POINTER, Structure, c_bool, c_char_p, c_int, c_int32,
                    c_int64, c_size_t, c_uint8, c_uint16, c_uint32, c_uint64, c_void_p)

VERSION = (1, 3)  # of DLPack: the newest that is understood

OK = 0
INVALID_ARGUMENT = 1
NOT_SUPPORTED = 2
OUT_OF_HOST_MEMORY = 3
OUT_OF_MEMORY = 4
LIMIT_REACHED = 5
NOT_FOUND = 9
FILE_ERROR = 11
NOT_OWNED = 12
PEER_GONE = 13
PAUSED = 14

READ, WRITE = 1, 2  # weir_access
DEVICE, MANAGED, PINNED, HOST = range(4)  # weir_memory_kind
THREADS, STEPPED = 0, 1  # weir_emulated_scheduler
NON_BLOCKING = 0  # weir_stream_kind

# DLDeviceType
CPU, CUDA, CUDA_HOST, EXT_DEV, CUDA_MANAGED = 1, 2, 3, 12, 13
READ_ONLY, IS_COPIED = 1, 2  # flags of a versioned tensor

TICKET_JSON_BYTES = 1026


# --- DLPack's structs ------------------------------------------------------------

class DLPackVersion(Structure):
    _fields_ = [("major", c_uint32), ("minor", c_uint32)]


class DLDevice(Structure):
    _fields_ = [("device_type", c_int32), ("device_id", c_int32)]


class DLDataType(Structure):
    _fields_ = [("code", c_uint8), ("bits", c_uint8), ("lanes", c_uint16)]


class DLTensor(Structure):
    _fields_ = [("data", c_void_p), ("device", DLDevice), ("ndim", c_int32),
                ("dtype", DLDataType), ("shape", POINTER(c_int64)),
                ("strides", POINTER(c_int64)), ("byte_offset", c_uint64)]


class DLManagedTensor(Structure):
    _fields_ = [("dl_tensor", DLTensor), ("manager_ctx", c_void_p),
                ("deleter", c_void_p)]


class DLManagedTensorVersioned(Structure):
    _fields_ = [("version", DLPackVersion), ("manager_ctx", c_void_p),
                ("deleter", c_void_p), ("flags", c_uint64), ("dl_tensor", DLTensor)]


# --- Weir's ----------------------------------------------------------------------

class weir_error(Structure):
    _fields_ = [("status", c_int), ("native_code", c_int32), ("message", c_char_p)]


class weir_emulated_options(Structure):
    _fields_ = [("struct_size", c_size_t), ("memory_bytes", c_size_t),
                ("scheduler", c_int), ("seed", c_uint64), ("choose", c_void_p),
                ("choose_context", c_void_p), ("no_ledger", c_bool),
                ("on_finding", c_void_p), ("finding_context", c_void_p),
                ("costs", c_void_p)]


class weir_device_options(Structure):
    _fields_ = [("struct_size", c_size_t), ("eager", c_bool),
                ("emulated", POINTER(weir_emulated_options))]


class weir_device_properties(Structure):
    _fields_ = [("struct_size", c_size_t), ("name", c_char_p),
                ("description", c_char_p), ("emulated", c_bool), ("ordinal", c_int32),
                ("uuid", c_uint8 * 16), ("memory_bytes", c_size_t), ("lost", c_bool),
                ("concurrent_managed", c_bool), ("pageable_access", c_bool)]


class weir_resource_statistics(Structure):
    _fields_ = [(name, c_size_t) for name in (
        "struct_size", "out_bytes", "out_blocks", "peak_out_bytes", "held_bytes",
        "peak_held_bytes", "free_bytes", "free_blocks", "largest_free_bytes",
        "kept_bytes", "set_aside_bytes")] + [
            ("allocations", c_uint64), ("deallocations", c_uint64),
            ("failures", c_uint64), ("leaked_bytes", c_size_t)]


class weir_buffer(Structure):
    _fields_ = [("data", c_void_p), ("size", c_size_t), ("capacity", c_size_t),
                ("stream", c_void_p), ("resource", c_void_p), ("storage", c_void_p),
                ("reserved", c_uint64 * 2)]


class weir_buffer_properties(Structure):
    _fields_ = [("struct_size", c_size_t), ("device", c_void_p), ("kind", c_int),
                ("owns", c_bool), ("is_alone", c_bool), ("read_only", c_bool)]


class weir_foreign(Structure):
    _fields_ = [("struct_size", c_size_t), ("ptr", c_void_p), ("bytes", c_size_t),
                ("kind", c_int), ("read_only", c_bool), ("ignores_stream", c_bool),
                ("deleter", c_void_p), ("context", c_void_p)]


class weir_dtype(Structure):
    _fields_ = [("code", c_uint8), ("bits", c_uint8), ("lanes", c_uint16)]


class weir_tensor(Structure):
    _fields_ = [("dtype", weir_dtype), ("ndim", c_int32), ("shape", POINTER(c_int64)),
                ("strides", POINTER(c_int64)), ("byte_offset", c_size_t)]


class weir_dlpack(Structure):
    _fields_ = [("legacy", POINTER(DLManagedTensor)),
                ("versioned", POINTER(DLManagedTensorVersioned))]


class weir_dlpack_place(Structure):
    _fields_ = [("type", c_int32), ("id", c_int32)]


class weir_dlpack_request(Structure):
    _fields_ = [("struct_size", c_size_t), ("max_version", POINTER(c_uint32)),
                ("stream", POINTER(c_int64)), ("device", POINTER(weir_dlpack_place)),
                ("copy", c_int), ("access", c_int), ("stream_outlives_tensor", c_bool),
                ("device_type", c_int32)]


class weir_dlpack_import_options(Structure):
    _fields_ = [("struct_size", c_size_t), ("contiguous", c_bool),
                ("alignment", c_size_t), ("device_type", c_int32)]


class weir_ticket(Structure):
    _fields_ = [("octets", c_uint8 * 256)]


class weir_ticket_info(Structure):
    _fields_ = [("struct_size", c_size_t), ("kind", c_int), ("is_detached", c_bool),
                ("access", c_int), ("device_uuid", c_uint8 * 16),
                ("base_bytes", c_uint64), ("offset", c_uint64), ("bytes", c_uint64),
                ("exporter", c_int32)]


class weir_export_options(Structure):
    _fields_ = [("struct_size", c_size_t), ("access", c_int),
                ("share_whole_base", c_bool), ("one_time", c_bool),
                ("detached", c_bool)]


class weir_open_options(Structure):
    _fields_ = [("struct_size", c_size_t), ("access", c_int), ("timeout_ms", c_uint32)]


class weir_ipc_statistics(Structure):
    _fields_ = [(name, c_size_t) for name in (
        "struct_size", "exports", "importers", "imports", "cached", "cached_bytes")] + [
            ("maps", c_uint64), ("refused", c_uint64)]


DLPACK_STRUCTS = [DLPackVersion, DLDevice, DLDataType, DLTensor, DLManagedTensor,
                  DLManagedTensorVersioned]
STRUCTS = [struct for name, struct in sorted(globals().items())
           if name.startswith("weir_") and isinstance(struct, type)]


def sized(struct, **fields):
    """One whose struct_size is set."""
    return struct(struct_size=ctypes.sizeof(struct), **fields)


# --- functions -------------------------------------------------------------------

_BUFFER, _TICKET = POINTER(weir_buffer), POINTER(weir_ticket)
# Those that answer a weir_status, which is looked at.
_CALLS = {
    "weir_device_open": [c_char_p, POINTER(weir_device_options), c_void_p],
    "weir_device_get_properties": [c_void_p, POINTER(weir_device_properties)],
    "weir_device_sync": [c_void_p],
    "weir_device_drain_sync": [c_void_p],
    "weir_resource_open": [c_void_p, c_char_p, c_void_p],
    "weir_resource_get_statistics": [c_void_p, POINTER(weir_resource_statistics)],
    "weir_stream_create": [c_void_p, c_int, c_void_p],
    "weir_stream_destroy": [c_void_p, c_void_p],
    "weir_stream_sync": [c_void_p, c_void_p],
    "weir_stream_wait": [c_void_p, c_void_p, c_void_p],
    "weir_copy": [c_void_p, c_void_p, c_void_p, c_void_p, c_size_t],
    "weir_copy_sync": [c_void_p, c_void_p, c_void_p, c_void_p, c_size_t],
    "weir_fill": [c_void_p, c_void_p, c_void_p, c_uint8, c_size_t],
    "weir_buffer_allocate": [c_void_p, c_void_p, c_size_t, c_size_t, _BUFFER],
    "weir_buffer_adopt": [c_void_p, c_void_p, POINTER(weir_foreign), _BUFFER],
    "weir_buffer_view": [c_void_p, c_size_t, c_void_p, _BUFFER],
    "weir_buffer_share": [_BUFFER, _BUFFER],
    "weir_buffer_copy": [_BUFFER, c_void_p, c_void_p, _BUFFER],
    "weir_buffer_use": [_BUFFER, c_void_p, c_int],
    "weir_buffer_set_stream": [_BUFFER, c_void_p],
    "weir_buffer_wait": [_BUFFER, c_void_p, c_int],
    "weir_buffer_wait_sync": [_BUFFER, c_int],
    "weir_buffer_get_properties": [_BUFFER, POINTER(weir_buffer_properties)],
    "weir_dlpack_export": [_BUFFER, POINTER(weir_tensor), POINTER(weir_dlpack_request),
                           POINTER(weir_dlpack)],
    "weir_dlpack_import": [c_void_p, c_void_p, weir_dlpack,
                           POINTER(weir_dlpack_import_options), _BUFFER,
                           POINTER(weir_tensor)],
    "weir_dlpack_device": [_BUFFER, POINTER(weir_dlpack_place)],
    "weir_buffer_slice": [_BUFFER, c_size_t, c_size_t, _BUFFER],
    "weir_ticket_get_info": [_TICKET, POINTER(weir_ticket_info)],
    "weir_ticket_to_json": [_TICKET, c_char_p, c_size_t, POINTER(c_size_t)],
    "weir_ticket_from_json": [c_char_p, c_size_t, _TICKET],
    "weir_ipc_export": [_BUFFER, POINTER(weir_export_options), _TICKET],
    "weir_ipc_revoke": [_TICKET],
    "weir_ipc_open": [c_void_p, c_void_p, _TICKET, POINTER(weir_open_options), _BUFFER],
    "weir_ipc_close": [_BUFFER, c_void_p],
    "weir_ipc_check": [_BUFFER],
    "weir_ipc_get_statistics": [POINTER(weir_ipc_statistics)],
    "weir_ipc_trim_sync": [],
    "weir_set_current_resource": [c_void_p, c_void_p, c_void_p],
}
# The others: what they answer, and their arguments.
_OTHERS = {
    "weir_last_error": (weir_error, []),
    "weir_emulated_findings": (c_size_t, [c_void_p]),
    "weir_device_unref": (None, [c_void_p]),
    "weir_resource_unref": (None, [c_void_p]),
    "weir_buffer_reset": (None, [_BUFFER]),
    "weir_dlpack_delete": (None, [weir_dlpack]),
}


def load(path, on_failure):
    """libweir.so; `on_failure(status, sentence, name)` makes an exception of what a
    call answers besides OK."""
    lib = ctypes.CDLL(path)

    def look(status, function, _arguments):
        if status != OK:
            words = lib.weir_last_error().message.decode()
            raise on_failure(status, words, function.__name__)
        return status

    for name, arguments in _CALLS.items():
        function = getattr(lib, name)
        function.argtypes, function.restype = arguments, c_int
        function.errcheck = look
    for name, (answer, arguments) in _OTHERS.items():
        function = getattr(lib, name)
        function.argtypes, function.restype = arguments, answer
    return lib


def load_helper(path, lib):
    """What capsule.c makes, told which library it works for. It calls Python, and so
    keeps the interpreter's lock."""
    helper = ctypes.PyDLL(path)
    helper.client_begin.restype = c_bool
    helper.client_begin.argtypes = [c_void_p]
    helper.client_capsule_new.restype = ctypes.py_object
    helper.client_capsule_new.argtypes = [weir_dlpack]
    helper.client_capsule_look.restype = c_bool
    helper.client_capsule_look.argtypes = [ctypes.py_object, POINTER(weir_dlpack)]
    helper.client_capsule_set_used.restype = c_bool
    helper.client_capsule_set_used.argtypes = [ctypes.py_object]
    helper.client_keep.restype = None
    helper.client_keep.argtypes = [ctypes.py_object]
    if not helper.client_begin(ctypes.cast(lib.weir_dlpack_delete, c_void_p)):
        raise ImportError(f"{path} does not find Python in this process")
    return helper


# --- the same in C ---------------------------------------------------------------

def asserts_of(struct):
    name = struct.__name__
    yield f"_Static_assert(sizeof({name}) == {ctypes.sizeof(struct)}, \"{name}\");"
    for field, _ in struct._fields_:
        place = getattr(struct, field)
        yield (f"_Static_assert(offsetof({name}, {field}) == {place.offset} && "
               f"sizeof((({name} *)0)->{field}) == {place.size}, \"{name}.{field}\");")


def source():
    """The text of OUT.c, which takes DLPack's own header where CLIENT_DLPACK is set."""
    lines = ["#include <stddef.h>", "#include \"weir/buffer.h\"",
             "#include \"weir/dlpack.h\"", "#include \"weir/emulated.h\"",
             "#include \"weir/ipc.h\"", "#include \"weir/resource.h\""]
    for struct in STRUCTS:
        lines += asserts_of(struct)
    lines += ["#ifdef CLIENT_DLPACK", "#include <dlpack/dlpack.h>"]
    for struct in DLPACK_STRUCTS:
        lines += asserts_of(struct)
    return "\n".join(lines + ["#endif", ""])


if __name__ == "__main__":
    with open(sys.argv[1], "w", encoding="utf-8") as file:
        file.write(source())
