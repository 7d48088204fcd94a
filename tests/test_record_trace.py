#!/usr/bin/env python3
"""test_record_trace.py - what tools/record_trace.py makes of a memory history of a GPU,
as PyTorch writes it: with the streams, as JSON and pickled; and that it says why where
it cannot. The histories here are made by hand: they need neither PyTorch nor a GPU.

WEIR_TOOL is the path of the command `weir`; without it the traces are not replayed.
"""
import collections
import gzip
import json
import os
import pickle
import subprocess
import sys
import tempfile
import unittest

TOOL = os.environ.get("WEIR_TOOL", "")
TOP = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
SCRIPT = os.path.join(TOP, "tools", "record_trace.py")
HEADER = "t_ns,thread,stream,op,id,size\n"


def entry(action, addr, size, stream, time_us):
    return {"action": action, "addr": addr, "size": size, "stream": stream,
            "time_us": time_us, "frames": []}


HISTORY = [
    entry("segment_alloc", 0x7000, 2097152, 0, 1000),
    entry("alloc", 0x7000, 100, 0, 1001),
    entry("alloc", 0x8000, 5, 94000, 1002),     # a scalar, on a stream of its own
    entry("free_requested", 0x6000, 10, 0, 1003),   # from before the history
    entry("alloc", 0x9000, 300, 94000, 1004),
    entry("free_requested", 0x7000, 100, 0, 1005),
    entry("free_completed", 0x7000, 100, 0, 1009),
    entry("oom", 0, 10 ** 12, 0, 1010),
    entry("alloc", 0x7000, 40, 94000, 1011),
    entry("free_requested", 0x8000, 5, 94000, 1012),
    entry("free_requested", 0x9000, 300, 94000, 1013),
    entry("snapshot", 0, 0, 0, 1014),
]
ROWS = ["0,0,0,A,1,100\n", "1000,0,1,A,2,5\n", "3000,0,1,A,3,300\n",
        "4000,0,0,F,1,100\n", "10000,0,1,A,4,40\n", "11000,0,1,F,2,5\n",
        "12000,0,1,F,3,300\n"]


class Convert(unittest.TestCase):
    def setUp(self):
        self.folder = tempfile.TemporaryDirectory()
        self.addCleanup(self.folder.cleanup)
        self.input = os.path.join(self.folder.name, "history")
        self.output = os.path.join(self.folder.name, "trace.csv.gz")

    def convert(self, *arguments):
        return subprocess.run(
            [sys.executable, SCRIPT, "convert", *arguments, self.input, self.output],
            stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, check=False)

    def converted(self, *arguments):
        run = self.convert(*arguments)
        self.assertEqual(run.returncode, 0, run.stderr)
        with gzip.open(self.output, "rt") as file:
            text = file.read()
        self.assertTrue(text.startswith(HEADER))
        return text[len(HEADER):].splitlines(keepends=True), run

    def write_json(self, document):
        with open(self.input, "w", encoding="ascii") as file:
            json.dump(document, file)

    def write_pickle(self, document):
        with open(self.input, "wb") as file:
            pickle.dump(document, file)

    def refused(self, words, *arguments):
        run = self.convert(*arguments)
        self.assertNotEqual(run.returncode, 0)
        self.assertIn(words, run.stderr)
        self.assertFalse(os.path.exists(self.output))

    def test_a_history_keeps_its_streams(self):
        snapshot = {"segments": [], "device_traces": [[], HISTORY]}
        for write in (self.write_json, self.write_pickle):
            write(snapshot)
            rows, run = self.converted("--device", "cuda:1")
            self.assertEqual(rows, ROWS)
            self.assertIn("4 allocations, 4 distinct sizes", run.stdout)
            self.assertIn("threads: 1, streams: 2", run.stdout)
            self.assertIn("live at the end: 40 bytes, 1 blocks", run.stdout)
            self.assertIn("1 frees of unknown addresses", run.stderr)
        if TOOL:
            subprocess.run([TOOL, "replay", self.output, "--verify"], check=True,
                           stdout=subprocess.DEVNULL)

    def test_what_is_small_is_left_out(self):
        self.write_json({"device_traces": [HISTORY]})
        rows, _ = self.converted("--device", "cuda:0", "--at-least", "16")
        self.assertEqual([row.split(",", 3)[3] for row in rows],
                         ["A,1,100\n", "A,2,300\n", "F,1,100\n", "A,3,40\n",
                          "F,2,300\n"])

    def test_entries_without_a_time_keep_their_order(self):
        self.write_json({"device_traces": [
            [{key: value for key, value in it.items() if key != "time_us"}
             for it in HISTORY]]})
        rows, _ = self.converted("--device", "cuda:0")
        self.assertEqual([row.split(",", 1)[1] for row in rows],
                         [row.split(",", 1)[1] for row in ROWS])

    def test_a_chrome_trace_is_read_as_before(self):
        def memory(ts, addr, size):
            return {"name": "[memory]", "tid": 9, "ts": ts, "args": {
                "Device Type": 0, "Device Id": -1, "Addr": addr, "Bytes": size}}
        self.write_json({"traceEvents": [memory(1.5, 1, 64), memory(2.5, 1, -64)]})
        rows, _ = self.converted()
        self.assertEqual(rows, ["0,0,0,A,1,64\n", "1000,0,0,F,1,64\n"])

    def test_what_cannot_be_converted_is_refused(self):
        self.write_json({"device_traces": [HISTORY]})
        self.refused("is of 1 GPUs", "--device", "cuda:1")
        self.refused("is of 1 GPUs")
        self.write_json({"device_traces": [[]]})
        self.refused("no memory events", "--device", "cuda:0")
        self.write_json({"device_traces": [[{"action": "alloc"}]]})
        self.refused("lacks 'addr'", "--device", "cuda:0")
        self.write_json({"device_traces": [
            [entry("alloc", 1, 10, 0, 1), entry("free_requested", 1, 11, 0, 2)]]})
        self.refused("11 bytes are freed at 1, which holds 10", "--device", "cuda:0")

    def test_a_pickle_runs_nothing(self):
        self.write_pickle({"device_traces": collections.OrderedDict()})
        self.refused("does not hold a collections.OrderedDict", "--device", "cuda:0")
        with open(self.input, "wb") as file:
            file.write(pickle.dumps({"device_traces": [HISTORY]})[:-20])
        self.refused("is no snapshot", "--device", "cuda:0")


if __name__ == "__main__":
    unittest.main(verbosity=2)
