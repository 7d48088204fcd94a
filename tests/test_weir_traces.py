#!/usr/bin/env python3
"""test_weir_traces.py - `weir replay` of real programs' traces: those that ship with
the project, and those of ../shared/traces; where these are not, they are skipped.

WEIR_TOOL is the path of the program. WEIR_BOUND=full takes each of the traces in each
way.
"""
import os
import sys
import unittest

import test_weir
from support_bound import FULL, bound

TRACES = os.path.normpath(os.path.join(test_weir.TOP, "../shared/traces"))
NAMES = ["gpt_medium_ctx1024_inference", "gpt_small_step", "resnet50_v100_train",
         "nccl_v100_2rank", "gpt_medium_ctx1024_train"]
COUNT = bound("test_weir_traces.traces", 3, 5)
SEEDS = bound("test_weir_traces.seeds", 3, 12)
MANY = ("--device", "emulated", "--streams", "16", "--threads", "4", "--spread",
        "random", "--verify", "--repeat", "1")


class Shipped(test_weir.Case):
    """The traces that ship with the project and are quickly replayed."""

    def test_a_program_that_generates_text(self):
        trace = os.path.join(test_weir.TOP, "bench/traces/generation.csv.gz")
        found = self.nothing_wrong(trace, "--verify", "--fit", "--repeat", "1")
        self.assertEqual((found["allocations"], found["streams"]), (5596, 1))
        self.assertLess(found["results"][0]["fit_over_live"], 1.06)

    def test_a_pipeline_of_threads_and_streams(self):
        trace = os.path.join(test_weir.TOP, "bench/traces/word_index.csv.gz")
        for threads in ("1", "4"):
            found = self.nothing_wrong(trace, "--verify", "--threads", threads,
                                       "--compare", "pool/device,device")
            self.assertEqual((found["allocations"], found["streams"]), (1199, 8))
            self.assertEqual((found["handoffs"], found["spread"]), (342, "trace"))
            self.assertEqual(found["crossings"], 171 if threads == "4" else 0)

    def test_nothing_is_wrong_with_many_streams_and_threads(self):
        trace = os.path.join(test_weir.TOP, "bench/traces/convolution_train.csv.gz")
        for seed in range(1, SEEDS + 1):
            self.nothing_wrong(trace, "--resource", "arena/device", *MANY,
                               "--seed", str(seed))

    def test_one_and_four_streams_hold_little_more_than_is_out(self):
        trace = os.path.join(test_weir.TOP, "bench/traces/transformer_train.csv.gz")
        for streams, most in (("1", 1.06), ("4", 1.12)):
            found = self.nothing_wrong(trace, "--resource", "pool/growable(chunk=2MiB)",
                                       "--streams", streams, "--spread", "random",
                                       "--repeat", "1")
            self.assertLessEqual(found["results"][0]["held_over_live"], most)


@unittest.skipUnless(os.path.isdir(TRACES), "no ../shared/traces here")
class Shared(test_weir.Case):
    def traces(self):
        for name in NAMES[:COUNT]:
            yield os.path.join(TRACES, name + ".csv.gz")

    def test_one_stream_fits_and_asks_the_device_nothing(self):
        for trace in self.traces():
            result = self.nothing_wrong(trace, "--fit")["results"][0]
            self.assertLessEqual(result["fit_over_live"], 1.06, trace)
            for kind in ("event_record", "stream_wait_event", "event_query"):
                self.assertEqual(result["device_calls"][kind], 0, trace)

    def test_nothing_is_wrong_with_four_streams_and_two_threads(self):
        for trace in self.traces():
            for threads in ("1", "2") if FULL else ("2",):
                self.nothing_wrong(trace, "--resource", "pool/device", "--device",
                                   "emulated", "--streams", "4", "--spread", "random",
                                   "--verify", "--threads", threads)

    def test_nothing_is_wrong_with_many_streams_and_threads(self):
        specs = ["pool/device", "arena/device", "binning/pool/device", "growable",
                 "pool/growable", "async"]
        for trace in self.traces() if FULL else ():
            self.nothing_wrong(trace, "--compare", ",".join(specs), *MANY)

    def test_what_grows_in_place_holds_little_more_than_is_out(self):
        for trace in self.traces():
            for streams, most in (("1", 1.06), ("4", 1.12)):
                found = self.nothing_wrong(trace, "--compare", "growable,pool/growable",
                                           "--streams", streams, "--spread", "random",
                                           "--repeat", "1")
                for result in found["results"]:
                    self.assertLessEqual(result["held_over_live"], most, trace)


if __name__ == "__main__":
    if not os.path.isfile(test_weir.TOOL):
        print("skipped: WEIR_TOOL names no program")
        sys.exit(77)
    if not os.path.isdir(TRACES):
        print("skipped in part: no ../shared/traces here")
    unittest.main(verbosity=2)
