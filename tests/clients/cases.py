"""cases.py - what the cases of tests/clients share: the world that each runs in, which
has to be empty afterwards, and producers that stand in front of others."""
import ctypes
import gc
import os
import subprocess
import sys
import time

import weir
import weir_abi as abi

SEED = 20261122
AWHILE_S = 10
OPENED = {"stepped": ("emulated", abi.STEPPED), "threads": ("emulated", abi.THREADS),
          "stand-in": ("cuda:0", abi.THREADS), "gpu": ("cuda:0", abi.THREADS)}
HOST_KINDS = ("system", "pinned", "managed")  # which the host can touch
PLACES = {"system": abi.CPU, "pinned": abi.CUDA_HOST, "managed": abi.CUDA_MANAGED}
DELETER = ctypes.CFUNCTYPE(None, ctypes.c_void_p)


class World:
    """A device, and resources over it. When it ends everything has to be back, and the
    device must have nothing to complain of."""

    def __init__(self, label, peer):
        name, scheduler = OPENED[label]
        self.peer, self.label = peer, label
        self.device = weir.Device(name, scheduler, SEED)
        self._resources = {}

    def resource(self, kind):
        """The leaf of that kind, counted; the same one for the same kind."""
        if kind not in self._resources:
            self._resources[kind] = self.device.resource("statistics/" + kind)
        return self._resources[kind]

    def buffer(self, kind, shape, dtype="uint8", data=None, stream=None):
        made = weir.Buffer(self.resource(kind), shape, dtype, stream)
        if data is not None:
            made.store(data)
        return made

    def blocks_out(self):
        """Over all its resources, once nothing waits any more."""
        gc.collect()
        self.device.drain()
        return sum(resource.blocks_out() for resource in self._resources.values())

    def __enter__(self):
        return self

    def __exit__(self, kind, *_):
        if kind is None:
            assert self.blocks_out() == 0, "blocks are still out"
            assert self.device.findings() == 0, "the ledger has found something"
        for resource in self._resources.values():
            resource.close()
        self.device.close()


def only_for(*peers):
    def mark(case):
        case.only_for = peers
        return case
    return mark


def must_raise(kind, function, *arguments, **options):
    """What it raises, which is of this kind and no other."""
    try:
        function(*arguments, **options)
    except Exception as problem:
        assert isinstance(problem, kind), f"raised {problem!r}"
        return problem
    raise AssertionError(f"{kind} was not raised")


def comes_true(condition):
    """Before long: some let go of things on threads, or in processes, of their own."""
    ends = time.monotonic() + AWHILE_S
    while not condition():
        if time.monotonic() > ends:
            return False
        gc.collect()
        time.sleep(0.001)
    return True


class Given:
    """A producer that answers with the capsule that it was given, however often."""

    def __init__(self, capsule, place):
        self.capsule, self.place = capsule, place

    def __dlpack_device__(self):
        return self.place

    def __dlpack__(self, **_):
        return self.capsule


class Counted:
    """A producer in front of another: counts in `deletions` how often the deleter of
    its tensors is called, by a Python function in front of theirs; `asked` is what it
    was asked for, and `tell(tensor)` sees each tensor beforehand."""

    pinned = []  # whoever has a tensor may call its deleter when this is long gone

    def __init__(self, source, tell=None):
        self.source, self.tell, self.asked, self._calls = source, tell, [], []

    @property
    def deletions(self):
        return len(self._calls)

    def __dlpack_device__(self):
        return self.source.__dlpack_device__()

    def __dlpack__(self, **options):
        self.asked.append(options)
        capsule = self.source.__dlpack__(**options)
        held = weir.tensor_in(capsule)
        tensor = (held.versioned or held.legacy).contents
        if self.tell:
            self.tell(tensor)
        theirs, calls = DELETER(tensor.deleter), self._calls

        def delete(address):
            calls.append(address)
            theirs(address)

        self.pinned.append(DELETER(delete))
        tensor.deleter = ctypes.cast(self.pinned[-1], ctypes.c_void_p)
        return capsule


def capsule_name(capsule):
    name = ctypes.pythonapi.PyCapsule_GetName
    name.restype, name.argtypes = ctypes.c_char_p, [ctypes.py_object]
    return name(capsule).decode()


def child(label, code):
    """Runs some Python beside these files in a process of its own, with `device` open;
    its output, once it has ended without a word of complaint."""
    name, scheduler = OPENED[label]
    here = os.path.dirname(os.path.abspath(__file__))
    code = (f"import weir, cases\ndevice = weir.Device({name!r}, {scheduler})\n" + code)
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True,
                          env=dict(os.environ, PYTHONPATH=here), timeout=60,
                          check=False)
    assert (done.returncode, done.stderr) == (0, ""), (done.returncode, done.stderr)
    return done.stdout
