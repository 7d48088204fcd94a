"""weir.py - Weir for Python, over ctypes: buffers that other libraries take as arrays
without a copy, and that are made of theirs.

    WEIR_LIBRARY=.../libweir.so [WEIR_CLIENT=.../libweir_client.so]

    device = weir.Device("cuda:0")
    with weir.Buffer(device.resource("pool/managed"), (3, 4), "float32") as buffer:
        array = numpy.from_dlpack(buffer)
    with weir.from_dlpack(array, device) as buffer: ...

    ticket = buffer.export()  # of one from device.resource("shareable")
    with weir.Buffer.open(device, ticket, "float32") as buffer: ...  # another process

Who keeps whom alive: a buffer its bytes, and so does each of its exports, memoryviews
and views by itself. A stream that is given to a buffer outlives it. Failures are
exceptions: see weir_library.py; the sentence is the library's. Tickets are those of
weir_ticket.py.
"""
import ctypes
import math
import operator
import sys
from ctypes import byref, c_int64, c_uint32, c_void_p

import weir_abi as abi
from weir_library import helper as _helper
from weir_library import lib
from weir_ticket import Ticket

# DLPack's code and bits, and what NumPy and struct call it.
DTYPES = {
    "int8": (0, 8, "|i1", "b"), "int16": (0, 16, "<i2", "h"),
    "int32": (0, 32, "<i4", "i"), "int64": (0, 64, "<i8", "q"),
    "uint8": (1, 8, "|u1", "B"), "uint16": (1, 16, "<u2", "H"),
    "uint32": (1, 32, "<u4", "I"), "uint64": (1, 64, "<u8", "Q"),
    "float16": (2, 16, "<f2", "e"), "float32": (2, 32, "<f4", "f"),
    "float64": (2, 64, "<f8", "d"), "bfloat16": (4, 16, None, None),
    "complex64": (5, 64, "<c8", None), "complex128": (5, 128, "<c16", None),
    "bool": (6, 8, "|b1", "?"),
}
NAMES = {(code, bits): name for name, (code, bits, _, _) in DTYPES.items()}
KINDS = {abi.CPU: abi.HOST, abi.CUDA_HOST: abi.PINNED, abi.CUDA_MANAGED: abi.MANAGED}
# Where a consumer has no stream to be made ready: its memory is the host's, or managed.
WITHOUT_STREAM = (abi.CPU, abi.CUDA_HOST, abi.CUDA_MANAGED)


def _out(function, *arguments):
    """What a function writes to its last argument, a handle."""
    out = c_void_p()
    function(*arguments, byref(out))
    return out.value


def strides_of(shape):
    """Of an array that lies row by row, in elements."""
    strides, step = [], 1
    for extent in reversed(shape):
        strides.insert(0, step)
        step *= max(extent, 1)
    return tuple(strides)


class _Closing:
    """What has an end, which comes once, and the moment it is dropped at the latest."""

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()

    def __del__(self):
        if not sys.is_finalizing():
            self.close()


class Device(_Closing):
    """One reference to a device. `scheduler` and `seed` are an emulated one's."""

    def __init__(self, name="auto", scheduler=abi.THREADS, seed=1):
        self.handle = None
        emulated = abi.sized(abi.weir_emulated_options, scheduler=scheduler, seed=seed)
        options = abi.sized(abi.weir_device_options, emulated=ctypes.pointer(emulated))
        self.handle = _out(lib.weir_device_open, name.encode(),
                           options if name.startswith("emulated") else None)
        seen = abi.sized(abi.weir_device_properties)
        lib.weir_device_get_properties(self.handle, seen)
        self.is_emulated, self.ordinal = seen.emulated, seen.ordinal
        self.reaches_ordinary = bool(seen.pageable_access)

    def resource(self, spec):
        return Resource(self, spec)

    def stream(self):
        return Stream(self)

    def sync(self):
        lib.weir_device_sync(self.handle)

    def drain(self):
        """Gives back what waits for uses to be done."""
        lib.weir_device_drain_sync(self.handle)

    def findings(self):
        """What the ledger of an emulated device has found so far."""
        return lib.weir_emulated_findings(self.handle) if self.is_emulated else 0

    def close(self):
        if self.handle is not None:
            lib.weir_device_unref(self.handle)
        self.handle = None


