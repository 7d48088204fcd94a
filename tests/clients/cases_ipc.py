"""cases_ipc.py - buffers that other processes open, and columns of them (column.py): an
interpreter of its own is each of those, and runs some Python beside these files."""
import contextlib
import gc
import json
import os
import subprocess
import sys

import numpy

import cases
import weir
import weir_abi as abi
from cases import comes_true, must_raise
from column import Column

LIMIT_S = 60
BEGIN = """
import json, sys
import numpy
import weir, weir_abi as abi
from column import Column
device = weir.Device({!r}, {}, {})
def hear(): return json.loads(sys.stdin.readline() or "null")
def say(what): print(json.dumps(what), flush=True)
"""
END = """
import gc
gc.collect()
device.drain()
assert device.findings() == 0, "the ledger has found something"
"""


class Child:
    """A process with `device` open that runs `code`: hear() and say() there are say()
    and hear() here, of anything that JSON has. It hears nothing more once its context
    ends here, where it has to end well."""

    def __init__(self, world, code, end=END):
        here = os.path.dirname(os.path.abspath(__file__))
        self._is_killed = False
        begin = BEGIN.format(*cases.OPENED[world.label], cases.SEED + 1)
        self._process = subprocess.Popen(
            [sys.executable, "-c", begin + code + end], text=True,
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
            env=dict(os.environ, PYTHONPATH=here))

    def say(self, what):
        print(json.dumps(what), file=self._process.stdin, flush=True)

    def hear(self):
        line = self._process.stdout.readline()
        if not line:
            raise AssertionError(self._process.communicate()[1])
        return json.loads(line)

    def ask(self, what):
        self.say(what)
        return self.hear()

    def kill(self):
        self._process.kill()
        self._process.communicate()
        self._is_killed = True

    def __enter__(self):
        return self

    def __exit__(self, kind, *_):
        """It ends without a word of complaint."""
        if kind is not None:
            self.kill()
        if self._is_killed:
            return
        said, complaint = self._process.communicate(timeout=LIMIT_S)
        assert (self._process.returncode, said, complaint) == (0, "", ""), complaint


def statistics():
    seen = abi.sized(abi.weir_ipc_statistics)
    weir.lib.weir_ipc_get_statistics(seen)
    return seen


def nobody_has_it():
    return statistics().importers == 0


def shared(world, dtype, values, stream=None):
    data = numpy.array(values, dtype)
    return world.buffer("shareable", data.shape, dtype, data.tobytes(), stream)


# --- tickets ---------------------------------------------------------------------

def e55_a_ticket_is_a_list_of_octets(world):
    with shared(world, "uint8", range(100)) as buffer:
        ticket = buffer.export()
        text = ticket.to_json()
        numbers = json.loads(text)
        assert numbers == list(ticket) and len(numbers) == 256
        assert all(0 <= number < 256 for number in numbers)
        assert weir.Ticket(numbers) == ticket == weir.Ticket.from_json(text)
        assert weir.Ticket.from_json(json.dumps(numbers, indent=3)) == ticket
        for wrong in (numbers[1:], numbers + [0], [256] + numbers[1:], [0] * 256):
            must_raise(ValueError, weir.Ticket, wrong)
            must_raise(ValueError, weir.Ticket.from_json, json.dumps(wrong))
        for wrong in ("", "[", text + "1", "{}", text.replace("[", "[-")):
            must_raise(ValueError, weir.Ticket.from_json, wrong)


def e55_each_number_of_it_counts(world):
    """With another one it is no ticket, or one that nobody knows."""
    with shared(world, "uint8", range(100)) as buffer:
        numbers = list(buffer.export())
        for place in range(256):
            forged = list(numbers)
            forged[place] ^= 1
            try:
                ticket = weir.Ticket(forged)
            except ValueError:
                continue
            must_raise((LookupError, ValueError, ConnectionError, BufferError, OSError),
                       weir.Buffer.open, world.device, ticket)


