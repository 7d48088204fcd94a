"""planted.py - stands for PyTorch, CuPy and Numba where there is no GPU: as much of
them as array_peers.py asks for, over CUDA's runtime. What array_peers.py makes of its
libraries can be tried so; how the libraries themselves are is for a GPU to tell.

A module of a library's name, found before all others, takes `torch`, `cupy` or `numba`
of here for itself.
"""
import sys
from types import ModuleType, SimpleNamespace

import cudart
from array_peers import COUNT, InterfacePeer, RuntimePeer

runtime = cudart.Runtime()
by_dlpack, by_interface = RuntimePeer(runtime), InterfacePeer(runtime)
current = []  # streams that are entered, the innermost last


class Stream:
    """One of its own, entered as CuPy's is."""

    def __init__(self, non_blocking=False):
        self.ptr = self.cuda_stream = self.handle = runtime.stream_create()

    def __int__(self):
        return self.handle

    def __enter__(self):
        current.append(self)

    def __exit__(self, *_):
        current.pop()

    def synchronize(self):
        runtime.stream_sync(self.handle)


class Octets:
    """On the host, in place of an array of NumPy's."""

    def __init__(self, octets):
        self._octets = octets

    def numpy(self):
        return self

    def tobytes(self):
        return self._octets


class Array:
    """Of any of them; what it is asked without a stream it does on the current one."""

    def __init__(self, inner, stream=None):
        self.inner, self.stream = inner, stream

    def __dlpack_device__(self):
        return 2, 0

    def __dlpack__(self, **options):
        lender = by_dlpack.lend(self.inner, current[-1].handle)
        return lender.__dlpack__(**options)

    def fill_(self, value):
        by_dlpack.fill(self.inner, value, current[-1].handle)
        return self

    def copy_(self, source, non_blocking):
        assert non_blocking
        by_dlpack.copy(self.inner, source.inner, current[-1].handle)
        return self

    def cpu(self):
        return Octets(by_dlpack.octets(self.inner, current[-1].handle))

    def data_ptr(self):
        return self.inner.ptr

    @property
    def data(self):
        return SimpleNamespace(
            ptr=self.inner.ptr, inner=self.inner,
            memset_async=lambda value, size, stream: runtime.fill(
                self.inner.ptr, value, size, stream.handle),
            copy_from_device_async=lambda source, size, stream: runtime.copy(
                self.inner.ptr, source.ptr, size, stream.handle))

    def copy_to_host(self, stream):
        return Octets(by_dlpack.octets(self.inner, stream.handle))

    @property
    def __cuda_array_interface__(self):
        lender = by_interface.lend(self.inner, self.stream.handle)
        return lender.__cuda_array_interface__


def full(shape, value, dtype=None, device=None):
    assert shape == (COUNT,)
    return Array(by_dlpack.full(value, current[-1].handle))


def from_dlpack(source):
    return Array(by_dlpack.take(source, current[-1].handle))


torch = SimpleNamespace(
    __version__="planted", version=SimpleNamespace(cuda="0"), uint8="uint8", full=full,
    from_dlpack=from_dlpack, cuda=SimpleNamespace(
        is_available=lambda: True, init=lambda: None, Stream=Stream,
        stream=lambda stream: stream))
cupy = SimpleNamespace(
    __version__="planted", from_dlpack=from_dlpack,
    empty=lambda shape, dtype: full(shape, 0),
    asnumpy=lambda array, stream: array.copy_to_host(stream),
    cuda=SimpleNamespace(Stream=Stream,
                         runtime=SimpleNamespace(getDeviceCount=lambda: 1)))


# --- Numba, whose parts are modules ----------------------------------------------

def as_cuda_array(source):
    """The host waits, as with Numba."""
    seen = source.__cuda_array_interface__
    runtime.stream_sync(seen["stream"])
    return Array(by_interface.take(source, seen["stream"]),
                 SimpleNamespace(handle=seen["stream"]))


numba = ModuleType("numba")
numba.__version__, numba.__path__ = "planted", []
numba.cuda = ModuleType("numba.cuda")
numba.cuda.is_available, numba.cuda.stream = lambda: True, Stream
numba.cuda.as_cuda_array = as_cuda_array
numba.cuda.device_array = lambda shape, dtype, stream: Array(
    by_dlpack.full(0, stream.handle), stream)
driver = ModuleType("numba.cuda.cudadrv.driver")
driver.device_memset = lambda array, value, size, stream: runtime.fill(
    array.inner.ptr, value, size, stream.handle)
driver.device_to_device = lambda target, source, size, stream: runtime.copy(
    target.inner.ptr, source.inner.ptr, size, stream.handle)
PARTS = {"numba.cuda": numba.cuda, "numba.cuda.cudadrv": ModuleType("cudadrv"),
         "numba.cuda.cudadrv.driver": driver}


def take_place_of(name):
    sys.modules[name] = globals()[name]
    if name == "numba":
        sys.modules.update(PARTS)