class Stream(_Closing):
    """A stream of a device's, as an integer in `handle`. It is closed after the last
    buffer that it is of."""

    def __init__(self, device):
        self.handle, self._device = None, device
        self.handle = _out(lib.weir_stream_create, device.handle, abi.NON_BLOCKING)

    def sync(self):
        lib.weir_stream_sync(self._device.handle, self.handle)

    def close(self):
        if self.handle is not None and self._device.handle is not None:
            lib.weir_stream_destroy(self._device.handle, self.handle)
        self.handle = None


class ForeignStream:
    """One that is another library's, and unknown to Weir."""

    def __init__(self, handle):
        self.handle = handle


class Resource(_Closing):
    """One reference to a resource, opened by its spec."""

    def __init__(self, device, spec):
        self.handle, self.device = None, device
        self.handle = _out(lib.weir_resource_open, device.handle, spec.encode())

    def blocks_out(self):
        """How many blocks are out; for resources that keep statistics."""
        seen = abi.sized(abi.weir_resource_statistics)
        lib.weir_resource_get_statistics(self.handle, seen)
        return seen.out_blocks

    def close(self):
        if self.handle is not None:
            lib.weir_resource_unref(self.handle)
        self.handle = None


def _handle(stream):
    return None if stream is None else stream.handle


