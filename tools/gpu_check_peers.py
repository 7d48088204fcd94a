"""gpu_check_peers - replays a trace through another library's allocator, on one stream.

    gpu_check_peers.py torch|cupy|nothing TRACE FOLDER

Prints what `weir replay --json` does, as far as it is known: time per event, and the
peaks of what was held and of what was live. PyTorch's allocator is called from C++
(gpu_check_torch.cc, compiled into FOLDER) as PyTorch itself calls it; where that does
not compile, and for CuPy, whose pool is made to be called from Python, the calls are
made from Python and the time of the loop itself is taken off. `nothing` is that loop.
"""
import array
import ctypes
import gzip
import json
import os
import subprocess
import sys
import time

HERE = os.path.dirname(os.path.abspath(__file__))


def events_of(path):
    """(sizes, events): the size of each block, and an index for each allocation and
    -1 - index for each free; with the peak of what is live."""
    sizes, events, index_of = array.array("q"), array.array("q"), {}
    live = peak = 0
    with gzip.open(path, "rt", encoding="ascii") as file:
        next(file)
        for line in file:
            _, _, _, operation, name, size = line.split(",")
            if operation == "A":
                index_of[name] = len(sizes)
                events.append(len(sizes))
                sizes.append(int(size))
                live += int(size)
                peak = max(peak, live)
            else:
                index = index_of.pop(name)
                events.append(-1 - index)
                live -= sizes[index]
    return sizes, events, peak


def loop_ns(sizes, events, allocate, free):
    """The ns that all events take from Python; what is live at the end is freed after
    that."""
    blocks = [None] * len(sizes)
    begun = time.perf_counter_ns()
    for event in events:
        if event >= 0:
            blocks[event] = allocate(sizes[event])
        else:
            free(blocks[-1 - event])
            blocks[-1 - event] = None
    took = time.perf_counter_ns() - begun
    for block in blocks:
        if block is not None:
            free(block)
    return took


def loop_alone_ns(sizes, events):
    return loop_ns(sizes, events, lambda size: size, lambda block: None)


# --- PyTorch ---------------------------------------------------------------------

def torch_shim(torch, folder):
    """The function of gpu_check_torch.cc; None: it does not compile here."""
    place = os.path.dirname(torch.__file__)
    built = os.path.join(folder, "libgpu_check_torch.so")
    cuda = os.environ.get("CUDA_HOME", "/usr/local/cuda")
    if not os.path.exists(built):
        command = ["g++", "-O2", "-std=c++20", "-shared", "-fPIC", "-o", built,
                   os.path.join(HERE, "gpu_check_torch.cc"),
                   "-I", os.path.join(place, "include"),
                   "-I", os.path.join(cuda, "include"),
                   "-L", os.path.join(place, "lib"), "-lc10_cuda", "-lc10"]
        said = subprocess.run(command, stderr=subprocess.PIPE, text=True, check=False)
        if said.returncode != 0:
            print(said.stderr[-2000:], file=sys.stderr)
            return None
    function = ctypes.CDLL(built).gpu_check_torch
    function.restype = ctypes.c_double
    function.argtypes = [ctypes.c_void_p, ctypes.c_void_p, ctypes.c_int64,
                         ctypes.c_int64]
    return function


def torch_run(sizes, events, folder):
    import torch
    if not torch.cuda.is_available():
        sys.exit("operation not supported: PyTorch finds no GPU")
    torch.cuda.init()
    torch.cuda.caching_allocator_delete(torch.cuda.caching_allocator_alloc(512))
    torch.cuda.empty_cache()
    torch.cuda.reset_peak_memory_stats()
    shim = torch_shim(torch, folder)
    if shim is not None:
        ns = shim(sizes.buffer_info()[0], events.buffer_info()[0], len(sizes),
                  len(events))
        how = "from C++"
    else:
        ns = loop_ns(sizes, events, torch.cuda.caching_allocator_alloc,
                     torch.cuda.caching_allocator_delete)
        ns -= loop_alone_ns(sizes, events)
        how = "from Python, without the loop"
    return ns, torch.cuda.memory_stats()["reserved_bytes.all.peak"], how


# --- CuPy, and nothing -----------------------------------------------------------

def cupy_run(sizes, events, folder):
    import cupy
    pool = cupy.cuda.MemoryPool()
    pool.malloc(512)
    pool.free_all_blocks()
    ns = loop_ns(sizes, events, pool.malloc, lambda block: None)
    ns -= loop_alone_ns(sizes, events)
    return ns, pool.total_bytes(), "from Python, without the loop"


def nothing_run(sizes, events, folder):
    return loop_alone_ns(sizes, events), 0, "the loop in Python"


def main():
    runs = {"torch": torch_run, "cupy": cupy_run, "nothing": nothing_run}
    if len(sys.argv) != 4 or sys.argv[1] not in runs:
        sys.exit(__doc__)
    sizes, events, peak = events_of(sys.argv[2])
    ns, held, how = runs[sys.argv[1]](sizes, events, sys.argv[3])
    result = {"ns_per_event": ns / len(events), "peak_live_bytes": peak,
              "peak_held_bytes": held, "how": how,
              "held_over_live": held / peak if held else None}
    print(json.dumps({"results": [result]}))


if __name__ == "__main__":
    main()
