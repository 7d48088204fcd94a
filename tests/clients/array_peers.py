"""array_peers.py - libraries whose arrays lie on a GPU, each behind the same few verbs,
so that the cases of cases_arrays.py can be put to all of them.

A peer works on streams of its own, without making the host wait, but where that is
said. Arrays are COUNT bytes. NotThere: the library, or the part of it that knows GPUs,
is not on this machine. Refused: it is there, and cannot work here even by itself.
"""
import ctypes
import importlib
import math
import os
import time

import cudart
import weir
import weir_abi as abi

COUNT = 1 << 20


class NotThere(Exception):
    pass


class Refused(Exception):
    pass


class Peer:
    """What holds for most. `module` is what has to be imported; `by_interface`: arrays
    are taken by __cuda_array_interface__, and else by DLPack."""

    module = None
    by_interface = False
    writes = True  # arrays can be written to
    # What it lets go of it does so at once, work under way or not: of what was lent to
    # it, and of its own memory, which is the next array's then.
    lets_go = reuses = True
    is_stalled = True  # for certain, where it was told to; else a case may show nothing

    def __init__(self, runtime):
        self.runtime = runtime
        if self.module:
            self.library = importlib.import_module(self.module)
        self.begin()

    def begin(self):
        """Finds its GPU, or raises."""

    @property
    def version(self):
        return f"{self.module} {self.library.__version__}"

    def stall(self, stream, ms):
        """What is put on `stream` from now on begins so much later."""
        self.runtime.stall(self.number(stream), ms)

    def sync(self):
        self.runtime.sync()

    def lend(self, array, _stream):
        """What stands for `array` where somebody else takes it; what is on the stream
        is what was done to it."""
        return array


# --- CUDA's runtime --------------------------------------------------------------

DELETER = ctypes.CFUNCTYPE(None, ctypes.c_void_p)
_new_capsule = ctypes.pythonapi.PyCapsule_New
_new_capsule.restype = ctypes.py_object
_new_capsule.argtypes = [ctypes.c_void_p, ctypes.c_char_p, ctypes.c_void_p]
CAPSULE_NAME = b"dltensor_versioned"  # capsules keep its address
exported = {}  # what nobody has deleted yet, by address


@DELETER
def delete_exported(address):
    del exported[address]


class RuntimeArray:
    """Memory of the runtime's; goes back to its peer, or to whoever lent it."""

    def __init__(self, ptr, give_back, stream=None):
        self.ptr, self._give_back = ptr, give_back
        self.stream = stream  # where it was worked on last

    def __del__(self):
        self._give_back()


class RuntimeLender:
    """Such an array as others take it: a producer as DLPack's specification wants it,
    and with CUDA's array interface."""

    def __init__(self, runtime, array, stream):
        self._runtime, self._array, self._stream = runtime, array, stream

    def __dlpack_device__(self):
        return abi.CUDA, 0

    def __dlpack__(self, *, stream=None, max_version=None, **_):
        assert max_version >= (1, 0), max_version
        self._runtime.stream_wait(stream or 1, self._stream)
        tensor = abi.DLManagedTensorVersioned()
        tensor.version = abi.DLPackVersion(*abi.VERSION)
        tensor.deleter = ctypes.cast(delete_exported, ctypes.c_void_p)
        shape, strides = (ctypes.c_int64 * 1)(COUNT), (ctypes.c_int64 * 1)(1)
        tensor.dl_tensor = abi.DLTensor(self._array.ptr, abi.DLDevice(abi.CUDA, 0), 1,
                                        abi.DLDataType(1, 8, 1), shape, strides, 0)
        address = ctypes.addressof(tensor)
        exported[address] = tensor, shape, strides, self._array
        return _new_capsule(address, CAPSULE_NAME, None)

    @property
    def __cuda_array_interface__(self):
        return {"version": 3, "shape": (COUNT,), "typestr": "|u1", "strides": None,
                "data": (self._array.ptr, False), "stream": self._stream}