def e56_a_slice_is_the_whole_object_and_a_place_in_it(world):
    with shared(world, "float32", range(10)) as buffer:
        part = buffer.view((3,), offset=4)
        whole, sliced = buffer.export().info(), part.export().info()
        assert (whole.offset, whole.bytes) == (0, 40)
        assert (sliced.offset, sliced.bytes) == (4, 12)
        assert sliced.base_bytes == whole.base_bytes >= 40
        with Child(world, """
with weir.Buffer.open(device, weir.Ticket(hear()), "float32") as buffer:
    say([buffer.shape, numpy.frombuffer(buffer.fetch(), "float32").tolist()])
""") as child:
            assert child.ask(list(part.export())) == [[3], [1.0, 2.0, 3.0]]
        part.close()
        assert comes_true(nobody_has_it)


def e63_the_length_is_that_of_the_bytes(world):
    with shared(world, "uint8", range(24)) as buffer:
        ticket = buffer.export()
        for dtype, length in (("uint8", 24), ("int16", 12), ("complex64", 3)):
            with weir.Buffer.open(world.device, ticket, dtype) as again:
                assert (again.shape, again.dtype) == ((length,), dtype)
        with weir.Buffer.open(world.device, ticket, "int16", (3, 4)) as again:
            assert again.shape == (3, 4) and again.fetch() == bytes(range(24))
        must_raise(ValueError, weir.Buffer.open, world.device, ticket, "complex128")
        must_raise(ValueError, weir.Buffer.open, world.device, ticket, "int16", (13,))


def e64_other_memory_is_refused(world):
    for kind in ("pinned", "managed", "system", "device", "pool/shareable"):
        if kind == "system" and not world.device.reaches_ordinary:
            continue
        with world.buffer(kind, (64,)) as buffer:
            must_raise(BufferError, buffer.export)
    with world.buffer("pool/shareable", (64,), data=b"weir" * 16) as buffer:
        ticket = buffer.export(share_whole_base=True)
        assert ticket.bytes == 64 < ticket.info().base_bytes
        with Child(world, """
with weir.Buffer.open(device, weir.Ticket(hear())) as buffer:
    say(buffer.fetch().decode())
""") as child:
            assert child.ask(list(ticket)) == "weir" * 16
        assert comes_true(nobody_has_it)


# --- columns ---------------------------------------------------------------------

SHOW_COLUMN = """
column = Column.open(device, hear())
seen = numpy.frombuffer(column.data.fetch(), column.data.dtype)
say([column.data.dtype, seen.tolist(), column.has()])
hear()
column.close()
"""


def column_of(world, dtype, rows):
    """None is a row without a value."""
    bits = numpy.packbits([row is not None for row in rows], bitorder="little")
    data = shared(world, dtype, [row or 0 for row in rows])
    return Column(data, shared(world, "uint8", bits) if None in rows else None)


def e57_a_column_is_data_and_a_mask_that_is_optional(world):
    for dtype, rows in (("float32", [1.5, None, 2.5, None, 4.0] * 5),
                        ("int64", list(range(-5, 20)))):
        column = column_of(world, dtype, rows)
        part = column.part(3, 11)
        with Child(world, SHOW_COLUMN) as child:
            said = child.ask(part.export())
            assert said == [dtype, [row or 0 for row in rows[3:14]],
                            [row is not None for row in rows[3:14]]]
        if part.mask is not None:
            info = part.mask.export().info()
            assert (info.offset, info.bytes) == (0, 4)
        part.close()
        column.close()
        assert comes_true(nobody_has_it)


