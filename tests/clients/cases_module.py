"""cases_module.py - weir.py by itself, with the interpreter as the only peer."""
import ctypes
import gc
import threading
import weakref

import cases
import programs
import weir
import weir_abi as abi
from cases import HOST_KINDS, PLACES, Counted, Given, must_raise

VERSIONS = (None, (0, 8), (1, 0), (1, 3), (2, 0))


class Octets(bytearray):
    """Bytes whose end can be seen."""


def of_octets(world, text):
    octets = Octets(text)
    return weir.Buffer.of_memory(world.device, octets), weakref.ref(octets)


# --- capsules --------------------------------------------------------------------

def a5_any_thread_may_call_the_deleter(world):
    for kind in (*HOST_KINDS, "device"):
        for version in VERSIONS:
            source = Counted(world.buffer(kind, (4,)))
            capsules = [source.__dlpack__(max_version=version)]
            source.source.close()
            thread = threading.Thread(target=capsules.clear)
            thread.start()
            thread.join()
            assert source.deletions == 1 and world.blocks_out() == 0


def a6_a_capsule_is_consumed_once(world):
    for version in VERSIONS:
        buffer = world.buffer("pinned", (4,), data=b"weir")
        source = Counted(buffer)
        given = Given(source.__dlpack__(max_version=version), (abi.CUDA_HOST, 0))
        first = weir.from_dlpack(given, world.device)
        assert cases.capsule_name(given.capsule).startswith("used_dltensor")
        must_raise(ValueError, weir.from_dlpack, given, world.device)
        del given
        gc.collect()
        assert source.deletions == 0 and first.fetch() == b"weir"
        first.close()
        world.device.drain()
        assert source.deletions == 1 and buffer.fetch() == b"weir"
        buffer.close()


def a7_a_capsule_that_nobody_consumes_is_deleted_once(world):
    for version in VERSIONS:
        buffer = world.buffer("system", (4,), data=b"weir")
        source = Counted(buffer)
        capsule = source.__dlpack__(max_version=version)
        buffer.close()
        assert source.deletions == 0 and world.blocks_out() == 1
        del capsule
        assert source.deletions == 1 and world.blocks_out() == 0


def a7_its_deletion_hides_no_exception(world):
    source = Counted(world.buffer("system", (4,)))
    problem = must_raise(TypeError, lambda: int(source.__dlpack__()))
    assert "int()" in str(problem) and source.deletions == 1


def a16_names_are_those_of_the_standard(world):
    with world.buffer("system", (4,)) as buffer:
        names = [cases.capsule_name(buffer.__dlpack__(max_version=version))
                 for version in VERSIONS]
    assert names == ["dltensor"] * 2 + ["dltensor_versioned"] * 3


def a16_capsules_may_outlive_the_interpreter(world):
    said = cases.child(world.label, """
buffer = weir.Buffer(device.resource("system"), (4,))
kept = [buffer.__dlpack__(), buffer.__dlpack__(max_version=(1, 3))]
cases.kept = [kept, buffer.__dlpack__()]
kept.append(kept)
print(len(kept))
""")
    assert said == "3\n", said


def a16_a_deleter_may_be_called_after_the_interpreters_end(world):
    said = cases.child(world.label, """
buffer = weir.Buffer.of_memory(device, bytearray(4))
kept = [buffer.__dlpack__()]
buffer.close()
kept.append(kept)
print(len(kept))
""")
    assert said == "2\n", said


def b25_a_python_deleter_is_called_from_c(world):
    buffer = world.buffer("system", (4,), data=b"weir")
    source = Counted(buffer)
    taken = weir.from_dlpack(source, world.device)
    second = taken.view((2,), offset=2)
    buffer.close()
    taken.close()
    gc.collect()
    world.device.drain()
    assert source.deletions == 0 and second.fetch() == b"ir"
    second.close()
    world.device.drain()
    assert source.deletions == 1


def b25_an_object_lives_until_then(world):
    buffer, seen = of_octets(world, b"weir")
    capsule = buffer.__dlpack__()
    buffer.close()
    gc.collect()
    world.device.drain()
    assert seen() == b"weir"
    del capsule
    world.device.drain()
    gc.collect()
    assert seen() is None


# --- bytes of Python's -----------------------------------------------------------

def b20_what_is_not_contiguous_or_read_only_is_refused(world):
    for source in (memoryview(bytearray(8))[::2], memoryview(b"weir")):
        must_raise(BufferError, weir.Buffer.of_memory, world.device, source)


def also_nobody_stores_what_is_read_only(world):
    for kind in HOST_KINDS:
        with world.buffer(kind, (4,)) as buffer, \
                buffer.view((4,), read_only=True) as view:
            buffer.store(b"weir")
            must_raise(BufferError, view.store, b"WEIR")
            must_raise(BufferError, view.fill, 7)
            assert view.fetch() == b"weir"


