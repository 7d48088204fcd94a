"""cudart.py - what the peers of array_peers.py need of CUDA's runtime, over ctypes: on
a GPU the toolkit's own library, and over the stand-in that.

A stream is stalled by a host function that sleeps: whatever comes behind it on that
stream waits, other streams do not, and no thread of Python's is needed for it to end.
"""
import ctypes
import glob
import os
import sys
from ctypes import byref, c_int, c_size_t, c_uint, c_void_p

NON_BLOCKING, NO_TIMING = 1, 2  # cudaStreamNonBlocking, cudaEventDisableTiming
ANY_WAY = 4  # cudaMemcpyDefault
STAND_IN = "libweir_fake_cudart.so"

_FUNCTIONS = {
    "cudaStreamCreateWithFlags": [c_void_p, c_uint],
    "cudaStreamDestroy": [c_void_p],
    "cudaStreamSynchronize": [c_void_p],
    "cudaStreamWaitEvent": [c_void_p, c_void_p, c_uint],
    "cudaEventCreateWithFlags": [c_void_p, c_uint],
    "cudaEventDestroy": [c_void_p],
    "cudaEventRecord": [c_void_p, c_void_p],
    "cudaDeviceSynchronize": [],
    "cudaMalloc": [c_void_p, c_size_t],
    "cudaFree": [c_void_p],
    "cudaMemcpyAsync": [c_void_p, c_void_p, c_size_t, c_int, c_void_p],
    "cudaMemsetAsync": [c_void_p, c_int, c_size_t, c_void_p],
    "cudaLaunchHostFunc": [c_void_p, c_void_p, c_void_p],
}


def places():
    """Where the library may be: beside Weir's, if that is over the stand-in; else where
    the loader, the toolkit and wheels of NVIDIA's have it."""
    stand_in = os.path.join(os.path.dirname(os.environ["WEIR_LIBRARY"]), STAND_IN)
    if os.path.exists(stand_in):
        return [stand_in]
    toolkit = os.environ.get("CUDA_HOME", "/usr/local/cuda")
    found = glob.glob(os.path.join(toolkit, "lib*/libcudart.so"))
    for folder in sys.path:
        found += glob.glob(os.path.join(folder, "nvidia/*/lib/libcudart.so.*"))
    return ["libcudart.so", "libcudart.so.13", "libcudart.so.12", *found]


def open_library():
    """OSError: it is nowhere."""
    problem = None
    for place in places():
        try:
            return ctypes.CDLL(place)
        except OSError as seen:
            problem = seen
    raise problem


class Runtime:
    """The runtime, of device 0; what it refuses is a RuntimeError with CUDA's name for
    it."""

    def __init__(self):
        self.lib = open_library()
        self.lib.cudaGetErrorName.restype = ctypes.c_char_p

        def look(error, function, _arguments):
            if error != 0:
                name = self.lib.cudaGetErrorName(error).decode()
                raise RuntimeError(f"{function.__name__} answered {name}")

        for name, arguments in _FUNCTIONS.items():
            function = getattr(self.lib, name)
            function.argtypes, function.errcheck = arguments, look
        self._sleep = ctypes.cast(ctypes.CDLL(None).usleep, c_void_p)

    def sync(self):
        self.lib.cudaDeviceSynchronize()

    def stream_create(self):
        """A handle, of a stream that does not mind the legacy one."""
        made = c_void_p()
        self.lib.cudaStreamCreateWithFlags(byref(made), NON_BLOCKING)
        return made.value

    def stream_sync(self, stream):
        self.lib.cudaStreamSynchronize(stream)

    def stream_wait(self, stream, other):
        """What is put on `stream` from now on waits for all that is on `other`."""
        event = c_void_p()
        self.lib.cudaEventCreateWithFlags(byref(event), NO_TIMING)
        self.lib.cudaEventRecord(event, other)
        self.lib.cudaStreamWaitEvent(stream, event, 0)
        self.lib.cudaEventDestroy(event)

    def stall(self, stream, ms):
        if ms:
            self.lib.cudaLaunchHostFunc(stream, self._sleep, ms * 1000)

    def malloc(self, count):
        made = c_void_p()
        self.lib.cudaMalloc(byref(made), count)
        return made.value

    def free(self, ptr):
        self.lib.cudaFree(ptr)

    def fill(self, ptr, value, count, stream):
        self.lib.cudaMemsetAsync(ptr, value, count, stream)

    def copy(self, target, source, count, stream):
        self.lib.cudaMemcpyAsync(target, source, count, ANY_WAY, stream)

    def fetch(self, ptr, count, stream):
        """The bytes, once what is on the stream is done."""
        out = ctypes.create_string_buffer(count)
        self.copy(out, ptr, count, stream)
        self.stream_sync(stream)
        return out.raw
