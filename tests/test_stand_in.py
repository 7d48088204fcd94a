#!/usr/bin/python3
"""test_stand_in.py - the stand-in for the CUDA runtime as a shared object: a Python
process uses it, and `weir` finds cuda:0 with it.

Its folder is WEIR_STAND_IN_FOLDER; without one there is nothing to test.
"""
import ctypes
import os
import subprocess
import sys
import unittest

FOLDER = os.environ.get("WEIR_STAND_IN_FOLDER", "")
LIBRARY = os.path.join(FOLDER, "libweir_fake_cudart.so")
BYTES = 1 << 16
DEFAULT = 4  # cudaMemcpyDefault
HOST_FUNCTION = ctypes.CFUNCTYPE(None, ctypes.c_void_p)


class Runtime:
    """The functions of the library, each of which must answer success."""

    def __init__(self):
        self.library = ctypes.CDLL(LIBRARY)

    def __getattr__(self, name):
        function = getattr(self.library, name)

        def call(*arguments):
            error = function(*arguments)
            assert error == 0, f"{name} answered {error}"
        return call


def child(code, **environment):
    """Runs some Python in a process of its own."""
    return subprocess.run([sys.executable, "-c", code], capture_output=True, text=True,
                          env=dict(os.environ, **environment), check=False, timeout=60)


def use_it():
    """Allocates, copies, runs a stream and a graph, twice; asks for what is not so."""
    cuda = Runtime()
    count, ptr, stream = ctypes.c_int(), ctypes.c_void_p(), ctypes.c_void_p()
    cuda.cudaGetDeviceCount(ctypes.byref(count))
    assert count.value == 2
    cuda.cudaSetDevice(0)
    cuda.cudaMalloc(ctypes.byref(ptr), ctypes.c_size_t(BYTES))
    cuda.cudaStreamCreate(ctypes.byref(stream))
    out, back = ctypes.create_string_buffer(b"weir" * (BYTES // 4), BYTES), \
        ctypes.create_string_buffer(BYTES)
    cuda.cudaMemcpyAsync(ptr, out, ctypes.c_size_t(BYTES), DEFAULT, stream)
    cuda.cudaMemcpyAsync(back, ptr, ctypes.c_size_t(BYTES), DEFAULT, stream)
    cuda.cudaStreamSynchronize(stream)
    assert back.raw == out.raw

    runs = []
    function = HOST_FUNCTION(runs.append)
    graph, instance = ctypes.c_void_p(), ctypes.c_void_p()
    cuda.cudaStreamBeginCapture(stream, 0)
    cuda.cudaMemsetAsync(ptr, 7, ctypes.c_size_t(BYTES), stream)
    cuda.cudaLaunchHostFunc(stream, function, None)
    cuda.cudaMemcpyAsync(back, ptr, ctypes.c_size_t(BYTES), DEFAULT, stream)
    assert cuda.library.cudaMalloc(ctypes.byref(ctypes.c_void_p()),
                                   ctypes.c_size_t(BYTES)) == 900
    assert cuda.library.cudaStreamEndCapture(stream, ctypes.byref(graph)) == 901
    assert cuda.library.cudaGetLastError() == 901
    cuda.cudaStreamBeginCapture(stream, 0)
    cuda.cudaMemsetAsync(ptr, 7, ctypes.c_size_t(BYTES), stream)
    cuda.cudaLaunchHostFunc(stream, function, None)
    cuda.cudaMemcpyAsync(back, ptr, ctypes.c_size_t(BYTES), DEFAULT, stream)
    cuda.cudaStreamEndCapture(stream, ctypes.byref(graph))
    cuda.cudaGraphInstantiate(ctypes.byref(instance), graph, ctypes.c_ulonglong(0))
    for _ in range(2):
        cuda.cudaMemset(ptr, 0, ctypes.c_size_t(BYTES))
        cuda.cudaGraphLaunch(instance, stream)
        cuda.cudaStreamSynchronize(stream)
        assert back.raw == b"\x07" * BYTES
    assert len(runs) == 2
    cuda.cudaGraphExecDestroy(instance)
    cuda.cudaGraphDestroy(graph)
    cuda.cudaStreamDestroy(stream)
    assert cuda.library.cudaStreamSynchronize(stream) == 400
    cuda.cudaFree(ptr)
    assert cuda.library.cudaFree(ptr) == 1
    assert cuda.library.cudaPeekAtLastError() == 1


class StandIn(unittest.TestCase):
    """What is claimed above."""

    def run_here(self, wish):
        done = child("import test_stand_in; test_stand_in.use_it()", WEIR_STAND_IN=wish,
                     PYTHONPATH=os.path.dirname(os.path.abspath(__file__)))
        self.assertEqual((done.returncode, done.stderr), (0, ""))

    def test_serves_a_python_process(self):
        self.run_here("threads")

    def test_can_be_stepped(self):
        self.run_here("stepped:7")

    def test_stops_with_the_name_of_what_is_not_provided(self):
        done = child(f"import ctypes; ctypes.CDLL({LIBRARY!r}).cudaMallocArray()")
        self.assertLess(done.returncode, 0)
        self.assertIn("does not provide cudaMallocArray", done.stderr)

    @unittest.skipUnless(os.path.exists(os.path.join(FOLDER, "weir")), "no command")
    def test_is_what_weir_finds_in_its_folder(self):
        done = subprocess.run([os.path.join(FOLDER, "weir"), "info"],
                              capture_output=True, text=True, check=False, timeout=60)
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertIn("cuda:0", done.stdout)
        self.assertIn("stand-in GPU 0", done.stdout)


if __name__ == "__main__":
    if not os.path.exists(LIBRARY):
        print("test_stand_in: there is none in this build")
        sys.exit(77)
    unittest.main()