def e60_both_directions_have_one_format(world):
    """A column comes back from who opened it, as a column of his own."""
    rows = [7, None, 9, 10]
    column = column_of(world, "int32", rows)
    with Child(world, """
given = Column.open(device, hear())
twice = 2 * numpy.frombuffer(given.data.fetch(), given.data.dtype)
data = weir.Buffer(device.resource("shareable"), twice.shape, given.data.dtype)
data.store(twice.tobytes())
mask = weir.Buffer(device.resource("shareable"), given.mask.shape)
mask.store(given.mask.fetch())
given.close()
say(Column(data, mask).export())
hear()
""") as child:
        text = child.ask(column.export())
        assert set(json.loads(text)) == set(json.loads(column.export()))
        back = Column.open(world.device, text)
        seen = numpy.frombuffer(back.data.fetch(), back.data.dtype)
        assert seen.tolist() == [14, 0, 18, 20] and back.has() == [1, 0, 1, 1]
        back.close()
    column.close()
    assert comes_true(nobody_has_it)


# --- who sees what, and for how long ---------------------------------------------

def e61_a_write_in_one_process_is_visible_in_the_other(world):
    """In turn: who opens a ticket comes after whoever had it open to write."""
    with shared(world, "uint8", [0] * 4096) as buffer:
        ticket = buffer.export(abi.WRITE)
        with Child(world, """
while numbers := hear():
    with weir.Buffer.open(device, weir.Ticket(numbers), access=abi.WRITE) as buffer:
        seen = set(buffer.fetch())
        buffer.store(bytes(byte + 1 for byte in buffer.fetch()))
    say(sorted(seen))
""") as child:
            for value in range(0, 6, 2):
                assert child.ask(list(ticket)) == [value]
                with weir.Buffer.open(world.device, ticket, access=abi.WRITE) as mine:
                    assert set(mine.fetch()) == {value + 1}
                    mine.store(bytes([value + 2]) * 4096)
                ticket = buffer.export(abi.WRITE)
        assert comes_true(nobody_has_it)


def e61_what_is_only_on_a_stream_is_visible_too(world):
    """When the ticket leaves; and to those who open it later, when an import ends."""
    code = """
with device.stream() as stream:
    ticket = weir.Ticket(hear())
    buffer = weir.Buffer.open(device, ticket, stream=stream, access=abi.WRITE)
    say(sorted(set(buffer.fetch())))
    for value in range(hear()):
        buffer.fill(value)
    buffer.close()
    say("closed")
    hear()
device.sync()
"""
    with world.device.stream() as stream, contextlib.ExitStack() as children:
        buffer = shared(world, "uint8", [0] * 4096, stream)
        for value in range(20):
            buffer.fill(value)
        ticket, seen = list(buffer.export(abi.WRITE)), 19
        for count in (40, 60, 20):
            child = children.enter_context(Child(world, code))
            assert child.ask(ticket) == [seen]
            assert child.ask(count) == "closed" and comes_true(nobody_has_it)
            seen = count - 1
        buffer.close()


def e61_what_was_not_granted_cannot_be_written(world):
    with shared(world, "uint8", range(8)) as buffer:
        with Child(world, """
ticket = weir.Ticket(hear())
try:
    weir.Buffer.open(device, ticket, access=abi.WRITE)
except BufferError:
    say("refused")
with weir.Buffer.open(device, ticket) as buffer:
    say(buffer.is_read_only)
""") as child:
            assert child.ask(list(buffer.export())) == "refused"
            assert child.hear() is True
        assert comes_true(nobody_has_it)


def e62_closing_frees_nothing_at_the_source(world):
    with shared(world, "uint8", range(8)) as buffer:
        with Child(world, """
for _ in range(3):
    weir.Buffer.open(device, weir.Ticket(hear())).close()
    say("closed")
""") as child:
            for _ in range(3):
                assert child.ask(list(buffer.export())) == "closed"
                assert buffer.fetch() == bytes(range(8))
        assert comes_true(nobody_has_it)
        buffer.store(bytes(8))
        assert buffer.fetch() == bytes(8)


