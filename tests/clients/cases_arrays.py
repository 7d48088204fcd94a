"""cases_arrays.py - arrays in memory of a GPU, handed to other libraries and taken from
them, with streams that are busy: what waits for nobody has wrong bytes then.

Each case about order is tried twice: once as it should be, and once by somebody who
makes the wrong stream wait, or does not say what is under way. That has to end in wrong
bytes, or else the case would show nothing.
"""
import gc
import weakref

import array_peers
import weir
import weir_abi as abi
from array_peers import COUNT
from cases import Counted, comes_true

OLD, NEW = 0x11, 0x22
BUSY_MS = (100, 400, 1600)
OTHERS = 8
POOL = f"pool(initial={COUNT}, limit={COUNT}, cache=none)/device"  # of one block


class NotShown(Exception):
    """Nothing went wrong where it should have."""


class Decoy:
    """A producer in front of another, by either protocol: has `stream` made ready,
    whatever its consumer asks for."""

    def __init__(self, source, stream):
        self._source, self._stream = source, stream

    def __dlpack_device__(self):
        return self._source.__dlpack_device__()

    def __dlpack__(self, **options):
        return self._source.__dlpack__(**dict(options, stream=self._stream.handle))

    @property
    def __cuda_array_interface__(self):
        return dict(self._source.__cuda_array_interface__, stream=self._stream.handle)


class Scene:
    """Streams of both sides, and what a case does with them. Weir's first one and the
    peer's may be busy; the other one of Weir's never is."""

    def __init__(self, world):
        self.world, self.device = world, world.device
        self.peer = array_peers.begun(world.peer)
        self.ours, self.idle = self.device.stream(), self.device.stream()
        self.theirs = self.peer.stream()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.sync()
        self.ours.close()
        self.idle.close()

    def sync(self):
        self.device.sync()
        self.peer.sync()

    def buffer(self, value, kind="device"):
        """One of Weir's, on its busy stream, with nothing under way."""
        made = self.world.buffer(kind, (COUNT,), stream=self.ours)
        made.fill(value)
        self.sync()
        return made

    def array(self, value):
        """One of the peer's, likewise."""
        made = self.peer.full(value, self.theirs)
        self.sync()
        return made

    def stall_ours(self, ms):
        self.peer.runtime.stall(self.ours.handle, ms)

    def stall_theirs(self, ms):
        self.peer.stall(self.theirs, ms)

    def take(self, source):
        return self.peer.take(source, self.theirs)

    def receive(self, source):
        """What the peer lends, as a buffer on Weir's busy stream."""
        take = weir.from_cuda_array if self.peer.by_interface else weir.from_dlpack
        return take(source, self.device, stream=self.ours)

    def octets(self, array):
        return self.peer.octets(array, self.theirs)

    def seen(self, array):
        """The same from another array, which it is copied to."""
        target = self.peer.copy(self.array(0), array, self.theirs)
        return self.octets(target)


def all_are(octets, value):
    return octets == bytes([value]) * COUNT


def is_ordered(world, play):
    """`play(scene, ms, rightly)` tells whether the bytes were right. The first time is
    for what libraries load and allocate then, which may make the device wait."""
    with Scene(world) as scene:
        for ms in (0, BUSY_MS[0]):
            assert play(scene, ms, True), f"wrong bytes, behind {ms} ms"


def is_seen_to_fail(world, play):
    with Scene(world) as scene:
        play(scene, 0, False)
        for ms in BUSY_MS:
            if not play(scene, ms, False):
                return
        raise NotShown(f"all bytes were right, behind {ms} ms")


def only_where(trait, case):
    """The case is for peers with that trait."""
    case.only_for = tuple(name for name, kind in array_peers.PEERS.items()
                          if getattr(kind, trait))


# --- who waits for whom ----------------------------------------------------------

def ours_is_read(scene, ms, rightly):
    """The peer reads what is still to be written on Weir's stream."""
    buffer, target = scene.buffer(OLD), scene.array(0)
    scene.stall_ours(ms)
    buffer.fill(NEW)
    array = scene.take(buffer if rightly else Decoy(buffer, scene.idle))
    target = scene.peer.copy(target, array, scene.theirs)
    octets = scene.octets(target)
    scene.sync()
    return all_are(octets, NEW)


def theirs_is_read(scene, ms, rightly):
    """Weir reads what is still to be written on the peer's."""
    array = scene.array(OLD)
    scene.stall_theirs(ms)
    array = scene.peer.fill(array, NEW, scene.theirs)
    source = scene.peer.lend(array, scene.theirs)
    with scene.receive(source if rightly else Decoy(source, scene.idle)) as made:
        octets = made.fetch()
    scene.sync()
    return all_are(octets, NEW)


def a9_the_peers_stream_waits_for_ours(world):
    is_ordered(world, ours_is_read)


def also_without_that_wait_the_peer_reads_old_bytes(world):
    is_seen_to_fail(world, ours_is_read)


def a9_our_stream_waits_for_the_peers(world):
    is_ordered(world, theirs_is_read)


