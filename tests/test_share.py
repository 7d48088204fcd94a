#!/usr/bin/env python3
"""test_share.py - `weir share` and `weir fetch` with real processes: columns go there
and back, in parts too; the least used go first, and their readers keep them.

WEIR_LIBRARY is the path of the library; without it, what one process holds over time is
left out. support_share.py tells the rest.
"""
import ctypes
import json
import os
import re
import signal
import subprocess
import unittest
import zlib

from support_share import MIB, OBJECT, SECONDS, TOOL, Case, doubles, main

LIBRARY = os.environ.get("WEIR_LIBRARY", "")


class Columns(Case):
    def test_a_column_goes_there_and_back(self):
        self.serve()
        data = doubles(100000)
        self.add("price", data)
        self.assertEqual(self.bytes_of("price"), data)
        path = os.path.join(self.folder.name, "out")
        self.assertEqual(self.fetch("price", "--out", path).stdout, "")
        with open(path, "rb") as file:
            self.assertEqual(file.read(), data)
        self.assertEqual(self.summary("price"), {
            "column": "price", "dtype": "float64", "length": 100000, "from": 0,
            "to": 100000, "masked": False, "nulls": 0, "bytes": len(data),
            "crc32": f"{zlib.crc32(data):08x}"})
        text = self.fetch("price").stdout
        for words in ("column  price", "dtype   float64", "items   0 to 100000 of",
                      "nulls   0", "bytes   800000", f"crc32   {zlib.crc32(data):08x}"):
            self.assertIn(words, text)
        self.end("1 columns were added, 0 dropped, 4 read")

    def test_each_dtype_has_its_size(self):
        self.serve()
        sizes = {"bool": 1, "int8": 1, "uint8": 1, "int16": 2, "uint16": 2,
                 "float16": 2, "bfloat16": 2, "int32": 4, "uint32": 4, "float32": 4,
                 "int64": 8, "uint64": 8, "float64": 8, "complex64": 8,
                 "complex128": 16}
        words = self.weir("help", "fetch").stdout.replace("\n", " ")
        for dtype, size in sizes.items():
            self.add(dtype, bytes(range(48)), dtype)
            self.assertEqual(self.summary(dtype)["length"], 48 // size)
            self.assertRegex(words, rf"\b{dtype}\b")
        listed = {it["column"]: (it["dtype"], it["length"], it["bytes"]) for it in
                  json.loads(self.fetch("--list", "--json").stdout)["columns"]}
        self.assertEqual(listed, {it: (it, 48 // sizes[it], 48) for it in sizes})
        self.assertIn("complex128", self.fetch("--list").stdout)

    def test_large_columns_pass_in_parts(self):
        self.serve("64MiB")
        data = self.random.randbytes(9 * MIB + 8)
        mask = self.random.randbytes(len(data) // 64 + 1)
        self.add("large", data, mask=mask)
        self.assertEqual(self.bytes_of("large"), data)
        count = len(data) // 8
        set_bits = bin(int.from_bytes(mask, "little") & ((1 << count) - 1)).count("1")
        self.assertEqual(self.summary("large")["nulls"], count - set_bits)

    def test_parts_are_read_where_they_lie(self):
        self.serve()
        count = 1003
        data = doubles(count)
        mask = bytes(self.random.randrange(256) for _ in range((count + 7) // 8))
        self.add("x", data, mask=mask)
        bits = [mask[i // 8] >> i % 8 & 1 for i in range(count)]
        parts = [(0, 0), (0, 1), (7, 9), (8, 16), (15, 16), (count - 1, count),
                 (count, count), (0, count), (3, 1000)]
        for begin, end in parts:
            slice_ = ("--slice", f"{begin}:{end}")
            part = data[8 * begin:8 * end]
            self.assertEqual(self.bytes_of("x", *slice_), part)
            found = self.summary("x", *slice_)
            self.assertEqual((found["from"], found["to"], found["length"]),
                             (begin, end, count))
            self.assertEqual(found["nulls"], bits[begin:end].count(0), (begin, end))
            self.assertEqual(found["crc32"], f"{zlib.crc32(part):08x}")
        for text in ("0:1004", "5:4", "1004:1004", "9999999999:99999999999"):
            self.refused(r"is no part of x, which has 1003 items", "fetch", "--socket",
                         self.path, "x", "--slice", text, status=1)

    def test_a_column_of_that_name_gives_way(self):
        self.serve()
        self.add("x", doubles(10))
        self.add("y", doubles(10))
        self.add("x", doubles(20, 7), mask=b"\xff\xff\x0e")
        self.assertEqual(self.columns(), ["x", "y"])
        self.assertEqual(self.bytes_of("x"), doubles(20, 7))
        self.assertEqual(self.summary("x")["nulls"], 1)
        self.add("x", doubles(3))
        self.assertFalse(self.summary("x")["masked"])

    def test_other_kinds_of_memory_are_served(self):
        for spec in ("shareable(kind=legacy)", "statistics/shareable(kind=fd)"):
            self.serve("8MiB", "--resource", spec)
            self.add("x", doubles(1000), mask=bytes(125))
            self.assertEqual(self.bytes_of("x"), doubles(1000))
            self.assertEqual(self.summary("x")["nulls"], 1000)
            self.end()


class Capacity(Case):
    def test_the_least_used_go_first(self):
        self.serve("6MiB")
        for name in "abc":
            self.add(name, doubles(1000, ord(name)))
        self.assertEqual(self.columns(), ["c", "b", "a"])
        self.summary("a")
        self.assertEqual(self.columns(), ["a", "c", "b"])  # which is no use
        self.add("d", doubles(1000))
        self.assertEqual(self.columns(), ["d", "a", "c"])
        self.refused("there is no column `b`", "fetch", "--socket", self.path, "b",
                     status=1)
        self.add("e", doubles(OBJECT // 8), mask=bytes(OBJECT // 64))  # two objects
        self.assertEqual(self.columns(), ["e", "d"])
        self.assertEqual(self.bytes_of("d"), doubles(1000))
        self.add("f", bytes(3 * OBJECT), "uint8")
        self.assertEqual(self.columns(), ["f"])
        self.end("6 columns were added, 5 dropped")

    def test_what_cannot_fit_drops_nothing(self):
        self.serve("4MiB")
        self.add("a", doubles(10))
        self.add("b", doubles(10))
        for data, mask in ((bytes(2 * OBJECT + 1), None),
                           (bytes(OBJECT + 1), bytes(OBJECT // 8 + 1))):
            run = self.add("c", data, "uint8", mask=mask, status=1)
            self.assertIn("c takes 6291456 bytes, in objects of 2097152, and the "
                          "cache has 4194304", run.stderr)
        self.assertEqual(self.columns(), ["b", "a"])

    def test_a_new_column_counts_before_the_old_one_goes(self):
        """A column that takes the place of itself needs no room beside itself."""
        self.serve("4MiB")
        self.add("a", doubles(10))
        self.add("b", doubles(10))
        self.add("a", doubles(11))
        self.assertEqual(self.columns(), ["a", "b"])


class Weir:
    """As much of the library as one reader needs, on a device of its own."""

    class Buffer(ctypes.Structure):
        _fields_ = [("data", ctypes.c_void_p), ("size", ctypes.c_size_t),
                    ("capacity", ctypes.c_size_t), ("stream", ctypes.c_void_p),
                    ("resource", ctypes.c_void_p), ("storage", ctypes.c_void_p),
                    ("reserved", ctypes.c_uint64 * 2)]

    NOT_FOUND, PEER_GONE = "not found", "peer"

    def __init__(self):
        self.library = ctypes.CDLL(LIBRARY)
        self.library.weir_status_string.restype = ctypes.c_char_p
        self.device = ctypes.c_void_p()
        self.must("weir_device_open", b"emulated:0", None, ctypes.byref(self.device))

    def call(self, name, *arguments):
        status = getattr(self.library, name)(*arguments)
        return self.library.weir_status_string(status).decode()

    def must(self, name, *arguments):
        status = getattr(self.library, name)(*arguments)
        assert status == 0, (name, self.library.weir_status_string(status))

    def open(self, ticket):
        """A buffer, or what was answered."""
        buffer = Weir.Buffer()
        octets = (ctypes.c_uint8 * 256)(*json.loads(ticket))
        answer = self.library.weir_ipc_open(self.device, None, octets, None,
                                            ctypes.byref(buffer))
        return (buffer if answer == 0 else
                self.library.weir_status_string(answer).decode())

    def read(self, buffer):
        data = ctypes.create_string_buffer(buffer.size)
        self.must("weir_buffer_to_host_sync", ctypes.byref(buffer), None,
                  ctypes.c_size_t(0), ctypes.c_size_t(buffer.size), data)
        return data.raw

    def close(self, buffer):
        self.must("weir_ipc_close", ctypes.byref(buffer), None)


@unittest.skipUnless(os.path.isfile(LIBRARY), "WEIR_LIBRARY names no library")
class Readers(Case):
    def setUp(self):
        super().setUp()
        before = os.environ.get("XDG_RUNTIME_DIR")
        os.environ["XDG_RUNTIME_DIR"] = self.folder.name
        self.addCleanup(lambda: os.environ.pop("XDG_RUNTIME_DIR") if before is None
                        else os.environ.update(XDG_RUNTIME_DIR=before))
        self.reader = Weir()

    def ticket(self, name):
        words = self.guest().ask(f"get {name}").split(" ")
        self.assertEqual(words[:2], ["column", name])
        return words[4]

    def test_readers_keep_what_is_dropped(self):
        self.serve("2MiB")
        self.add("a", doubles(5000))
        ticket = self.ticket("a")
        held = self.reader.open(ticket)
        self.assertIsInstance(held, Weir.Buffer)
        for i in range(4):
            self.add(f"b{i}", doubles(5000, 1000 + i))
            self.assertEqual(self.columns(), [f"b{i}"])
            self.assertEqual(self.reader.read(held), doubles(5000))
        answer = self.reader.open(ticket)
        self.assertIsInstance(answer, str)
        self.assertIn("not", answer)
        self.assertEqual(self.reader.read(held), doubles(5000))
        self.reader.close(held)
        self.assertIsInstance(self.reader.open(ticket), str)
        self.assertEqual(self.bytes_of("b3"), doubles(5000, 1003))

    def test_a_ticket_of_what_was_replaced_is_refused(self):
        self.serve()
        self.add("a", doubles(5000))
        before = self.ticket("a")
        self.add("a", doubles(5000, 1))
        self.assertIsInstance(self.reader.open(before), str)
        now = self.reader.open(self.ticket("a"))
        self.assertEqual(self.reader.read(now), doubles(5000, 1))
        self.reader.close(now)

    def test_readers_keep_what_a_dead_server_had(self):
        self.serve()
        self.add("a", doubles(5000))
        ticket = self.ticket("a")
        held = self.reader.open(ticket)
        # Behind the server's copy: what is not done when it is killed never will be.
        self.assertEqual(self.reader.read(held), doubles(5000))
        server, self.server = self.server, None
        server.kill()
        server.communicate()
        self.assertEqual(self.reader.read(held), doubles(5000))
        self.assertIsInstance(self.reader.open(ticket), str)
        self.reader.close(held)


class Usage(Case):
    def test_help_is_there(self):
        for command in ("share", "fetch"):
            text = self.weir("help", command).stdout
            self.assertEqual(self.weir(command, "--help").stdout, text)
            self.assertIn(f"usage: weir {command} --socket PATH", text)
            self.assertLessEqual(max(map(len, text.split("\n"))), 88)
            self.assertIn(f"weir {command} ", self.weir("help").stdout)

    def test_wrong_usage_is_told(self):
        there = ("--socket", self.path)
        data = self.file("data", b"12345678")
        add = ("--add", "x", "--dtype")
        for words, *arguments in (
                ("--socket and --capacity are needed", "share"),
                ("--socket and --capacity are needed", "share", *there),
                ("--capacity is a size", "share", *there, "--capacity", "0"),
                ("--capacity is a size", "share", *there, "--capacity", "1XB"),
                ("what is `y`", "share", *there, "--capacity", "2MiB", "y"),
                ("no device|device", "share", *there, "--capacity", "2MiB",
                 "--device", "emulated:77"),
                ("nonsense", "share", *there, "--capacity", "2MiB", "--resource",
                 "nonsense"),
                ("no objects of their own", "share", *there, "--capacity", "2MiB",
                 "--resource", "pool/shareable"),
                ("no objects of their own", "share", *there, "--capacity", "2MiB",
                 "--resource", "device"),
                ("no objects of their own", "share", *there, "--capacity", "2MiB",
                 "--resource", "async(handle_types=posix_fd)"),
                ("has 1 to 107 bytes, not 200", "share", "--socket", "x" * 200,
                 "--capacity", "2MiB"),
                ("No such file", "share", "--socket", "/nowhere/at/all", "--capacity",
                 "2MiB"),
                ("is no socket", "share", "--socket", data, "--capacity", "2MiB"),
                ("--socket is needed", "fetch", "x"),
                ("either a column's name, or", "fetch", *there),
                ("either a column's name, or", "fetch", *there, "x", "--list"),
                ("either a column's name, or", "fetch", *there, *add, "int8", data,
                 "--list"),
                ("what is `y`", "fetch", *there, "x", "y"),
                ("a column's name has", "fetch", *there, "x y"),
                ("a column's name has", "fetch", *there, ""),
                ("--slice is two numbers", "fetch", *there, "x", "--slice", "3"),
                ("--slice is two numbers", "fetch", *there, "x", "--slice", "3:"),
                ("--slice is two numbers", "fetch", *there, "x", "--slice", "-3:4"),
                ("--slice is two numbers", "fetch", *there, "x", "--slice", "3:4x"),
                ("--slice is two numbers", "fetch", *there, "x", "--slice",
                 "0:99999999999999999999"),
                ("for a column that is read", "fetch", *there, "--list", "--out", "x"),
                ("with --add there is nothing", "fetch", *there, *add, "int8", data,
                 "--json"),
                ("with --out there is nothing", "fetch", *there, "x", "--out", "-",
                 "--json"),
                ("for a column that is added", "fetch", *there, "x", "--mask", data),
                ("--add needs --dtype and a file", "fetch", *there, "--add", "x", data),
                ("--add needs --dtype and a file", "fetch", *there, *add, "int8"),
                ("no dtype `int9`", "fetch", *there, *add, "int9", data),
                ("nobody serves at", "fetch", *there, "x")):
            self.refused(words, *arguments)
        for command in ("share", "fetch"):
            self.assertIn(f"try `weir {command} --help`",
                          self.weir(command, "--sockets", status=2).stderr)
        with open(data, "rb") as file:
            self.assertEqual(file.read(), b"12345678")
        self.assertFalse(os.path.exists(self.path))

    def test_files_that_are_no_column_are_told(self):
        self.serve()
        data = self.file("data", b"123456789")
        pipe = os.path.join(self.folder.name, "pipe")
        os.mkfifo(pipe)
        for words, file, *more in (
                ("9 bytes are no whole number of items of 8", data),
                ("a column of no items", self.file("empty", b"")),
                ("No such file", "/nowhere"), ("it is no file", self.folder.name),
                ("it is no file", pipe),
                ("has 3 bytes, and a bit for each of 2 items takes 1",
                 self.file("two", bytes(16)), "--mask", self.file("mask", b"123")),
                ("No such file", self.file("two", bytes(16)), "--mask", "/nowhere")):
            self.refused(words, "fetch", "--socket", self.path, "--add", "x", "--dtype",
                         "float64", file, *more, status=1)
        self.assertEqual(self.columns(), [])
        self.add("x", doubles(4))
        self.refused("No such file", "fetch", "--socket", self.path, "x", "--out",
                     "/nowhere/at/all", status=1)
        kept = self.file("kept", b"kept")
        self.refused("there is no column", "fetch", "--socket", self.path, "y", "--out",
                     kept, status=1)
        self.assertEqual(os.path.getsize(kept), 4)
        if os.path.exists("/dev/full"):
            self.refused("cannot be written|No space", "fetch", "--socket", self.path,
                         "x", "--out", "/dev/full", status=1)

    def test_what_came_closed_is_no_file_of_the_commands(self):
        """The next one that it opens would have the number of its stdout."""
        self.serve()
        self.add("x", bytes(1 << 16), "uint8")
        script = 'exec "$@" >&-'
        for more in (["--out", "-"], ["--json"]):
            run = subprocess.run(["/bin/sh", "-c", script, "sh", TOOL, "fetch",
                                  "--socket", self.path, "x", *more],
                                 stderr=subprocess.PIPE, text=True, timeout=SECONDS,
                                 check=False, env=self.environment)
            self.assertEqual(run.returncode, 1, (more, run.stderr))
            self.assertRegex(run.stderr, "cannot be written", more)

    def test_the_socket_is_its_owners_alone(self):
        self.serve()
        self.assertEqual(os.stat(self.path).st_mode & 0o777, 0o600)
        self.refused("somebody serves at", "share", "--socket", self.path, "--capacity",
                     "2MiB")
        self.add("a", doubles(1))

    def test_the_socket_of_who_came_after_stays(self):
        """It was removed by hand, and another serves at that path since."""
        first = self.serve()
        os.unlink(self.path)
        self.serve()
        first.terminate()
        self.assertEqual(first.communicate(timeout=SECONDS)[1], "")
        self.add("x", doubles(3))
        self.assertEqual(self.columns(), ["x"])
        self.end()

    def test_an_interrupt_ends_it(self):
        self.serve()
        guest = self.guest()
        self.assertEqual(guest.list(), [])
        self.server.send_signal(signal.SIGINT)
        out, error = self.server.communicate(timeout=SECONDS)
        self.assertEqual((self.server.returncode, error), (0, ""))
        self.assertIn("ended: 0 columns were added, 0 dropped, 0 read", out)
        self.assertEqual(guest.hear(), "")
        self.server = None


if __name__ == "__main__":
    main()
