"""cases_numpy.py - NumPy takes Weir's buffers for arrays, and Weir its arrays for
buffers: in legacy capsules (NumPy 1) and in versioned ones (NumPy 2)."""
import sys

import numpy as np

import cases
import weir
import weir_abi as abi
from cases import HOST_KINDS, PLACES, Counted, Given, must_raise, only_for

# NumPy 1 takes no bool.
DTYPES = [name for name, row in weir.DTYPES.items()
          if row[2] and (name != "bool" or np.__version__ >= "2")]
IS_LEGACY = np.__version__ < "2"


def numbers(shape, dtype="float32"):
    return np.arange(np.prod(shape, dtype=int)).astype(dtype).reshape(shape)


def address_of(array):
    return array.__array_interface__["data"][0]


# --- NumPy takes ours ------------------------------------------------------------

def a1_values_shape_strides_and_type_arrive(world):
    for kind in HOST_KINDS:
        for dtype in DTYPES:
            wanted = numbers((3, 4), dtype)
            with world.buffer(kind, (3, 4), dtype, wanted.tobytes()) as buffer:
                assert buffer.__dlpack_device__() == (PLACES[kind], 0)
                array = np.from_dlpack(buffer)
                assert array.dtype == wanted.dtype and array.strides == wanted.strides
                assert address_of(array) == buffer.ptr
                assert np.array_equal(array, wanted), (kind, dtype, array)


def a2_an_array_keeps_the_bytes_alone(world):
    for kind in HOST_KINDS:
        wanted = numbers((5, 7))
        stream = world.device.stream()
        buffer = world.buffer(kind, (5, 7), "float32", wanted.tobytes(), stream)
        array = np.from_dlpack(buffer)
        buffer.close()
        stream.close()
        assert world.blocks_out() == 1
        assert np.array_equal(array, wanted) and array.shape == (5, 7)
        del array
        assert world.blocks_out() == 0


def a5_the_deleter_is_called_once_whichever_goes_first(world):
    for array_goes_first in (True, False):
        buffer = world.buffer("pinned", (8,), "int32", bytes(32))
        source = Counted(buffer)
        array = np.from_dlpack(source)
        part = array[2:4]
        if array_goes_first:
            del array
            assert source.deletions == 0
            del part
            assert source.deletions == 1
            assert buffer.fetch() == bytes(32)
            buffer.close()
        else:
            buffer.close()
            del array
            assert source.deletions == 0 and part.sum() == 0
            del part
        assert source.deletions == 1
        assert world.blocks_out() == 0


def a6_a_capsule_is_consumed_once(world):
    with world.buffer("system", (4,), "int32", bytes(16)) as buffer:
        source = Counted(buffer)
        version = None if IS_LEGACY else (1, 0)
        given = Given(source.__dlpack__(max_version=version), (abi.CPU, 0))
        array = np.from_dlpack(given)
        assert cases.capsule_name(given.capsule).startswith("used_dltensor")
        must_raise((ValueError, BufferError), np.from_dlpack, given)
        del given
        assert source.deletions == 0 and array.sum() == 0
        del array
        assert source.deletions == 1


def a9_an_export_waits_for_work_on_the_buffers_stream(world):
    for kind in HOST_KINDS:
        with world.device.stream() as stream:
            buffer = world.buffer(kind, (1 << 16,), stream=stream)
            for value in range(1, 20):
                buffer.fill(value)
            array = np.from_dlpack(buffer)
            assert (array == 19).all(), (kind, array)
            del array
            buffer.close()


def a11_any_strides_arrive(world):
    base = numbers((4, 6), "int16")
    views = [((4, 6), (-6, 1), 36), ((4, 6), (6, -1), 10), ((4, 6), (-6, -1), 46),
             ((5, 6), (0, 1), 0), ((2, 3), (12, 2), 2), ((6, 4), (1, 6), 0),
             ((1, 3, 1), (99, 1, -99), 0), ((0, 3), (3, 1), 0), ((), (), 8)]
    for kind in HOST_KINDS:
        with world.buffer(kind, (4, 6), "int16", base.tobytes()) as buffer:
            for shape, strides, offset in views:
                view = buffer.view(shape, strides=strides, offset=offset)
                array = np.from_dlpack(view)
                wanted = np.ndarray(shape, "int16", base.data if offset == 0 else base,
                                    offset, [2 * step for step in strides])
                assert array.shape == shape and np.array_equal(array, wanted), array
                del array
                view.close()


def a17_what_weir_writes_is_seen(world):
    for kind in HOST_KINDS:
        with world.buffer(kind, (4,), "uint32", bytes(16)) as buffer:
            array = np.from_dlpack(buffer)
            buffer.store(b"\1\0\0\0" * 4)
            assert array.tolist() == [1] * 4
            buffer.memoryview()[2] = 7
            assert array.tolist() == [1, 1, 7, 1]


