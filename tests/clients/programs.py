"""programs.py - programs drawn from a seed: buffers are made, filled, read, lent by
DLPack and closed, on streams that come and go. What each holds is known at every
moment; that all of it was ordered is for the ledger to say."""
import os
import random

import weir
import weir_abi as abi

KINDS = ("system", "pinned", "managed", "device", "pool/device", "pool/pinned")
BYTES = 512
STEPS = 60


class Held:
    """A buffer, its stream, and the value that each of its bytes has."""

    def __init__(self, buffer, stream, value):
        self.buffer, self.stream, self.value = buffer, stream, value

    def check(self, data, what):
        assert bytes(data) == bytes([self.value]) * BYTES, (what, self.value, data[:8])


class Program:
    """The state of one; each method that begins with do_ is a step."""

    def __init__(self, world, seed):
        self.world, self.draw, self.log = world, random.Random(seed), []
        self.streams = [world.device.stream() for _ in range(self.draw.choice((1, 3)))]
        self.held, self.orphans = [], []
        self.steps = [name for name in sorted(dir(self)) if name.startswith("do_")]

    def run(self):
        for _ in range(STEPS):
            step = self.draw.choice(self.steps) if self.held else "do_make"
            self.log.append(step)
            getattr(self, step)()
        for held in self.held:
            held.check(held.buffer.fetch(), "end")
            held.buffer.close()
        self.do_close_orphans()
        assert self.world.blocks_out() == 0
        for stream in self.streams:
            stream.close()

    def any_stream(self):
        return self.draw.choice(self.streams + [None])

    def any_held(self, may_be_last=True):
        """One of them; sometimes the caller's alone, who closes it."""
        held = self.draw.choice(self.held)
        if may_be_last and self.draw.random() < 0.3:
            self.held.remove(held)
            return held, True
        return held, False

    def do_make(self):
        stream, value = self.any_stream(), self.draw.randrange(256)
        made = self.world.buffer(self.draw.choice(KINDS), (BYTES,), stream=stream)
        made.fill(value)
        self.held.append(Held(made, stream, value))

    def do_close(self):
        held, is_last = self.any_held()
        if is_last:
            held.buffer.close()

    def do_fill(self):
        held, _ = self.any_held(False)
        held.value = self.draw.randrange(256)
        held.buffer.wait(held.stream)
        held.buffer.fill(held.value)

    def do_fetch(self):
        held, _ = self.any_held(False)
        held.check(held.buffer.fetch(), "fetch")

    def do_look(self):
        """By the host, who goes on looking when the buffer is closed."""
        held, is_last = self.any_held()
        if held.buffer.kind == abi.DEVICE:
            if is_last:
                held.buffer.close()
            return
        view = held.buffer.memoryview()
        if is_last:
            held.buffer.close()
        held.check(view, "look")
        if self.draw.random() < 0.5:
            held.value = self.draw.randrange(256)
            view[:] = bytes([held.value]) * BYTES

    def do_lend(self):
        """The borrower has it alone until it is back, on a stream of its own."""
        held, is_last = self.any_held()
        copy = self.draw.choice((None, True))
        lent = weir.from_dlpack(held.buffer, self.world.device,
                                stream=self.any_stream(), copy=copy)
        if is_last:
            held.buffer.close()
        held.check(lent.fetch(), "lent")
        if self.draw.random() < 0.5:
            value = self.draw.randrange(256)
            lent.fill(value)
            if not lent.is_copied:
                held.value = value
        lent.close()

    def do_move(self):
        held, _ = self.any_held(False)
        held.stream = self.any_stream()
        held.buffer.set_stream(held.stream)
        held.buffer.wait(held.stream)

    def do_end_a_stream(self):
        """Some of its buffers move, others are left behind."""
        stream = self.draw.choice(self.streams)
        for held in [held for held in self.held if held.stream is stream]:
            if self.draw.random() < 0.5:
                held.stream = None
                held.buffer.set_stream(None)
                held.buffer.wait(None)
            else:
                self.held.remove(held)
                self.orphans.append(held.buffer)
        self.streams.remove(stream)
        stream.close()
        self.streams.append(self.world.device.stream())

    def do_close_orphans(self):
        while self.orphans:
            self.orphans.pop().close()

    def do_drain(self):
        self.world.device.drain()


def run(world):
    """As many as the bound says; a seed that fails is told, with its steps."""
    count = 200 if os.environ.get("WEIR_BOUND") == "full" else 20
    print(f"bound: programs in Python = {count}", flush=True)
    for seed in range(count):
        program = Program(world, seed)
        try:
            program.run()
            assert world.device.findings() == 0, "the ledger has found something"
        except Exception:
            print(f"programs: seed {seed} after {program.log}")
            raise
