#!/usr/bin/env python3
"""test_share_guests.py - whatever comes to the socket of `weir share`, and whoever is
killed in the middle: the server answers, and loses nothing.

support_share.py tells what it needs.
"""
import json
import os
import re
import signal
import socket
import subprocess
import threading
import time

from support_bound import bound
from support_share import MIB, SECONDS, TOOL, Case, Guest, doubles, main

LINE_MAX = 4096
KILLED = bound("processes killed while they share", 12, 200)
IN_VAIN = bound("fetches that wait in vain to be let in", 0, 1)


class Lines(Case):
    def test_bad_lines_are_refused_and_lose_nothing(self):
        self.serve()
        self.add("a", doubles(10))
        guest = self.guest()
        a = guest.ask("get a").split(" ", 1)[1].strip()
        name, dtype, length, data, mask = a.split(" ")
        forged = json.loads(data)
        forged[100] ^= 1
        forged = json.dumps(forged, separators=(",", ":"))
        bad = {
            "": "means nothing", " ": "means nothing", "hello": "`hello` means nothing",
            "list all": "means nothing", "get": "means nothing", "add": "means nothing",
            "LIST": "means nothing", "get ": "no column ``", "get b": "no column `b`",
            "get a b": "no column `a b`", "add x": "in 5 words, not in fewer",
            f"add {a} more": "in 5 words, not in more",
            f"add {a}  ": "in 5 words, not in more",
            f"add  {a}": "in 5 words, not in more",
            f"add {'x' * 65} {dtype} {length} {data} -": "a column's name has 1 to 64",
            f"add x/y {dtype} {length} {data} -": "a column's name has",
            f"add \u00e9 {dtype} {length} {data} -": "a column's name has",
            f"add x float65 {length} {data} -": "no dtype `float65`; there are bool,",
            f"add x {dtype} ten {data} -": "`ten` is no number of items",
            f"add x {dtype} -10 {data} -": "`-10` is no number of items",
            f"add x {dtype} 99999999999999999999 {data} -": "is no number of items",
            f"add x {dtype} 9999999999999999999 {data} -": "more than memory has",
            f"add x {dtype} 0 {data} -": "of no items",
            f"add x {dtype} 9 {data} -": "is of 80 bytes, and 72 are needed",
            f"add x {dtype} 10 {data} {data}": "is of 80 bytes, and 2 are needed",
            f"add x {dtype} 10 [] -": "the items: ",
            f"add x {dtype} 10 [1,2,3] -": "the items: ",
            f"add x {dtype} 10 {data[:-1]},0] -": "the items: ",
            f"add x {dtype} 10 {{}} -": "the items: ",
            f"add x {dtype} 10 {data} []": "the mask: ",
            f"add x {dtype} 10 {forged} -": "the items: ",
        }
        for line, words in bad.items():
            answer = guest.ask(line)
            self.assertTrue(answer.startswith("no "), (line, answer))
            self.assertIn(words, answer)
            self.assertEqual(guest.list(), ["a"])
        guest.say(b"get a\0b\n")
        self.assertIn("zero byte", guest.hear())
        guest.say(bytes(range(128, 256)) + b"\n")
        self.assertTrue(guest.file.readline().startswith(b"no `"))
        self.assertEqual(self.bytes_of("a"), doubles(10))

    def test_a_line_that_is_too_long_is_skipped(self):
        self.serve()
        guest = self.guest()
        for length in (LINE_MAX, LINE_MAX + 1, 3 * LINE_MAX - 1, 3 * LINE_MAX, 100000):
            guest.say(b"x" * length + b"\nlist\n")
            self.assertIn(f"a line has {LINE_MAX} bytes at most", guest.hear())
            self.assertEqual(guest.hear(), "end\n")
        guest.say(b"x" * (LINE_MAX - 1) + b"\nlist\n")
        self.assertIn("means nothing", guest.hear())
        self.assertEqual(guest.hear(), "end\n")

    def test_lines_come_in_pieces_and_in_heaps(self):
        self.serve()
        self.add("a", doubles(10))
        guest = self.guest()
        wanted = guest.ask("get a")
        for byte in b"get a\n":
            guest.say(bytes([byte]))
        self.assertEqual(guest.hear(), wanted)
        count = 200
        guest.say(b"get a\n" * count + b"get ")
        for _ in range(count):
            self.assertEqual(guest.hear(), wanted)
        guest.say(b"b\nget a\n")
        self.assertIn("no column `b`", guest.hear())
        self.assertEqual(guest.hear(), wanted)
        guest.say(b"get a\nlist")
        guest.socket.shutdown(socket.SHUT_WR)
        self.assertEqual(guest.hear(), wanted)
        self.assertEqual(guest.hear(), "")  # a line without its end is none

    def test_who_has_said_all_hears_all(self):
        """More is asked than both sides' sockets take of answers."""
        self.serve()
        self.add("a", doubles(10))
        wanted = self.guest().ask("get a")
        guest, count = self.guest(), 10000
        guest.say(b"get a\n" * (count // 10))
        sender = threading.Thread(target=lambda: (
            guest.say(b"get a\n" * (count - count // 10)),
            guest.socket.shutdown(socket.SHUT_WR)))
        sender.start()
        self.assertEqual(self.guest().list(), ["a"])
        for _ in range(count):
            self.assertEqual(guest.hear(), wanted)
        sender.join()
        self.assertEqual(guest.hear(), "")

    def test_who_does_not_listen_stops_nobody(self):
        self.serve()
        self.add("a", doubles(10))
        deaf = self.guest()
        deaf.socket.setblocking(False)
        sent = 0
        try:
            while True:  # until both sides' sockets are full
                sent += deaf.socket.send(b"get a\n" * 100)
        except BlockingIOError:
            pass
        self.assertGreater(sent, 10000)
        self.assertEqual(self.guest().list(), ["a"])
        self.assertEqual(self.bytes_of("a"), doubles(10))
        deaf.socket.settimeout(SECONDS)
        answer = self.guest().ask("get a")
        for _ in range(sent // 6):
            self.assertEqual(deaf.hear(), answer)

    def test_many_guests_are_served_at_once(self):
        self.serve()
        self.add("a", doubles(10))
        guests = [self.guest() for _ in range(150)]
        for guest in guests:
            guest.say(b"li")
        for guest in reversed(guests):
            guest.say(b"st\n")
        for guest in guests:
            self.assertEqual(guest.hear(), "has a float64 10 80 whole\n")
            self.assertEqual(guest.hear(), "end\n")
        more = [self.guest() for _ in range(100)]  # more than are let in at a time
        for guest in guests:
            guest.close()
        for guest in more:
            self.assertEqual(guest.list(), ["a"])


class Deaths(Case):
    def test_who_hangs_up_in_the_middle_changes_nothing(self):
        self.serve()
        self.add("a", doubles(10))
        line = "add b" + self.guest().ask("get a")[len("column a"):]
        for length in range(0, len(line), 97):
            guest = Guest(self.path)
            guest.say(line[:length].encode())
            guest.close()
        guest = Guest(self.path)
        guest.say(b"get a\n" * 50)
        guest.close()
        self.assertEqual(self.columns(), ["a"])
        self.assertEqual(self.bytes_of("a"), doubles(10))

    def adder(self, data):
        """`weir fetch --add` that talks to this test: its process, and the line that it
        wants to send."""
        path = os.path.join(self.folder.name, "between")
        if os.path.exists(path):
            os.unlink(path)
        with socket.socket(socket.AF_UNIX) as listener:
            listener.bind(path)
            listener.listen()
            process = subprocess.Popen(
                [TOOL, "fetch", "--socket", path, "--add", "x", "--dtype", "float64",
                 self.file("x.data", data)], env=self.environment,
                stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
            self.addCleanup(process.stderr.close)
            self.addCleanup(process.wait)
            self.addCleanup(process.kill)
            connection, _ = listener.accept()
        self.addCleanup(connection.close)
        with connection.makefile("r") as lines:
            line = lines.readline()
        self.assertTrue(line.startswith("add x float64 "), line)
        return process, connection, line.rstrip("\n")

    def await_stop(self, pid):
        """Until each of its threads stands still."""
        states = ""
        while set(states) != {"T"}:
            states = ""
            for thread in os.listdir(f"/proc/{pid}/task"):
                with open(f"/proc/{pid}/task/{thread}/stat", encoding="ascii") as file:
                    states += file.read().rsplit(")", 1)[1].split()[0]

    def test_what_another_process_hands_on_is_taken(self):
        self.serve()
        process, connection, line = self.adder(doubles(1000))
        self.assertEqual(self.guest().ask(line), "ok\n")
        connection.sendall(b"ok\n")
        self.assertEqual(process.wait(SECONDS), 0)
        self.assertEqual(self.bytes_of("x"), doubles(1000))

    def test_tickets_of_the_dead_are_refused(self):
        self.serve()
        self.add("a", doubles(10))
        process, _, line = self.adder(doubles(1000))
        process.kill()
        process.wait()
        answer = self.guest().ask(line)
        self.assertTrue(answer.startswith("no the items: "), answer)
        self.assertEqual(self.columns(), ["a"])

    def test_who_stands_still_is_not_waited_for_long(self):
        self.serve()
        self.add("a", doubles(10))
        process, connection, line = self.adder(doubles(1000))
        process.send_signal(signal.SIGSTOP)
        self.await_stop(process.pid)
        answer = self.guest().ask(line)
        self.assertTrue(answer.startswith("no the items: "), answer)
        self.assertEqual(self.bytes_of("a"), doubles(10))
        process.send_signal(signal.SIGCONT)
        self.assertEqual(self.guest().ask(line), "ok\n")
        connection.sendall(b"no I will not\n")
        self.assertEqual(process.wait(SECONDS), 1)
        self.assertEqual(process.stderr.read(), "weir: I will not\n")
        self.assertEqual(self.bytes_of("x"), doubles(1000))

    def test_killed_adders_and_readers_lose_nothing(self):
        self.serve("32MiB")
        small, large = doubles(1000), self.random.randbytes(6 * MIB)
        self.add("a", small)
        path = self.file("large", large)
        began = time.monotonic()
        self.fetch("--add", "large", "--dtype", "uint8", path)
        usual = time.monotonic() - began
        for i in range(KILLED):
            words = (["large"] if i % 3 == 0 else
                     ["--add", "large", "--dtype", "uint8", path])
            process = subprocess.Popen(
                [TOOL, "fetch", "--socket", self.path, *words], env=self.environment,
                stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
            time.sleep(self.random.uniform(0, 1.2) * usual)
            process.kill()
            process.wait()
            self.assertIn("a", self.columns())
        self.assertEqual(self.bytes_of("a"), small)
        self.assertEqual(self.bytes_of("large"), large)

    def test_a_killed_server_is_followed_by_another(self):
        self.serve()
        self.add("a", doubles(10))
        server, self.server = self.server, None
        server.kill()
        server.communicate()
        self.assertTrue(os.path.exists(self.path))
        self.refused("nobody serves at", "fetch", "--socket", self.path, "--list")
        self.serve()
        self.assertEqual(self.columns(), [])
        self.add("a", doubles(10))
        self.assertEqual(self.bytes_of("a"), doubles(10))

    def test_several_add_and_read_at_once(self):
        self.serve("16MiB")
        wrong = []

        def work(index):
            try:
                for turn in range(4):
                    data = doubles(2000 + index, 100 * index + turn)
                    path = self.file(f"w{index}", data)
                    self.fetch("--add", f"w{index}", "--dtype", "float64", path)
                    found = self.bytes_of(f"w{index}")
                    if found != data:
                        wrong.append((index, turn))
            except Exception as error:  # pylint: disable=broad-except
                wrong.append(error)

        threads = [threading.Thread(target=work, args=(i,)) for i in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        self.assertEqual(wrong, [])
        self.assertEqual(sorted(self.columns()), ["w0", "w1", "w2", "w3"])


class Strangers(Case):
    """A server that says what it should not."""

    def answer(self, *answers):
        """One guest comes, and to each of its lines hears the next of these."""
        listener = socket.socket(socket.AF_UNIX)
        self.addCleanup(listener.close)
        if os.path.exists(self.path):
            os.unlink(self.path)
        listener.bind(self.path)
        listener.listen()

        def serve():
            connection, _ = listener.accept()
            with connection, connection.makefile("rb") as asked:
                for lines in answers:
                    if asked.readline() != b"":
                        connection.sendall(lines)

        thread = threading.Thread(target=serve)
        thread.start()
        self.addCleanup(thread.join)

    def test_nonsense_is_refused(self):
        for lines, words in (
                (b"", "it has hung up"), (b"\n", "the server says ``"),
                (b"column\n", "says `column`"), (b"no\n", "it says no"),
                (b"no such thing\n", "such thing"),
                (b"x" * 5000, "is longer than 4096"),
                (b"column x float64 10\n", "in 5 words"),
                (b"column x float64 10 [1] -\n", "the items: "),
                (b"column x float64 10 " + b"[" * 2000 + b" -\n", "the items: ")):
            self.answer(lines)
            self.refused(re.escape(words), "fetch", "--socket", self.path, "x",
                         status=1)
        for lines, words in ((b"has x\nend\n", "in 2 words|in 1 words"),
                             (b"had x\n", "says `had`")):
            self.answer(lines)
            self.refused(words, "fetch", "--socket", self.path, "--list", status=1)

    def test_tickets_that_nobody_answers_for_are_refused(self):
        self.serve()
        self.add("x", doubles(10))
        line = self.guest().ask("get x")
        self.end()
        self.answer(line.encode())
        self.refused("the items: ", "fetch", "--socket", self.path, "x", status=1)

    def test_who_lets_nobody_in_is_not_waited_for_without_end(self):
        """A server that stands still, and whose places to wait in are all taken."""
        listener = socket.socket(socket.AF_UNIX)
        self.addCleanup(listener.close)
        listener.bind(self.path)
        listener.listen(0)
        for _ in range(2):
            crowd = socket.socket(socket.AF_UNIX)
            self.addCleanup(crowd.close)
            crowd.setblocking(False)
            crowd.connect_ex(self.path)
        self.refused("somebody serves at", "share", "--socket", self.path, "--capacity",
                     "2MiB")
        for _ in range(IN_VAIN):
            self.refused("nobody was let in for 30 s", "fetch", "--socket", self.path,
                         "--list")

    def stand_between(self):
        """From here on self.path is where this test answers, not the server."""
        self.addCleanup(setattr, self, "path", self.path)
        self.path += ".between"

    def test_what_is_not_as_long_as_was_announced_is_refused(self):
        self.serve()
        self.add("x", doubles(10), mask=b"\xff\xff")
        self.add("y", doubles(20), mask=b"\xff\xff\xff")
        line, other = (self.guest().ask(f"get {name}") for name in "xy")
        self.stand_between()
        for count in (9, 11):
            self.answer(line.replace(" 10 ", f" {count} ", 1).encode())
            self.refused("the ticket for the items is of 80 bytes, and "
                         f"{8 * count} are needed", "fetch", "--socket", self.path,
                         "x", status=1)
        self.answer(" ".join(line.split(" ")[:-1] + other.split(" ")[-1:]).encode())
        self.refused("the ticket for the mask is of 3 bytes, and 2 are needed", "fetch",
                     "--socket", self.path, "x", status=1)

    def test_a_column_that_was_replaced_meanwhile_is_asked_for_again(self):
        self.serve()
        self.add("x", doubles(10))
        old = self.guest().ask("get x")
        self.add("x", doubles(10, 7))
        new = self.guest().ask("get x")
        self.stand_between()
        for answers in ((new,), (old, new), (old, old, new)):
            self.answer(*(line.encode() for line in answers))
            self.assertEqual(self.bytes_of("x"), doubles(10, 7))
        self.answer(*(line.encode() for line in (old, old, old, new)))
        self.refused("the items: ", "fetch", "--socket", self.path, "x", status=1)


if __name__ == "__main__":
    main()
