"""cases_tvm_ffi.py - Apache TVM FFI, which takes memory of any device without touching
it, and is written in C++ against DLPack 1.3."""
import ctypes

import numpy
import tvm_ffi
import tvm_ffi.libinfo

import weir
import weir_abi as abi
from cases import HOST_KINDS, Counted, Given, must_raise

KINDS = (*HOST_KINDS, "device")


def a1_shape_strides_type_and_place_arrive(world):
    for kind in KINDS:
        for dtype in ("float32", "int8", "uint64", "bfloat16", "bool"):
            with world.buffer(kind, (3, 4), dtype) as buffer:
                tensor = tvm_ffi.from_dlpack(buffer)
                assert str(tensor.dtype) == dtype
                assert tensor.__dlpack_device__() == buffer.__dlpack_device__()
                assert tuple(tensor.shape) == (3, 4)
                assert tuple(tensor.strides) == (4, 1)
                assert tensor.data_ptr() == buffer.ptr
                del tensor


def a2_a_tensor_keeps_the_bytes_alone(world):
    for kind in KINDS:
        buffer = world.buffer(kind, (4,), data=b"weir")
        tensor = tvm_ffi.from_dlpack(buffer)
        buffer.close()
        assert world.blocks_out() == 1
        with weir.from_dlpack(tensor, world.device) as again:
            assert again.fetch() == b"weir"
        del tensor
        assert world.blocks_out() == 0


def a5_the_deleter_is_called_once(world):
    for version in (None, (1, 3)):
        buffer = world.buffer("managed", (4,), data=b"weir")
        source = Counted(buffer)
        given = Given(source.__dlpack__(max_version=version), (abi.CUDA_MANAGED, 0))
        tensor = tvm_ffi.from_dlpack(given.capsule)
        del given
        buffer.close()
        assert source.deletions == 0
        second = tvm_ffi.from_dlpack(tensor)
        del tensor
        assert source.deletions == 0
        del second
        assert source.deletions == 1


def a6_a_capsule_is_consumed_once(world):
    with world.buffer("system", (4,)) as buffer:
        for version in (None, (1, 3)):
            capsule = buffer.__dlpack__(max_version=version)
            tensor = tvm_ffi.from_dlpack(capsule)
            must_raise(TypeError, tvm_ffi.from_dlpack, capsule)
            del tensor, capsule


def a17_a_write_through_a_tensor_is_seen(world):
    for kind in HOST_KINDS:
        with world.buffer(kind, (4,), data=bytes(4)) as buffer:
            tensor = tvm_ffi.from_dlpack(buffer)
            numpy.from_dlpack(tensor)[2] = 8
            assert buffer.fetch() == b"\0\0\b\0"
            buffer.store(b"weir")
            assert bytes(numpy.from_dlpack(tensor)) == b"weir"
            del tensor


def a19_a_round_trip_keeps_the_pointer(world):
    for kind in KINDS:
        with world.buffer(kind, (2, 2), "float64") as buffer:
            for strides in ((2, 1), (1, 2), (0, 1)):
                view = buffer.view((2, 2), strides=strides)
                tensor = tvm_ffi.from_dlpack(view)
                with weir.from_dlpack(tensor, world.device) as again:
                    assert again.ptr == buffer.ptr and again.strides == strides
                    assert again.__dlpack_device__() == buffer.__dlpack_device__()
                del tensor
                view.close()


def c40_a_producer_may_refuse_to_copy(world):
    with world.buffer("pinned", (4,)) as buffer:
        tensor = tvm_ffi.from_dlpack(buffer)
        must_raise(BufferError, weir.from_dlpack, tensor, world.device, copy=True)
        weir.from_dlpack(tensor, world.device, copy=False).close()
        del tensor


def c42_copy_and_device_are_passed_on(world):
    with world.buffer("pinned", (4,)) as buffer:
        source = Counted(tvm_ffi.from_dlpack(buffer))
        weir.from_dlpack(source, world.device, copy=False,
                         dl_device=(abi.CUDA_HOST, 0)).close()
        assert source.asked == [{"max_version": (1, 3), "copy": False,
                                 "dl_device": (abi.CUDA_HOST, 0)}]
        del source


def a14_tvm_allocates_what_weirs_current_resource_has(world):
    ffi = ctypes.CDLL(tvm_ffi.libinfo.find_libtvm_ffi())
    resource, theirs = world.resource("device"), ctypes.c_void_p()
    with weir.Buffer(resource, (1,)) as buffer:
        place = buffer.__dlpack_device__()
    weir.lib.weir_set_current_resource(world.device.handle, resource.handle, None)
    assert ffi.TVMFFIEnvSetDLPackManagedTensorAllocator(
        weir.lib.weir_dlpack_allocate, 0, ctypes.byref(theirs)) == 0
    try:
        for extent, wanted in ((4, 0), (1 << 50, -1)):
            shape, tensor = (ctypes.c_int64 * 2)(3, extent), ctypes.c_void_p()
            prototype = abi.DLTensor(None, abi.DLDevice(*place), 2,
                                     abi.DLDataType(2, 32, 1), shape, None, 0)
            assert ffi.TVMFFIEnvTensorAlloc(ctypes.byref(prototype),
                                            ctypes.byref(tensor)) == wanted
            assert resource.blocks_out() == 1 + wanted
            if wanted == 0:
                assert ffi.TVMFFIObjectDecRef(tensor) == 0
            assert world.blocks_out() == 0
    finally:
        ffi.TVMFFIEnvSetDLPackManagedTensorAllocator(theirs, 0, None)
        weir.lib.weir_set_current_resource(world.device.handle, None, None)