def b21_the_address_is_the_objects_own(world):
    octets = bytearray(b"weir")
    address = ctypes.addressof((ctypes.c_char * 4).from_buffer(octets))
    with weir.Buffer.of_memory(world.device, octets) as buffer:
        assert buffer.ptr == address and buffer.kind == abi.HOST


def b23_a_write_on_either_side_is_seen(world):
    octets = bytearray(b"weir")
    with weir.Buffer.of_memory(world.device, octets) as buffer:
        octets[0] = ord("W")
        assert buffer.fetch() == b"Weir"
        buffer.store(b"WEIR")
        assert octets == b"WEIR"


def b29_a_memoryview_waits_for_what_is_on_the_stream(world):
    for kind in HOST_KINDS:
        with world.device.stream() as stream:
            buffer = world.buffer(kind, (1 << 16,), stream=stream)
            for value in range(20):
                buffer.fill(value)
            seen = buffer.memoryview()
            assert seen.tobytes() == b"\x13" * (1 << 16)
            buffer.close()
            assert world.blocks_out() == 1 and seen[7] == 19
            del seen
            assert world.blocks_out() == 0


def also_a_stream_may_end_before_its_buffer(world):
    for kind in (*HOST_KINDS, "device", "pool/device"):
        with world.device.stream() as stream:
            buffer = world.buffer(kind, (1 << 16,), stream=stream)
            for value in range(20):
                buffer.fill(value)
        buffer.close()
        assert world.blocks_out() == 0


def also_a_memoryview_has_shape_and_format(world):
    with world.buffer("managed", (2, 3), "int16", bytes(12)) as buffer:
        seen = buffer.memoryview()
        assert (seen.shape, seen.format, seen.readonly) == ((2, 3), "h", False)
        seen[1, 2] = -2
        assert buffer.fetch() == bytes(10) + b"\xfe\xff"
        assert buffer.view((2, 3), read_only=True).memoryview().readonly
        assert buffer.view((0, 3)).memoryview().nbytes == 0
        must_raise(BufferError, buffer.view((3,), strides=(2,)).memoryview)
    with world.buffer("device", (4,)) as buffer:
        must_raise(BufferError, buffer.memoryview)


# --- what may be asked for -------------------------------------------------------

def a1_the_tensor_is_what_the_buffer_is(world):
    for kind, place in PLACES.items():
        with world.buffer(kind, (2, 3), "uint16") as buffer:
            assert buffer.__dlpack_device__() == (place, 0)
            capsule = buffer.__dlpack__(max_version=(1, 3))
            tensor = weir.tensor_in(capsule).versioned.contents
            assert (tensor.version.major, tensor.version.minor) == (1, 3)
            inner = tensor.dl_tensor
            assert (inner.device.device_type, inner.device.device_id) == (place, 0)
            assert (inner.dtype.code, inner.dtype.bits, inner.dtype.lanes) == (1, 16, 1)
            assert inner.data == buffer.ptr and inner.byte_offset == 0
            assert inner.shape[:2] == [2, 3] and inner.strides[:2] == [3, 1]


def a9_the_consumers_stream_waits_and_then_the_free_for_it(world):
    for kind in ("device", "managed", "pinned"):
        with world.device.stream() as first, world.device.stream() as second:
            buffer = world.buffer(kind, (1 << 12,), stream=first)
            for value in range(20):
                buffer.fill(value)
            given = Given(buffer.__dlpack__(stream=second.handle),
                          buffer.__dlpack_device__())
            with weir.from_dlpack(given, world.device, stream=second) as again:
                again.set_stream(second)
                again.fill(77)
                buffer.close()
            buffer = world.buffer(kind, (1 << 12,), stream=first)
            buffer.fill(1)
            assert buffer.fetch() == b"\1" * (1 << 12)
            buffer.close()


def a11_what_leaves_the_buffer_is_refused(world):
    with world.buffer("system", (4,), "int32") as buffer:
        for shape, strides, offset in (((5,), None, 0), ((4,), (2,), 0),
                                       ((4,), (-1,), 0), ((1,), None, 16),
                                       ((1 << 40, 1 << 40), (1, 1), 0)):
            view = buffer.view(shape, strides=strides, offset=offset)
            must_raise(ValueError, view.__dlpack__)
            view.close()


def c30_by_default_nothing_is_copied(world):
    for kind in (*HOST_KINDS, "device"):
        with world.buffer(kind, (4,), data=b"weir") as buffer:
            with weir.from_dlpack(buffer, world.device) as again:
                assert again.ptr == buffer.ptr and not again.is_copied
                assert again.__dlpack_device__() == buffer.__dlpack_device__()