class Buffer(_Closing):
    """Bytes of a device or of the host, seen as an array. `stream` is a Stream, or None
    for the device's legacy default stream; strides count elements."""

    def __init__(self, resource, shape, dtype="uint8", stream=None):
        self._begin(resource.device, stream)
        code, bits, _, _ = DTYPES[dtype]
        self.shape, self.strides = tuple(shape), strides_of(shape)
        self._set_tensor(code, bits)
        lib.weir_buffer_allocate(resource.handle, _handle(stream), self.nbytes, 256,
                                 self._buffer)

    _is_open = False

    def _begin(self, device, stream):
        self._buffer, self._tensor = abi.weir_buffer(), abi.weir_tensor()
        self._device, self._stream, self._is_open = device, stream, True
        self._is_read_only = self.is_copied = False

    def _set_tensor(self, code, bits, offset_bytes=0):
        """Of self.shape and self.strides; the arrays are this object's."""
        ndim = len(self.shape)
        self._arrays = (c_int64 * ndim)(*self.shape), (c_int64 * ndim)(*self.strides)
        self._tensor = abi.weir_tensor(
            abi.weir_dtype(code, bits, 1), ndim, *self._arrays, offset_bytes)

    @classmethod
    def _empty(cls, device, stream=None):
        made = cls.__new__(cls)
        made._begin(device, stream)
        return made

    @classmethod
    def of_memory(cls, device, owner):
        """Adopts the bytes of a Python object that lets them be written, which lives
        until all uses of them are done."""
        view = memoryview(owner)
        if view.readonly or not view.c_contiguous:
            raise BufferError("the object is read-only, or not C-contiguous")
        bytes_ = (ctypes.c_ubyte * view.nbytes).from_buffer(owner)
        made = cls._empty(device)
        made.shape, made.strides = (view.nbytes,), (1,)
        made._set_tensor(*DTYPES["uint8"][:2])
        foreign = abi.sized(
            abi.weir_foreign, ptr=ctypes.addressof(bytes_), bytes=view.nbytes,
            kind=abi.HOST, ignores_stream=True, context=id(bytes_),
            deleter=ctypes.cast(_helper.client_let_go, c_void_p))
        lib.weir_buffer_adopt(device.handle, None, foreign, made._buffer)
        _helper.client_keep(bytes_)
        return made

    def view(self, shape, dtype=None, strides=None, offset=0, read_only=False):
        """Another holder of the same bytes, seen as another array; `offset` is that of
        its first element from this one's, in bytes. Whether it lies inside is
        asked when it is exported."""
        made = self._empty(self._device, self._stream)
        made.shape = tuple(shape)
        made.strides = strides_of(shape) if strides is None else tuple(strides)
        code, bits = (self._tensor.dtype.code, self._tensor.dtype.bits) \
            if dtype is None else DTYPES[dtype][:2]
        made._set_tensor(code, bits, self._tensor.byte_offset + offset)
        made._is_read_only = self.is_read_only or read_only
        lib.weir_buffer_share(self._opened(), made._buffer)
        return made

    def copy(self, resource, stream=None):
        """The same array in memory of `resource`, copied on `stream`."""
        made = self._empty(resource.device, stream)
        made.shape, made.strides = self.shape, self.strides
        made._set_tensor(self._tensor.dtype.code, self._tensor.dtype.bits,
                         self._tensor.byte_offset)
        lib.weir_buffer_copy(self._opened(), resource.handle, _handle(stream),
                             made._buffer)
        return made

    def close(self, stream=None):
        """Ends this holder; what is exported lives on. Where it was opened, `stream` is
        the one that used it last, if that is not its own."""
        if self._is_open and stream is not None:
            lib.weir_ipc_close(self._buffer, stream.handle)
        elif self._is_open:
            lib.weir_buffer_reset(self._buffer)
        self._is_open = False

    def _opened(self):
        if not self._is_open:
            raise ValueError("the buffer is closed")
        return self._buffer

    # --- what it is ---

    @property
    def dtype(self):
        return NAMES[self._tensor.dtype.code, self._tensor.dtype.bits]

    @property
    def itemsize(self):
        return self._tensor.dtype.bits // 8

    @property
    def nbytes(self):
        return math.prod(self.shape) * self.itemsize

    @property
    def ptr(self):
        """The address of the first element; 0 where there is none."""
        base = self._opened().data
        return 0 if base is None else base + self._tensor.byte_offset

    @property
    def is_contiguous(self):
        return self.nbytes == 0 or all(
            extent == 1 or step == wanted for extent, step, wanted in
            zip(self.shape, self.strides, strides_of(self.shape)))

    @property
    def kind(self):
        """Where the bytes lie: DEVICE, MANAGED, PINNED or HOST of weir_abi."""
        return KINDS.get(self.__dlpack_device__()[0], abi.DEVICE)

    @property
    def is_read_only(self):
        seen = abi.sized(abi.weir_buffer_properties)
        lib.weir_buffer_get_properties(self._opened(), seen)
        return self._is_read_only or seen.read_only

    # --- its bytes ---

    def wait(self, stream, access=abi.WRITE):
        """What is put on `stream` from now on may read the bytes, or write them."""
        lib.weir_buffer_wait(self._opened(), _handle(stream), access)

    def use(self, stream, access=abi.WRITE):
        """What is on `stream` so far reads the bytes, or writes them."""
        lib.weir_buffer_use(self._opened(), _handle(stream), access)

    def set_stream(self, stream):
        """The buffer's own from now on."""
        lib.weir_buffer_set_stream(self._opened(), _handle(stream))
        self._stream = stream

    def fetch(self):
        """The bytes of a contiguous array, copied by the device."""
        out = ctypes.create_string_buffer(self.nbytes)
        self._copy(out, self.ptr, abi.READ)
        return out.raw

    def store(self, data):
        """Writes them all, likewise."""
        if len(data) != self.nbytes:
            raise ValueError(f"{len(data)} bytes are not {self.nbytes}")
        self._copy(self.ptr, ctypes.create_string_buffer(bytes(data), len(data)),
                   abi.WRITE)

    def fill(self, value):
        """Sets all bytes, on the buffer's own stream, and does not wait."""
        self._must_be_writable()
        lib.weir_fill(self._device.handle, self._opened().stream, self.ptr, value,
                      self.nbytes)

    def _must_be_writable(self):
        if self.is_read_only:
            raise BufferError("the array is for reading only")

    def _copy(self, target, source, access):
        if not self.is_contiguous:
            raise BufferError("the array is not contiguous")
        if access == abi.WRITE:
            self._must_be_writable()
        stream = self._opened().stream
        if not self.nbytes:
            return
        lib.weir_buffer_wait(self._buffer, stream, access)
        lib.weir_copy_sync(self._device.handle, stream, target, source, self.nbytes)

    def memoryview(self):
        """Of a contiguous array that the host can touch, once all writers are done, and
        all readers if it may be written. Holds the bytes by itself."""
        if self.kind == abi.DEVICE:
            raise BufferError("the host cannot touch this memory")
        if not self.is_contiguous:
            raise BufferError("the array is not contiguous")
        is_read_only = self.is_read_only
        if not self.nbytes:
            return memoryview(b"" if is_read_only else bytearray())
        lib.weir_buffer_wait_sync(self._buffer, abi.READ if is_read_only else abi.WRITE)

        class Bytes(ctypes.c_ubyte * self.nbytes):
            """Has a dictionary, where the owner is kept."""

        raw = Bytes.from_address(self.ptr)
        raw.owner = self.view(self.shape)
        view = memoryview(raw).cast("B")
        letter = DTYPES[self.dtype][3]
        if letter is not None:
            view = view.cast(letter, self.shape)
        return view.toreadonly() if is_read_only else view

    # --- other processes ---

    def export(self, access=abi.READ, **options):
        """A Ticket for the bytes of a contiguous array, which others open for `access`.
        It keeps nothing. Options are those of weir_export_options."""
        if not self.is_contiguous:
            raise BufferError("the array is not contiguous")
        part, ticket = abi.weir_buffer(), Ticket()
        offset = self._tensor.byte_offset
        lib.weir_buffer_slice(self._opened(), offset, self.nbytes, part)
        try:
            options = abi.sized(abi.weir_export_options, access=access, **options)
            lib.weir_ipc_export(part, options, ticket)
        finally:
            lib.weir_buffer_reset(part)
        return ticket

    @classmethod
    def open(cls, device, ticket, dtype="uint8", shape=None, stream=None,
             access=abi.READ, timeout_ms=0):
        """What another process has exported: by itself a row of all elements that its
        bytes are."""
        code, bits, _, _ = DTYPES[dtype]
        length, rest = divmod(ticket.bytes, bits // 8)
        made = cls._empty(device, stream)
        made.shape = (length,) if shape is None else tuple(shape)
        made.strides = strides_of(made.shape)
        if rest or math.prod(made.shape) != length:
            raise ValueError(f"{ticket.bytes} bytes are no {dtype} of {made.shape}")
        made._set_tensor(code, bits)
        options = abi.sized(abi.weir_open_options, access=access, timeout_ms=timeout_ms)
        lib.weir_ipc_open(device.handle, _handle(stream), ticket, options, made._buffer)
        return made

    def check(self):
        """ConnectionError: who exported what was opened has ended."""
        lib.weir_ipc_check(self._opened())

    # --- what other libraries ask for ---

    def __dlpack_device__(self):
        place = abi.weir_dlpack_place()
        lib.weir_dlpack_device(self._opened(), place)
        return place.type, place.id

    def __dlpack__(self, *, stream=None, max_version=None, dl_device=None, copy=None):
        """A capsule: see __dlpack__ of the Python array API standard, and what
        weir/dlpack.h adds. Read-only arrays are refused to legacy consumers."""
        request = abi.sized(abi.weir_dlpack_request)
        if stream is not None:
            request.stream = ctypes.pointer(c_int64(_stream_number(stream)))
        if max_version is not None:
            request.max_version = (c_uint32 * 2)(*_pair(max_version, "max_version"))
        if dl_device is not None:
            request.device = ctypes.pointer(
                abi.weir_dlpack_place(*_pair(dl_device, "dl_device")))
        if copy not in (None, True, False):
            raise TypeError(f"copy is None, True or False, not {copy!r}")
        request.copy = {None: 0, True: 1, False: 2}[copy]
        request.access = abi.READ if self.is_read_only else abi.WRITE
        out = abi.weir_dlpack()
        lib.weir_dlpack_export(self._opened(), self._tensor, request, out)
        try:
            return _helper.client_capsule_new(out)
        except BaseException:
            lib.weir_dlpack_delete(out)
            raise

    @property
    def __cuda_array_interface__(self):
        """Version 3, of memory that CUDA's devices reach. The consumer waits for the
        buffer's own stream, which has waited for all that was noted."""
        typestr = DTYPES[self.dtype][2]
        if self._device.is_emulated or self.kind == abi.HOST or typestr is None:
            raise AttributeError("this is no memory, or no array, of CUDA's")
        stream = self._opened().stream
        if self.nbytes:
            lib.weir_buffer_wait(self._buffer, stream, abi.WRITE)
        strides = tuple(step * self.itemsize for step in self.strides)
        return {"version": 3, "shape": self.shape, "typestr": typestr,
                "data": (self.ptr if self.nbytes else 0, self.is_read_only),
                "strides": None if self.is_contiguous else strides,
                "stream": stream or 1}


def _stream_number(stream):
    if isinstance(stream, bool):
        raise TypeError("a stream is None or an integer, not a bool")
    number = operator.index(stream)
    if not -1 << 63 <= number < 1 << 63:
        raise ValueError(f"{number} is no stream")
    return number


def _pair(value, name):
    """Two small integers, of whatever tuple."""
    try:
        first, second = map(operator.index, value)
    except ValueError:
        raise TypeError(f"{name} is a pair, not {value!r}") from None
    if not (0 <= first < 1 << 31 and 0 <= second < 1 << 31):
        raise ValueError(f"{name} is {value!r}")
    return first, second


def tensor_in(capsule):
    """The weir_dlpack that it holds, and goes on holding."""
    tensor = abi.weir_dlpack()
    if not _helper.client_capsule_look(capsule, tensor):
        raise ValueError("the capsule was consumed already, or is none of DLPack's")
    return tensor


def _capsule_of(source, stream, dl_device, copy):
    """Asks as the standard of today has it, and then as that of the beginning, which
    knew no more than the stream and never copied. Also: whether a copy is still due."""
    stream = {} if stream is None else {"stream": stream}
    try:
        return source.__dlpack__(max_version=abi.VERSION, dl_device=dl_device,
                                 copy=copy, **stream), False
    except TypeError:
        if dl_device not in (None, tuple(source.__dlpack_device__())):
            raise BufferError("the source knows nothing of other devices") from None
        return source.__dlpack__(**stream), copy is True


def from_dlpack(source, device, *, stream=None, copy=None, dl_device=None,
                contiguous=False, lock=False, resource=None):
    """A Buffer with the bytes of `source`, an array of any library's, on `device`:
    memory of that or of the host. `stream` is the Stream that is made ready, of memory
    of a device; it becomes the buffer's own. `contiguous` refuses others; `lock` makes
    the source, an array of NumPy's, read-only once it was taken. `resource` is where a
    copy goes that a source of the old kind would not make itself."""
    flags = source.flags if lock else None
    where = dl_device or source.__dlpack_device__()
    number = None
    if where[0] not in WITHOUT_STREAM:
        number = _handle(stream) or 1
    else:
        stream = None
    capsule, must_copy = _capsule_of(source, number, dl_device, copy)
    if must_copy and resource is None:
        raise BufferError("the source copies nothing, and there is no resource")
    tensor = tensor_in(capsule)
    options = abi.sized(abi.weir_dlpack_import_options, contiguous=contiguous)
    made = Buffer._empty(device, stream)
    lib.weir_dlpack_import(device.handle, _handle(stream), tensor, options,
                           made._buffer, made._tensor)
    _helper.client_capsule_set_used(capsule)
    ndim = made._tensor.ndim
    made.shape = tuple(made._tensor.shape[:ndim])
    made.strides = tuple(made._tensor.strides[:ndim])
    made.is_copied = bool(tensor.versioned and
                          tensor.versioned.contents.flags & abi.IS_COPIED)
    if must_copy:
        with made:
            made = made.copy(resource, stream)
        if stream is None:  # whoever writes to the source next need not wait for one
            lib.weir_buffer_wait_sync(made._buffer, abi.READ)
        made.is_copied = True
    if lock:
        flags.writeable = False
    return made


def from_cuda_array(source, device, stream=None):
    """A Buffer with the bytes of `source`, an object with CUDA's array interface, which
    lives until all uses that were noted are done. `stream` is made ready, where the
    source tells on which its bytes are made, and becomes the buffer's own."""
    seen = source.__cuda_array_interface__
    address, is_read_only = seen["data"]
    names = {typestr: name for name, (_, _, typestr, _) in DTYPES.items()}
    name, theirs = names.get(seen["typestr"]), seen.get("stream")
    if device.is_emulated or seen.get("mask") is not None or name is None:
        raise BufferError("no such array can be taken here")
    if theirs == 0:
        raise ValueError("stream 0 could be any of three")
    made = Buffer._empty(device, stream)
    code, bits = DTYPES[name][:2]
    made.shape, size = tuple(seen["shape"]), bits // 8
    made.strides, rests = strides_of(made.shape), ()
    if seen.get("strides"):
        made.strides, rests = zip(*(divmod(step, size) for step in seen["strides"]))
    if any(rests):
        raise BufferError("its strides are no multiples of an element")
    ends = [(extent - 1) * step * size for extent, step in
            zip(made.shape, made.strides)]
    low = sum(end for end in ends if end < 0)
    high = sum(end for end in ends if end > 0) + size
    if 0 in made.shape:
        low = 0
    made._set_tensor(code, bits, -low)
    made._is_read_only = is_read_only
    if 0 in made.shape:
        return made
    if theirs is not None:
        lib.weir_stream_wait(device.handle, _handle(stream), theirs)
    foreign = abi.sized(
        abi.weir_foreign, ptr=address + low, bytes=high - low, kind=abi.DEVICE,
        read_only=is_read_only, ignores_stream=True, context=id(source),
        deleter=ctypes.cast(_helper.client_let_go, c_void_p))
    lib.weir_buffer_adopt(device.handle, _handle(stream), foreign, made._buffer)
    _helper.client_keep(source)
    return made