class RuntimePeer(Peer):
    """No library: this file itself, over CUDA's runtime. It keeps what was let go of,
    and hands that out again at once."""

    def begin(self):
        self._spare, self._streams = [], []

    @property
    def version(self):
        return "CUDA's runtime"

    def stream(self):
        if not self._streams:
            self._streams.append(self.runtime.stream_create())
        return self._streams[0]

    def number(self, stream):
        return stream

    def full(self, value, stream):
        ptr = self._spare.pop() if self._spare else self.runtime.malloc(COUNT)
        return self.fill(RuntimeArray(ptr, lambda: self._spare.append(ptr)), value,
                         stream)

    def fill(self, array, value, stream):
        self.runtime.fill(array.ptr, value, COUNT, stream)
        return array

    def copy(self, target, source, stream):
        self.runtime.copy(target.ptr, source.ptr, COUNT, stream)
        return target

    def octets(self, array, stream):
        return self.runtime.fetch(array.ptr, COUNT, stream)

    def ptr(self, array):
        return array.ptr

    def lend(self, array, stream):
        return RuntimeLender(self.runtime, array, stream)

    def take(self, source, stream):
        capsule = source.__dlpack__(stream=stream, max_version=abi.VERSION)
        held = weir.tensor_in(capsule)
        tensor = held.versioned.contents
        inner = tensor.dl_tensor
        assert (inner.device.device_type, inner.device.device_id) == (abi.CUDA, 0)
        assert (inner.ndim, inner.shape[0], inner.strides[0]) == (1, COUNT, 1)
        weir._helper.client_capsule_set_used(capsule)
        delete = DELETER(tensor.deleter)
        return RuntimeArray(inner.data + inner.byte_offset,
                            lambda: delete(ctypes.addressof(tensor)))


class InterfacePeer(RuntimePeer):
    """The same by CUDA's array interface."""

    by_interface = True

    def take(self, source, stream):
        seen = source.__cuda_array_interface__
        assert (seen["version"], seen["shape"], seen["strides"]) == (3, (COUNT,), None)
        self.runtime.stream_wait(stream, seen["stream"])
        kept = [source]
        return RuntimeArray(seen["data"][0], kept.clear)


# --- libraries -------------------------------------------------------------------

class OnStream:
    """An array that is exported while its library's current stream is that on which it
    was worked on."""

    def __init__(self, array, stream):
        self._array, self._stream = array, stream

    def __dlpack_device__(self):
        return self._array.__dlpack_device__()

    def __dlpack__(self, **options):
        with self._stream:
            return self._array.__dlpack__(**options)


class TorchPeer(Peer):
    module = "torch"

    def begin(self):
        torch = self.library
        if torch.version.cuda is None:
            raise NotThere(f"torch for CUDA; there is {torch.__version__}")
        if not torch.cuda.is_available():
            raise Refused("PyTorch finds no GPU")
        torch.cuda.init()

    def stream(self):
        return self.library.cuda.Stream()

    def number(self, stream):
        return stream.cuda_stream

    def _on(self, stream):
        return self.library.cuda.stream(stream)

    def full(self, value, stream):
        with self._on(stream):
            return self.library.full((COUNT,), value, dtype=self.library.uint8,
                                     device="cuda:0")

    def fill(self, array, value, stream):
        with self._on(stream):
            return array.fill_(value)

    def copy(self, target, source, stream):
        with self._on(stream):
            return target.copy_(source, non_blocking=True)

    def octets(self, array, stream):
        with self._on(stream):
            return array.cpu().numpy().tobytes()

    def ptr(self, array):
        return array.data_ptr()

    def take(self, source, stream):
        with self._on(stream):
            return self.library.from_dlpack(source)

    def lend(self, array, stream):
        return OnStream(array, self._on(stream))


class CupyPeer(Peer):
    """Without a kernel of CuPy's, which would have to be compiled first."""

    module = "cupy"

    def begin(self):
        self.library.cuda.runtime.getDeviceCount()

    def stream(self):
        return self.library.cuda.Stream(non_blocking=True)

    def number(self, stream):
        return stream.ptr

    def full(self, value, stream):
        with stream:
            return self.fill(self.library.empty((COUNT,), "uint8"), value, stream)

    def fill(self, array, value, stream):
        array.data.memset_async(value, COUNT, stream)
        return array

    def copy(self, target, source, stream):
        target.data.copy_from_device_async(source.data, COUNT, stream)
        return target

    def octets(self, array, stream):
        out = self.library.asnumpy(array, stream=stream)
        stream.synchronize()
        return out.tobytes()

    def ptr(self, array):
        return array.data.ptr

    def take(self, source, stream):
        with stream:
            return self.library.from_dlpack(source)

    def lend(self, array, stream):
        return OnStream(array, stream)