@only_for("numpy2")
def a17_what_numpy_writes_is_seen(world):
    for kind in HOST_KINDS:
        with world.buffer(kind, (2, 2), "uint8", bytes(4)) as buffer:
            array = np.from_dlpack(buffer)
            array[1] = 9
            assert buffer.fetch() == b"\0\0\t\t"


@only_for("numpy2")
def a17_nobody_writes_what_is_read_only(world):
    with world.buffer("pinned", (4,), data=b"weir") as buffer, \
            buffer.view((4,), read_only=True) as view:
        array = np.from_dlpack(view)
        must_raise(ValueError, array.fill, 1)
        assert bytes(array) == b"weir"
        assert view.memoryview().readonly


@only_for("numpy1")
def a17_what_is_read_only_has_no_legacy_form(world):
    with world.buffer("pinned", (4,), data=b"weir") as buffer, \
            buffer.view((4,), read_only=True) as view:
        must_raise(BufferError, np.from_dlpack, view)


@only_for("numpy1")
def b24_what_numpy_refuses_is_deleted_once(world):
    with world.buffer("system", (4,), "bool", bytes(4)) as buffer:
        source = Counted(buffer)
        must_raise(RuntimeError, np.from_dlpack, source)
        assert source.deletions == 1


def b28_two_arrays_of_one_buffer_see_a_write(world):
    buffer = world.buffer("managed", (4,), data=bytes(4))
    first, second = np.from_dlpack(buffer), np.from_dlpack(buffer)
    buffer.store(b"weir")
    assert bytes(first) == bytes(second) == b"weir"
    buffer.close()
    del first
    assert world.blocks_out() == 1 and bytes(second) == b"weir"
    del second
    assert world.blocks_out() == 0


@only_for("numpy2")
def c31_numpy_may_forbid_a_copy(world):
    for kind in HOST_KINDS:
        with world.buffer(kind, (4,), data=b"weir") as buffer:
            for device in (None, "cpu"):
                array = np.from_dlpack(buffer, device=device, copy=False)
                assert address_of(array) == buffer.ptr


@only_for("numpy2")
def c32_numpy_may_ask_for_a_copy(world):
    for kind in HOST_KINDS:
        for device in (None, "cpu"):
            with world.buffer(kind, (4,), data=b"weir") as buffer:
                source = Counted(buffer)
                array = np.from_dlpack(source, device=device, copy=True)
                buffer.store(b"WEIR")
                assert bytes(array) == b"weir" and address_of(array) != buffer.ptr
                assert source.asked[0]["copy"] is True
                del array
                assert source.deletions == 1


@only_for("numpy2")
def c35_device_memory_comes_to_numpy_as_a_copy(world):
    with world.device.stream() as stream, \
            world.buffer("device", (1 << 12,), stream=stream) as buffer:
        buffer.fill(77)
        must_raise((BufferError, RuntimeError), np.from_dlpack, buffer)
        must_raise(BufferError, np.from_dlpack, buffer, device="cpu", copy=False)
        array = np.from_dlpack(buffer, device="cpu")
        assert (array == 77).all() and address_of(array) != buffer.ptr


# --- we take NumPy's -------------------------------------------------------------

def a13_types_map_and_the_others_are_refused(world):
    for dtype in DTYPES:
        array = numbers((2, 3), dtype)
        with weir.from_dlpack(array, world.device) as buffer:
            assert buffer.dtype == dtype and buffer.shape == (2, 3)
            assert buffer.fetch() == array.tobytes()
            assert buffer.kind == abi.HOST
    for dtype in (">i4", "longdouble", "datetime64[s]", "S3"):
        must_raise(BufferError, weir.from_dlpack, np.zeros(3, dtype), world.device)


def b20_what_is_not_contiguous_is_refused_where_asked(world):
    base = numbers((4, 6))
    for array in (base[:, ::2], base.T, base[::-1]):
        held = sys.getrefcount(array)
        problem = must_raise(BufferError, weir.from_dlpack, array, world.device,
                             contiguous=True, lock=True)
        assert "row by row" in str(problem), problem
        del problem
        assert sys.getrefcount(array) == held and array.flags.writeable
        with weir.from_dlpack(array, world.device) as buffer:
            assert not buffer.is_contiguous
            must_raise(BufferError, buffer.memoryview)
    for array in (base, base[1:3], base[:0], np.array(7, "f4"), base[:1, None]):
        weir.from_dlpack(array, world.device, contiguous=True).close()


def b21_the_address_is_the_same(world):
    base = numbers((4, 6), "int64")
    for array in (base, base[::-1], base[1:, 2:], base[::-2, ::-3], base.T):
        with weir.from_dlpack(array, world.device) as buffer:
            assert buffer.ptr == address_of(array)
            assert [8 * step for step in buffer.strides] == list(array.strides)
            again = np.from_dlpack(buffer)
            assert address_of(again) == address_of(array)
            assert np.array_equal(again, array)