def c32_a_copy_is_independent_on_the_same_device_too(world):
    for kind in (*HOST_KINDS, "device"):
        with world.buffer(kind, (4,), data=b"weir") as buffer:
            with weir.from_dlpack(buffer, world.device, copy=True) as again:
                buffer.store(b"WEIR")
                assert again.fetch() == b"weir" and again.is_copied


def c34_the_same_device_copies_nothing(world):
    for kind in (*HOST_KINDS, "device"):
        with world.buffer(kind, (4,)) as buffer:
            with weir.from_dlpack(buffer, world.device,
                                  dl_device=buffer.__dlpack_device__()) as again:
                assert again.ptr == buffer.ptr and not again.is_copied


def c35_the_host_gets_a_copy_that_is_complete(world):
    with world.device.stream() as stream:
        buffer = world.buffer("device", (1 << 12,), stream=stream)
        buffer.fill(9)
        with weir.from_dlpack(buffer, world.device, dl_device=(abi.CPU, 0)) as again:
            assert again.__dlpack_device__() == (abi.CPU, 0) and again.is_copied
            assert again.memoryview().tobytes() == b"\t" * (1 << 12)
            gc.collect()
        buffer.close()


def c36_failures_are_exceptions_of_their_kind(world):
    with world.buffer("device", (4,), "float32") as buffer:
        must_raise(BufferError, buffer.__dlpack__, dl_device=(abi.CPU, 0), copy=False)
        must_raise(BufferError, buffer.__dlpack__, dl_device=(7, 0))
        must_raise(TypeError, buffer.__dlpack__, colour="red")
        must_raise(TypeError, buffer.__dlpack__, stream=1.0)
        must_raise(TypeError, buffer.__dlpack__, stream="1")
        must_raise(TypeError, buffer.__dlpack__, stream=True)
        must_raise(TypeError, buffer.__dlpack__, copy="no")
        must_raise(TypeError, buffer.__dlpack__, max_version=1)
        must_raise(TypeError, buffer.__dlpack__, dl_device=(1, 2, 3))
        must_raise(ValueError, buffer.__dlpack__, stream=1 << 64)
        must_raise(ValueError, buffer.__dlpack__, max_version=(1, -1))
    must_raise(ValueError, buffer.__dlpack__)
    must_raise(ValueError, buffer.memoryview)
    buffer.close()
    must_raise(MemoryError, world.buffer, "device", (1 << 50,))
    must_raise(ValueError, world.device.resource, "no such resource")
    must_raise(AttributeError, weir.from_dlpack, object(), world.device)


def c37_streams_and_the_host_do_not_go_together(world):
    with world.buffer("system", (4,)) as buffer:
        for stream in (1, 2, 4096):
            must_raise(ValueError, buffer.__dlpack__, stream=stream)
        for stream in (None, -1):
            buffer.__dlpack__(stream=stream)
    with world.buffer("device", (4,), data=b"weir") as buffer:
        given = Given(buffer.__dlpack__(dl_device=(abi.CPU, 0), stream=4096,
                                        max_version=(1, 0)), (abi.CPU, 0))
        with weir.from_dlpack(given, world.device) as again:
            assert again.fetch() == b"weir"


def c38_there_is_no_new_number_for_a_stream(world):
    for kind in ("device", *HOST_KINDS):
        with world.buffer(kind, (4,)) as buffer:
            for stream in (0, -2, -7):
                must_raise(ValueError, buffer.__dlpack__, stream=stream)


class Recorder:
    """A producer of a certain age: knows the arguments in `known` and no others."""

    def __init__(self, source, *known):
        self.source, self.known, self.asked = source, known, []

    def __dlpack_device__(self):
        return self.source.__dlpack_device__()

    def __dlpack__(self, **options):
        self.asked.append(options)
        for name in options:
            if name not in self.known:
                raise TypeError(f"unexpected keyword argument {name!r}")
        return self.source.__dlpack__(**options)


def c41_the_consumer_falls_back(world):
    with world.buffer("device", (4,), data=b"weir") as buffer, \
            world.device.stream() as stream:
        old = Recorder(buffer, "stream")
        with weir.from_dlpack(old, world.device, stream=stream) as again:
            assert again.ptr == buffer.ptr
        assert old.asked[1:] == [{"stream": stream.handle}]
        must_raise(BufferError, weir.from_dlpack, old, world.device,
                   dl_device=(abi.CPU, 0))
        must_raise(BufferError, weir.from_dlpack, old, world.device, copy=True)
        with weir.from_dlpack(old, world.device, copy=True,
                              resource=world.resource("device")) as again:
            assert again.ptr != buffer.ptr and again.fetch() == b"weir"


def c41_a_type_error_of_its_own_is_told(world):
    with world.buffer("device", (4,)) as buffer:
        must_raise(TypeError, weir.from_dlpack, Recorder(buffer), world.device)