def e62_who_has_it_open_keeps_it(world):
    """Also if he is killed: then as long as he was there."""
    for end in ("close", "kill"):
        buffer = shared(world, "uint8", range(8))
        with Child(world, """
buffer = weir.Buffer.open(device, weir.Ticket(hear()))
say("open")
hear()
assert buffer.fetch() == bytes(range(8))
buffer.close()
""") as child:
            assert child.ask(list(buffer.export())) == "open"
            buffer.close()
            assert world.blocks_out() == 1 and statistics().importers == 1
            if end == "kill":
                child.kill()
            else:
                child.say("close")
            assert comes_true(nobody_has_it)
            assert comes_true(lambda: world.blocks_out() == 0)


def also_what_was_opened_is_an_array_for_others(world):
    """Who takes it keeps it, beyond the buffer that was opened."""
    with shared(world, "int32", range(8)) as buffer:
        with Child(world, """
opened = weir.Buffer.open(device, weir.Ticket(hear()), "int32", (2, 4))
taken = weir.from_dlpack(opened, device)
assert taken.ptr == opened.ptr and taken.is_read_only
opened.close()
say([taken.shape, numpy.frombuffer(taken.fetch(), "int32").tolist()])
hear()
taken.close()
""") as child:
            assert child.ask(list(buffer.export())) == [[2, 4], list(range(8))]
            assert statistics().importers == 1
        assert comes_true(nobody_has_it)


# --- the end ---------------------------------------------------------------------

def e58_closing_can_be_repeated_and_is_final(world):
    with shared(world, "uint8", range(8)) as buffer:
        with Child(world, """
ticket = weir.Ticket(hear())
with device.stream() as stream:
    buffer = weir.Buffer.open(device, ticket)
    buffer.close(stream)
    buffer.close(stream)
    buffer.close()
for use in (buffer.fetch, buffer.check, buffer.export, lambda: buffer.ptr):
    try:
        use()
    except ValueError:
        continue
    say("it could be used")
say("closed")
forgotten = weir.Buffer.open(device, ticket)
forgotten.check()
say("open")
hear()
del forgotten
say("forgotten")
""") as child:
            assert child.ask(list(buffer.export())) == "closed"
            assert child.hear() == "open" and statistics().importers == 1
            assert child.ask("go on") == "forgotten" and comes_true(nobody_has_it)


def e59_what_is_left_of_freed_memory_is_found_out(world):
    buffer = shared(world, "uint8", range(8))
    ticket = buffer.export()
    buffer.close()
    assert world.blocks_out() == 0
    with Child(world, """
try:
    weir.Buffer.open(device, weir.Ticket(hear()))
except LookupError:
    say("not found")
""") as child:
        assert child.ask(list(ticket)) == "not found"
    must_raise(LookupError, weir.Buffer.open, world.device, ticket)


def e59_so_is_that_its_process_has_ended(world):
    code = """
buffer = weir.Buffer(device.resource("shareable"), (8,))
buffer.store(b"exporter")
say(list(buffer.export()))
hear()
"""
    with Child(world, code) as child:
        ticket = weir.Ticket(child.hear())
        opened = weir.Buffer.open(world.device, ticket)
        opened.check()
        child.kill()
        assert comes_true(lambda: is_gone(opened))
        assert opened.fetch() == b"exporter"
        must_raise((ConnectionError, LookupError), weir.Buffer.open, world.device,
                   ticket)
        opened.close()


def is_gone(opened):
    try:
        opened.check()
    except ConnectionError:
        return True
    return False


def also_one_opens_it_or_nobody(world):
    with shared(world, "uint8", range(8)) as buffer:
        once, revoked = buffer.export(one_time=True), buffer.export()
        weir.Buffer.open(world.device, once).close()
        weir.lib.weir_ipc_revoke(revoked)
        for ticket in (once, revoked):
            must_raise(LookupError, weir.Buffer.open, world.device, ticket)
        must_raise(LookupError, weir.lib.weir_ipc_revoke, revoked)
        gc.collect()