def b22_whichever_goes_first_the_bytes_stay(world):
    array = numbers((3, 5))
    wanted, held = array.copy(), sys.getrefcount(array)
    buffer = weir.from_dlpack(array, world.device)
    buffer.close()
    world.device.drain()
    assert sys.getrefcount(array) == held and np.array_equal(array, wanted)
    source = Counted(array)
    buffer = weir.from_dlpack(source, world.device)
    source.source = None
    del array
    second = np.from_dlpack(buffer)
    assert buffer.fetch() == wanted.tobytes()
    buffer.close()
    world.device.drain()
    assert source.deletions == 0 and np.array_equal(second, wanted)
    del second
    world.device.drain()
    assert source.deletions == 1


def b23_a_write_on_either_side_is_seen(world):
    array = numbers((4,), "uint8")
    with weir.from_dlpack(array, world.device) as buffer:
        array[2] = 200
        assert buffer.fetch() == b"\0\1\xc8\3"
        buffer.store(b"weir")
        assert bytes(array) == b"weir"


def a17_a_write_into_numpys_memory_is_seen(world):
    array = np.zeros(4, "uint8")
    with weir.from_dlpack(array, world.device) as buffer:
        array[:] = 5
        buffer.memoryview()[1] = 6
        assert buffer.fetch() == b"\5\6\5\5" == bytes(array)


def b24_an_import_that_fails_leaves_nothing(world):
    def of_another_version(tensor):
        if hasattr(tensor, "version"):
            tensor.version.major = 2
        else:
            tensor.dl_tensor.ndim = -1

    def of_no_type(tensor):
        tensor.dl_tensor.dtype.bits = 0

    array = numbers((4,))
    held = sys.getrefcount(array)
    for spoil in (of_another_version, of_no_type):
        source = Counted(array, spoil)
        must_raise((BufferError, ValueError), weir.from_dlpack, source, world.device)
        assert source.deletions == 1
        del source
        assert sys.getrefcount(array) == held


def b26_the_source_can_be_locked(world):
    array = numbers((4,))
    with weir.from_dlpack(array, world.device, lock=True) as buffer:
        must_raise(ValueError, array.fill, 1)
        assert buffer.fetch() == array.tobytes()
    other = numbers((4,))
    weir.from_dlpack(other, world.device).close()
    other.fill(1)


@only_for("numpy2")
def b26_what_is_read_only_stays_so(world):
    array = numbers((4,))
    array.flags.writeable = False
    with weir.from_dlpack(array, world.device) as buffer:
        assert buffer.is_read_only and buffer.memoryview().readonly
        assert not np.from_dlpack(buffer).flags.writeable
        must_raise(BufferError, buffer.__dlpack__)


def c31_what_must_not_be_copied_is_not(world):
    array = numbers((4,))
    with weir.from_dlpack(array, world.device, copy=False) as buffer:
        assert buffer.ptr == address_of(array) and not buffer.is_copied


def c32_what_must_be_copied_is(world):
    array = numbers((4,), "uint8")
    resource = world.resource("system")
    with weir.from_dlpack(array, world.device, copy=True, resource=resource) as buffer:
        assert buffer.is_copied and buffer.ptr != address_of(array)
        array.fill(9)
        assert buffer.fetch() == b"\0\1\2\3"


@only_for("numpy1")
def c41_what_numpy_does_not_know_is_not_asked_again(world):
    source = Counted(numbers((4,)))
    with weir.from_dlpack(source, world.device) as buffer:
        assert buffer.shape == (4,)
    assert set(source.asked[0]) == {"max_version", "dl_device", "copy"}
    assert source.asked[1:] == [{}]
    must_raise(BufferError, weir.from_dlpack, numbers((4,)), world.device,
               dl_device=(abi.CUDA, 0))


@only_for("numpy2")
def c42_copy_and_device_are_passed_on(world):
    source = Counted(numbers((4,)))
    weir.from_dlpack(source, world.device, copy=True, dl_device=(abi.CPU, 0)).close()
    assert source.asked == [{"max_version": (1, 3), "dl_device": (abi.CPU, 0),
                             "copy": True}]


# --- and back --------------------------------------------------------------------

def a19_a_round_trip_keeps_the_pointer(world):
    for kind in HOST_KINDS:
        with world.buffer(kind, (4,), "float64") as buffer:
            if IS_LEGACY:  # what it imports is read-only, and so has no legacy form
                must_raise(BufferError, np.from_dlpack(buffer).__dlpack__)
                continue
            with weir.from_dlpack(np.from_dlpack(buffer), world.device) as again:
                assert again.ptr == buffer.ptr
                assert again.__dlpack_device__() == (PLACES[kind], 0)


def a16_arrays_and_capsules_may_outlive_the_interpreter(world):
    said = cases.child(world.label, """
import numpy as np
buffer = weir.Buffer(device.resource("pinned"), (4,))
kept = [np.from_dlpack(buffer), buffer.__dlpack__(), np.zeros(3), buffer]
kept += [weir.from_dlpack(kept[2], device), weir.Buffer.of_memory(device, bytearray(3))]
kept += [kept[-1].__dlpack__(max_version=(1, 0)), kept]
print(len(kept))
""")
    assert said == "8\n", said
