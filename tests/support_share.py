"""support_share - what the tests of `weir share` and `weir fetch` have in common: a
server for each, with a folder of its own, and a conversation with it by hand.

WEIR_TOOL is the path of the program.
"""
import json
import os
import random
import socket
import struct
import subprocess
import sys
import tempfile
import unittest

TOOL = os.environ.get("WEIR_TOOL", "")
SECONDS = 60  # of patience: nothing here takes so long
MIB = 1 << 20
OBJECT = 2 * MIB


def doubles(count, first=0):
    return struct.pack(f"<{count}d", *(first + i for i in range(count)))


class Guest:
    """A conversation with the server, line by line."""

    def __init__(self, path):
        self.socket = socket.socket(socket.AF_UNIX)
        self.socket.settimeout(SECONDS)
        self.socket.connect(path)
        self.file = self.socket.makefile("rb")

    def close(self):
        self.file.close()
        self.socket.close()

    def say(self, data):
        self.socket.sendall(data)

    def hear(self):
        return self.file.readline().decode()

    def ask(self, text):
        self.say(text.encode() + b"\n")
        return self.hear()

    def list(self):
        self.say(b"list\n")
        names = []
        while True:
            words = self.hear().split()
            if words == ["end"]:
                return names
            names.append(words[1])


class Case(unittest.TestCase):
    def setUp(self):
        self.folder = tempfile.TemporaryDirectory(prefix="weir-share-")
        self.addCleanup(self.folder.cleanup)
        self.random = random.Random(self.id())
        self.path = os.path.join(self.folder.name, "socket")
        self.environment = dict(os.environ, XDG_RUNTIME_DIR=self.folder.name)
        self.server = None

    def weir(self, *arguments, status=0, text=True):
        run = subprocess.run([TOOL, *arguments], stdout=subprocess.PIPE, text=text,
                             stderr=subprocess.PIPE, timeout=SECONDS, check=False,
                             env=self.environment)
        self.assertEqual(run.returncode, status, (arguments, run.stderr, run.stdout))
        if status == 0:
            self.assertFalse(run.stderr, arguments)
        return run

    def fetch(self, *arguments, **more):
        return self.weir("fetch", "--socket", self.path, *arguments, **more)

    def serve(self, capacity="64MiB", *arguments):
        self.server = subprocess.Popen(
            [TOOL, "share", "--socket", self.path, "--capacity", capacity, *arguments],
            stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
            env=self.environment)
        self.addCleanup(self.end)
        line = self.server.stdout.readline()
        self.assertTrue(line.startswith(f"serving {self.path} "), line)
        return self.server

    def end(self, words=""):
        """Ends the server: it has lived to the end, and has nothing to complain of."""
        if self.server is None:
            return
        server, self.server = self.server, None
        server.terminate()
        out, error = server.communicate(timeout=SECONDS)
        self.assertEqual((server.returncode, error), (0, ""))
        self.assertRegex(out, rf"^ended: .*{words}")
        self.assertFalse(os.path.exists(self.path))

    def file(self, name, data):
        path = os.path.join(self.folder.name, name)
        with open(path, "wb") as file:
            file.write(data)
        return path

    def add(self, name, data, dtype="float64", mask=None, **more):
        words = ["--add", name, "--dtype", dtype, self.file(name + ".data", data)]
        if mask is not None:
            words += ["--mask", self.file(name + ".mask", mask)]
        return self.fetch(*words, **more)

    def summary(self, *arguments):
        return json.loads(self.fetch(*arguments, "--json").stdout)

    def bytes_of(self, *arguments):
        return self.fetch(*arguments, "--out", "-", text=False).stdout

    def guest(self):
        guest = Guest(self.path)
        self.addCleanup(guest.close)
        return guest

    def columns(self):
        return [it["column"] for it in json.loads(self.fetch("--list", "--json")
                                                  .stdout)["columns"]]

    def refused(self, words, *arguments, status=2):
        run = self.weir(*arguments, status=status)
        self.assertEqual(run.stdout, "", arguments)
        self.assertRegex(run.stderr, words, arguments)
        self.assertEqual(run.stderr.count("\n"), 1, run.stderr)


def main():
    if not os.path.isfile(TOOL):
        print("skipped: WEIR_TOOL names no program")
        sys.exit(77)
    unittest.main(module="__main__", verbosity=2)