class NumbaPeer(Peer):
    """By CUDA's array interface; without a kernel, likewise. Taking an array makes the
    host wait for its stream."""

    module = "numba"
    by_interface = True
    reuses = False

    def begin(self):
        self.cuda = importlib.import_module("numba.cuda")
        self._driver = importlib.import_module("numba.cuda.cudadrv.driver")
        if not self.cuda.is_available():
            raise Refused("Numba finds no GPU")

    def stream(self):
        return self.cuda.stream()

    def number(self, stream):
        return int(stream)

    def full(self, value, stream):
        return self.fill(self.cuda.device_array((COUNT,), "uint8", stream=stream),
                         value, stream)

    def fill(self, array, value, stream):
        self._driver.device_memset(array, value, COUNT, stream=stream)
        return array

    def copy(self, target, source, stream):
        self._driver.device_to_device(target, source, COUNT, stream=stream)
        return target

    def octets(self, array, stream):
        out = array.copy_to_host(stream=stream)
        stream.synchronize()
        return out.tobytes()

    def ptr(self, array):
        return array.__cuda_array_interface__["data"][0]

    def take(self, source, _stream):
        return self.cuda.as_cuda_array(source)


class JaxPeer(Peer):
    """Its streams have no names, and its arrays are never written to: new ones take
    their place, and their memory where they are given up for it. What is asked of it it
    does in order. It keeps what it was lent until its own work is done."""

    module = "jax"
    writes = lets_go = reuses = is_stalled = False
    LOAD_BYTES = 1 << 28

    def begin(self):
        jax = self.library
        try:
            device = jax.devices("cuda")[0]
        except RuntimeError as problem:
            if "no platforms" in str(problem):
                raise NotThere(f"jax for CUDA: {problem}") from None
            raise Refused(str(problem)) from None
        jax.config.update("jax_default_device", device)
        numpy = importlib.import_module("jax.numpy")
        self._full = jax.jit(lambda value: numpy.full((COUNT,), value, "uint8"))
        self._fill = jax.jit(lambda _, value: numpy.full((COUNT,), value, "uint8"),
                             donate_argnums=0, keep_unused=True)
        self._copy = jax.jit(numpy.copy)
        self._work = jax.jit(lambda load: jax.lax.fori_loop(
            0, 64, lambda i, seen: seen * 3 + i.astype("uint8"), load))
        self._load = numpy.zeros((self.LOAD_BYTES,), "uint8")
        self._take = importlib.import_module("jax.dlpack").from_dlpack
        self._turn().block_until_ready()
        begun_s = time.perf_counter()
        self._turn().block_until_ready()
        self._ms_a_turn = max((time.perf_counter() - begun_s) * 1000, 0.1)

    def stream(self):
        return None

    def _turn(self):
        self._load = self._work(self._load)
        return self._load

    def stall(self, stream, ms):
        for _ in range(math.ceil(ms / self._ms_a_turn)):
            self._turn()

    def full(self, value, stream):
        return self._full(value)

    def fill(self, array, value, stream):
        return self._fill(array, value)

    def copy(self, target, source, stream):
        return self._copy(source)

    def octets(self, array, stream):
        return bytes(memoryview(self.library.device_get(array)))

    def ptr(self, array):
        return array.unsafe_buffer_pointer()

    def take(self, source, stream):
        return self._take(source)


PEERS = {"cudart": RuntimePeer, "cudart_cai": InterfacePeer, "torch": TorchPeer,
         "cupy": CupyPeer, "jax": JaxPeer, "numba": NumbaPeer}
# So that no two streams share a queue, and one library leaves memory to the others.
ENVIRONMENT = {"CUDA_DEVICE_MAX_CONNECTIONS": "32",
               "XLA_PYTHON_CLIENT_PREALLOCATE": "false"}
_begun = {}


def begun(name):
    """The peer of that name, once it has shown that it can work by itself."""
    if name in _begun:
        return _begun[name]
    os.environ.update(ENVIRONMENT)
    kind = PEERS[name]
    try:
        peer = kind(cudart.Runtime())
    except (ImportError, OSError) as problem:
        raise NotThere(f"{kind.module or 'libcudart.so'}: {problem}") from None
    except (NotThere, Refused):
        raise
    except Exception as problem:
        raise Refused(f"{type(problem).__name__}: {problem}") from None
    try:
        stream = peer.stream()
        peer.stall(stream, 1)
        seen = peer.octets(peer.copy(peer.full(1, stream), peer.full(2, stream),
                                     stream), stream)
    except Exception as problem:
        raise Refused(f"{type(problem).__name__}: {problem}") from None
    if seen != bytes([2]) * COUNT:
        raise Refused("it does not find again what it wrote itself")
    _begun[name] = peer
    return peer
