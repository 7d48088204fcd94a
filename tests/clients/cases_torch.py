"""cases_torch.py - PyTorch, as Debian has it: legacy capsules, and memory of the host
alone. It refuses pinned and managed memory."""
import numpy
import torch

import weir
import weir_abi as abi
from cases import Counted, Given, must_raise

TYPES = ("int8", "int16", "int32", "int64", "uint8", "float16", "float32", "float64",
         "complex64", "complex128")


def a1_values_shape_strides_and_type_arrive(world):
    for dtype in TYPES:
        wanted = numpy.arange(12).astype(dtype).reshape(3, 4)
        with world.buffer("system", (3, 4), dtype, wanted.tobytes()) as buffer:
            tensor = torch.from_dlpack(buffer)
            assert tensor.dtype == getattr(torch, dtype)
            assert (tuple(tensor.shape), tensor.stride()) == ((3, 4), (4, 1))
            assert numpy.array_equal(tensor.numpy(), wanted)
            turned = buffer.view((4, 3), strides=(1, 4))
            assert torch.equal(torch.from_dlpack(turned), tensor.t())
            turned.close()


def a2_a_tensor_keeps_the_bytes_alone(world):
    buffer = world.buffer("system", (4,), data=b"weir")
    tensor = torch.from_dlpack(buffer)
    buffer.close()
    assert world.blocks_out() == 1 and bytes(tensor.tolist()) == b"weir"
    del tensor
    assert world.blocks_out() == 0


def a5_the_deleter_is_called_once(world):
    buffer = world.buffer("system", (4,), data=b"weir")
    source = Counted(buffer)
    tensor = torch.from_dlpack(source)
    part = tensor[1:3]
    del tensor
    buffer.close()
    assert source.deletions == 0 and bytes(part.tolist()) == b"ei"
    del part
    assert source.deletions == 1


def a6_a_capsule_is_consumed_once(world):
    with world.buffer("system", (4,)) as buffer:
        given = Given(buffer.__dlpack__(), (abi.CPU, 0))
        tensor = torch.from_dlpack(given)
        must_raise(RuntimeError, torch.from_dlpack, given)
        del given, tensor


def a7_what_torch_refuses_is_deleted_once(world):
    for kind in ("pinned", "managed"):
        with world.buffer(kind, (4,)) as buffer:
            source = Counted(buffer)
            must_raise((RuntimeError, BufferError), torch.from_dlpack, source)
            assert source.deletions == 1


def a17_a_write_on_either_side_is_seen(world):
    with world.buffer("system", (4,), data=bytes(4)) as buffer:
        tensor = torch.from_dlpack(buffer)
        tensor[1] = 9
        assert buffer.fetch() == b"\0\t\0\0"
        buffer.store(b"weir")
        assert bytes(tensor.tolist()) == b"weir"
        tensor.fill_(7)
        assert buffer.memoryview().tolist() == [7] * 4


def a19_a_round_trip_keeps_the_pointer(world):
    with world.buffer("system", (4,), "float32") as buffer:
        tensor = torch.from_dlpack(buffer)
        assert tensor.data_ptr() == buffer.ptr
        with weir.from_dlpack(tensor, world.device) as again:
            assert again.ptr == buffer.ptr and again.shape == (4,)
        assert numpy.from_dlpack(tensor).__array_interface__["data"][0] == buffer.ptr
    mine = torch.zeros(4)
    with weir.from_dlpack(mine, world.device) as buffer:
        assert torch.from_dlpack(buffer).data_ptr() == mine.data_ptr() == buffer.ptr


def a11_strides_and_parts_of_tensors_are_taken(world):
    base = torch.arange(24, dtype=torch.int32).reshape(4, 6)
    for tensor in (base, base.t(), base[1:, 2:], base[:, ::2], base[:0], base[0, 0],
                   base[:1].expand(4, 6)):
        with weir.from_dlpack(tensor, world.device) as buffer:
            assert buffer.shape == tuple(tensor.shape)
            assert tensor.numel() == 0 or buffer.ptr == tensor.data_ptr()
            assert torch.equal(torch.from_dlpack(buffer), tensor)


def b20_what_is_not_contiguous_is_refused_where_asked(world):
    base = torch.zeros(4, 6)
    must_raise(BufferError, weir.from_dlpack, base.t(), world.device, contiguous=True)
    weir.from_dlpack(base, world.device, contiguous=True).close()


def b22_whichever_goes_first_the_bytes_stay(world):
    tensor = torch.arange(4, dtype=torch.uint8)
    source = Counted(tensor)
    buffer = weir.from_dlpack(source, world.device)
    source.source = None
    del tensor
    assert buffer.fetch() == b"\0\1\2\3" and source.deletions == 0
    buffer.close()
    world.device.drain()
    assert source.deletions == 1


def b23_a_write_on_either_side_is_seen(world):
    tensor = torch.zeros(4, dtype=torch.uint8)
    with weir.from_dlpack(tensor, world.device) as buffer:
        tensor[3] = 5
        assert buffer.fetch() == b"\0\0\0\5"
        buffer.store(b"weir")
        assert bytes(tensor.tolist()) == b"weir"


def c41_torch_is_asked_again_without_what_it_does_not_know(world):
    source = Counted(torch.zeros(4))
    weir.from_dlpack(source, world.device).close()
    assert len(source.asked) == 2 and source.asked[1] == {}
