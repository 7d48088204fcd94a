#!/usr/bin/env python3
"""test_verify.py - `weir replay --verify` on a device that is not emulated, as far as
weir can tell: it checks what blocks hold, by copies, and says what that does not show.

WEIR_STAND_IN_FOLDER has a `weir` for which cuda:0 is the stand-in for the runtime.
"""
import json
import os
import sys
import unittest

import test_weir

TOOL = os.path.join(os.environ.get("WEIR_STAND_IN_FOLDER", ""), "weir")
MIB = 1 << 20


class Verify(test_weir.Case):
    """What is claimed above."""

    def replay(self, trace, *more, status=0):
        run = test_weir.weir("replay", trace, "--device", "cuda:0", "--repeat", "1",
                             *more)
        self.assertEqual(run.returncode, status, (more, run.stdout, run.stderr))
        return run

    def results(self, trace, *more, status=0):
        found = json.loads(self.replay(trace, "--json", *more, status=status).stdout)
        for result in found["results"]:
            self.assertIsNone(result["ledger_findings"], more)
        return found["results"]

    def test_finds_nothing_wrong_where_nothing_is(self):
        trace = self.file("some.csv", test_weir.random_trace(1, 3000, threads=3,
                                                             streams=3)[0])
        for more in ((), ("--streams", "4"), ("--streams", "4", "--threads", "3"),
                     ("--streams", "2", "--spread", "phase"), ("--threads", "2")):
            for result in self.results(trace, "--verify", "--compare", "device,async",
                                       *more):
                self.assertEqual(result["data_errors"], 0, more)

    def test_checks_every_kind_of_memory(self):
        trace = self.file("some.csv", test_weir.random_trace(2, 400)[0])
        leaves = "system,managed,pinned,pool/system,pool/managed,pool/pinned,pool/async"
        for result in self.results(trace, "--verify", "--streams", "3", "--compare",
                                   leaves):
            self.assertEqual((result["data_errors"], result["out_of_memory"]), (0, 0))

    def test_checks_large_blocks_in_parts_and_many_small_ones(self):
        sizes = [40 * MIB, MIB, MIB + 1, 3 * MIB + 8191, 8192, 8193, 4097, 1]
        sizes = sizes * 2 + [1 + i % 5000 for i in range(9000)]
        lines = [f"{i},0,0,A,{i},{size}\n" for i, size in enumerate(sizes)]
        lines += [f"{9999 + i},0,0,F,{i},{sizes[i]}\n" for i in range(8000)]
        trace = self.file("all.csv", test_weir.HEADER + "".join(lines))
        for result in self.results(trace, "--verify", "--streams", "2"):
            self.assertEqual(result["data_errors"], 0)

    def test_finds_waits_that_are_left_out(self):
        trace = self.file("some.csv", test_weir.random_trace(3, 4000)[0])
        for threads in ("1", "3"):
            common = (trace, "--verify", "--streams", "4", "--skip-wait", "--threads",
                      threads)
            self.assertGreater(self.results(*common, status=1)[0]["data_errors"], 5)
            run = self.replay(*common, status=1)
            self.assertRegex(run.stderr, r"pool/device: data: the block of line \d+ "
                             r"\(id \d+, \d+ bytes\) holds [0-9a-f]{2} at byte \d+, "
                             r"where [0-9a-f]{2} was written")
            self.assertRegex(run.stderr, r"data: and \d+ more")
            self.assertIn("SOMETHING IS WRONG", run.stdout)

    def test_says_what_was_checked(self):
        trace = self.file("some.csv", test_weir.random_trace(4, 100)[0])
        text = self.replay(trace, "--verify").stdout
        self.assertIn("contents of all blocks checked, and order as far as they", text)
        self.assertRegex(text, r"data errors +0\n")
        self.assertNotIn("ledger findings", text)
        text = self.replay(trace).stdout
        self.assertIn("were not checked: --verify checks contents", text)
        self.assertNotIn("data errors", text)
        self.assertIsNone(self.results(trace)[0]["data_errors"])

    def test_blocks_that_were_refused_are_not_checked(self):
        trace = self.file("some.csv", test_weir.random_trace(5, 600)[0])
        for threads in ("1", "2"):
            found = self.results(trace, "--verify", "--threads", threads, "--resource",
                                 "limiting(1MiB)/pool/device", status=1)[0]
            self.assertGreater(found["out_of_memory"], 0)
            self.assertEqual((found["data_errors"], found["failed"]), (0, False))


if __name__ == "__main__":
    if not os.path.exists(TOOL):
        print("test_verify: this build has no stand-in, or no command for it")
        sys.exit(77)
    test_weir.TOOL = TOOL
    unittest.main()