def c42_copy_and_device_are_passed_on(world):
    known = ("max_version", "dl_device", "copy", "stream")
    with world.buffer("device", (4,), data=b"weir") as buffer:
        source = Recorder(buffer, *known)
        weir.from_dlpack(source, world.device, copy=True, dl_device=(1, 0)).close()
        weir.from_dlpack(source, world.device, copy=False).close()
    assert source.asked == [
        {"max_version": (1, 3), "dl_device": (1, 0), "copy": True},
        {"max_version": (1, 3), "dl_device": None, "copy": False, "stream": 1}]


def c43_the_consumers_stream_may_end_right_after(world):
    with world.buffer("device", (1 << 12,), data=bytes(1 << 12)) as buffer:
        with world.device.stream() as stream:
            capsule = buffer.__dlpack__(stream=stream.handle)
        del capsule
        gc.collect()
        assert buffer.fetch() == bytes(1 << 12)


def c44_a_copy_and_what_is_read_only_are_told(world):
    with world.buffer("pinned", (4,)) as buffer, \
            buffer.view((4,), read_only=True) as view:
        for source, copy, wanted in ((buffer, None, 0), (view, None, abi.READ_ONLY),
                                     (buffer, True, abi.IS_COPIED)):
            capsule = source.__dlpack__(max_version=(1, 3), copy=copy)
            assert weir.tensor_in(capsule).versioned.contents.flags == wanted
        must_raise(BufferError, view.__dlpack__)


# --- all of it -------------------------------------------------------------------

def also_programs_keep_every_byte_in_order(world):
    programs.run(world)


# --- CUDA's array interface ------------------------------------------------------

def also_cudas_interface_is_of_its_memory_only(world):
    shape, strides = (3, 2), (1, 3)
    for kind in ("device", "managed", "pinned"):
        with world.device.stream() as stream:
            buffer = world.buffer(kind, (2, 3), "float32", stream=stream)
            view = buffer.view(shape, strides=strides, read_only=True)
            if world.label != "stand-in":
                assert not hasattr(buffer, "__cuda_array_interface__")
            else:
                assert buffer.__cuda_array_interface__ == {
                    "version": 3, "shape": (2, 3), "typestr": "<f4", "strides": None,
                    "data": (buffer.ptr, False), "stream": stream.handle}
                seen = view.__cuda_array_interface__
                assert seen["strides"] == (4, 12) and seen["data"][1] is True
            view.close()
            buffer.close()
    with world.buffer("device", (0,)) as empty, world.buffer("system", (4,)) as host:
        if world.label == "stand-in":
            seen = empty.__cuda_array_interface__
            assert seen["data"][0] == 0 and seen["stream"] == 1
        assert not hasattr(host, "__cuda_array_interface__")


class Interface:
    """An object with CUDA's array interface: a buffer's, but for what is told of it."""

    def __init__(self, buffer, **told):
        self.buffer, self.told = buffer, told

    @property
    def __cuda_array_interface__(self):
        return dict(self.buffer.__cuda_array_interface__, **self.told)


def also_arrays_by_cudas_interface_are_what_they_tell(world):
    with world.buffer("device", (2, 3), "int16", bytes(range(12))) as buffer:
        if world.label != "stand-in":
            source = cases.Given(None, None)
            source.__cuda_array_interface__ = {"typestr": "<i2", "data": (1, False)}
            must_raise(BufferError, weir.from_cuda_array, source, world.device)
            return
        last = buffer.ptr + 10
        for told, strides in ((dict(), (3, 1)), (dict(strides=(6, 2)), (3, 1)),
                              (dict(strides=None, stream=None), (3, 1)),
                              (dict(strides=(-6, -2), data=(last, True)), (-3, -1)),
                              (dict(shape=(), strides=()), ())):
            source = Interface(buffer, **told)
            with weir.from_cuda_array(source, world.device) as taken:
                seen = source.__cuda_array_interface__
                assert (taken.ptr, taken.is_read_only) == seen["data"]
                assert (taken.shape, taken.strides) == (seen["shape"], strides)
                assert taken.dtype == "int16" and taken.kind == abi.DEVICE
                if taken.is_contiguous:
                    assert taken.fetch() == bytes(range(taken.nbytes))
                else:  # what it holds begins at the lowest byte
                    with taken.view((6,), offset=-10) as whole:
                        assert whole.fetch() == bytes(range(12))
        with weir.from_cuda_array(Interface(buffer, shape=(0, 3), data=(0, False)),
                                  world.device) as empty:
            assert empty.nbytes == 0 and empty.fetch() == b""
        for kind, told in ((ValueError, dict(stream=0)),
                           (BufferError, dict(mask=buffer)),
                           (BufferError, dict(typestr=">i2")),
                           (BufferError, dict(strides=(6, 3)))):
            must_raise(kind, weir.from_cuda_array, Interface(buffer, **told),
                       world.device)