def also_without_that_wait_we_read_old_bytes(world):
    is_seen_to_fail(world, theirs_is_read)


# --- memory that is in use is nobody else's --------------------------------------

def ours_is_reused(scene, ms, rightly):
    """The peer still reads a block of a pool that has no other, and lets go of it. By
    DLPack nobody names the stream; by the interface whoever takes the array does."""
    by_interface = scene.peer.by_interface
    buffer, target = scene.buffer(OLD, POOL), scene.array(0)
    source = buffer if rightly or by_interface else Decoy(buffer, scene.idle)
    array = scene.take(source)
    scene.sync()
    scene.stall_theirs(ms)
    target = scene.peer.copy(target, array, scene.theirs)
    if by_interface and rightly:
        stream = weir.ForeignStream(scene.peer.number(scene.theirs))
        buffer.use(stream, abi.READ)
    del array, source
    buffer.close()
    made = []

    def is_there():
        try:
            made.append(scene.world.buffer(POOL, (COUNT,), stream=scene.idle))
        except MemoryError:
            pass
        return made

    assert comes_true(is_there), "the block did not come back"
    made[0].fill(NEW)
    scene.idle.sync()
    octets = scene.octets(target)
    scene.sync()
    made[0].close()
    return all_are(octets, OLD)


def theirs_is_reused(scene, ms, rightly):
    """Weir still reads memory that the peer has let go of; or somebody does for whom
    nobody keeps it. The peer then makes so many arrays that one has that memory, if it
    may be used again."""
    array, target = scene.array(OLD), scene.buffer(0)
    ptr = scene.peer.ptr(array)
    made = scene.receive(scene.peer.lend(array, scene.theirs))
    scene.sync()
    if not rightly:
        made.close()
        scene.device.drain()
    scene.stall_ours(ms)
    weir.lib.weir_copy(scene.device.handle, scene.ours.handle, target.ptr, ptr, COUNT)
    made.close()
    del array
    gc.collect()
    others = [scene.peer.full(NEW, scene.theirs) for _ in range(OTHERS)]
    scene.octets(others[-1])
    octets = target.fetch()
    scene.sync()
    del others
    target.close()
    scene.device.drain()
    return all_are(octets, OLD)


def also_a_pools_block_is_not_reused_under_the_peers_work(world):
    is_ordered(world, ours_is_reused)


def also_behind_a_wrong_stream_it_is_reused(world):
    is_seen_to_fail(world, ours_is_reused)


def also_the_peers_memory_is_not_reused_under_our_work(world):
    is_ordered(world, theirs_is_reused)


def also_without_a_holder_it_is_reused(world):
    is_seen_to_fail(world, theirs_is_reused)


# --- who keeps whom --------------------------------------------------------------

def watched(scene, source):
    """`source`, and a function that tells how often it was let go of: by its deleter,
    or by whoever had to keep the object itself."""
    if scene.peer.by_interface:
        seen = weakref.ref(source)
        return source, lambda: int(seen() is None)
    counted = Counted(source)
    return counted, lambda: counted.deletions


def a2_the_peers_array_keeps_the_bytes_alone(world):
    with Scene(world) as scene:
        buffer = scene.buffer(OLD)
        source, ends = watched(scene, buffer)
        array = scene.take(source)
        if not scene.peer.by_interface:
            buffer.close()
        del buffer, source
        assert world.blocks_out() == 1 and all_are(scene.seen(array), OLD)
        assert ends() == 0
        del array
        assert comes_true(lambda: world.blocks_out() == 0) and ends() == 1


def b22_our_buffer_keeps_the_peers_bytes_alone(world):
    with Scene(world) as scene:
        array = scene.array(OLD)
        source, ends = watched(scene, scene.peer.lend(array, scene.theirs))
        made = scene.receive(source)
        if not scene.peer.by_interface:
            source.source = None
        del array, source
        gc.collect()
        assert all_are(made.fetch(), OLD) and ends() == 0
        made.close()
        scene.device.drain()
        assert comes_true(lambda: ends() == 1)


def a19_nothing_is_copied(world):
    with Scene(world) as scene:
        with scene.buffer(OLD) as buffer:
            array = scene.take(buffer)
            assert scene.peer.ptr(array) == buffer.ptr
            del array
        array = scene.array(OLD)
        with scene.receive(scene.peer.lend(array, scene.theirs)) as made:
            assert made.ptr == scene.peer.ptr(array) and made.nbytes == COUNT


def a17_a_write_on_either_side_is_seen(world):
    with Scene(world) as scene, scene.buffer(OLD) as buffer:
        array = scene.take(buffer)
        scene.peer.fill(array, NEW, scene.theirs)
        scene.sync()
        assert all_are(buffer.fetch(), NEW)
        buffer.fill(OLD)
        scene.sync()
        assert all_are(scene.octets(array), OLD)
        del array


only_where("lets_go", also_behind_a_wrong_stream_it_is_reused)
only_where("reuses", also_without_a_holder_it_is_reused)
only_where("writes", a17_a_write_on_either_side_is_seen)
