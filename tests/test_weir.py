#!/usr/bin/env python3
"""test_weir.py - the command `weir` from end to end: what it prints, what it answers to
the shell, and that a replay without its waits is found out.

WEIR_TOOL is the path of the program. support_bound.py tells what WEIR_BOUND=full does.
"""
import gzip
import json
import os
import random
import re
import subprocess
import sys
import tempfile
import unittest

from support_bound import bound

TOOL = os.environ.get("WEIR_TOOL", "")
TOP = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
HEADER = "t_ns,thread,stream,op,id,size\n"
SECONDS = 600
SPREADS = bound("test_weir.spreads", 3, 20)
RACES = bound("test_weir.races", 3, 10)
CALLS = ["malloc", "free", "host_malloc", "host_free", "memory_info", "stream_create",
         "stream_destroy", "stream_get_id", "stream_get_flags", "stream_is_capturing",
         "stream_sync", "stream_query", "stream_wait_event", "event_create",
         "event_destroy", "event_record", "event_query", "event_sync", "device_sync",
         "copy", "fill", "launch", "enable_peer", "managed_malloc", "pinned_malloc",
         "pinned_free", "host_register", "host_unregister", "mempool_create",
         "mempool_default", "mempool_destroy", "mempool_malloc", "mempool_free",
         "mempool_trim", "mempool_get_state", "event_record_all", "shared_malloc",
         "shared_free", "shared_find", "shared_export", "shared_open", "shared_close",
         "shared_event_create", "shared_event_open", "range_reserve", "range_release",
         "range_map", "range_unmap", "prefetch", "prefer"]


def weir(*arguments):
    return subprocess.run([TOOL, *arguments], stdout=subprocess.PIPE, text=True,
                          stderr=subprocess.PIPE, timeout=SECONDS, check=False)


def random_trace(seed, events, threads=1, streams=1):
    """A trace with many sizes, some of which live to the end; and its peak."""
    draw = random.Random(seed)
    lines, live, live_bytes, peak = [HEADER], {}, 0, 0
    for index in range(events):
        who = f"{100 * index},{draw.randrange(threads)},{draw.randrange(streams)}"
        if live and draw.random() < 0.45:
            name = draw.choice(sorted(live))
            size = live.pop(name)
            live_bytes -= size
            lines.append(f"{who},F,{name},{size}\n")
        else:
            name = draw.getrandbits(64)
            size = int(2 ** draw.uniform(0, 22))
            live[name] = size
            live_bytes += size
            lines.append(f"{who},A,{name},{size}\n")
        peak = max(peak, live_bytes)
    return "".join(lines), peak


class Case(unittest.TestCase):
    def setUp(self):
        self.folder = tempfile.TemporaryDirectory()
        self.addCleanup(self.folder.cleanup)

    def file(self, name, text):
        path = os.path.join(self.folder.name, name)
        opened = gzip.open if name.endswith(".gz") else open
        with opened(path, "wt", newline="") as file:
            file.write(text)
        return path

    def refused(self, words, *arguments):
        """Status 2, nothing on stdout, one sentence that holds the words."""
        run = weir(*arguments)
        self.assertEqual(run.returncode, 2, (arguments, run.stderr))
        self.assertEqual(run.stdout, "", arguments)
        self.assertIn(words, run.stderr, arguments)

    def results(self, *arguments, status=0):
        """The JSON of a replay; its stderr comes as `stderr`."""
        run = weir("replay", *arguments, "--json")
        self.assertEqual(run.returncode, status, (arguments, run.stderr, run.stdout))
        found = json.loads(run.stdout)
        found["stderr"] = run.stderr
        if status == 0:
            self.assertFalse(any(result["failed"] for result in found["results"]))
        return found

    def nothing_wrong(self, *arguments):
        found = self.results(*arguments)
        self.assertEqual(found["stderr"], "", arguments)
        for result in found["results"]:
            for key in ("out_of_memory", "ledger_findings", "data_errors"):
                self.assertEqual(result[key], 0, (arguments, result))
        return found


class Usage(Case):
    @unittest.skipUnless(os.path.exists("/dev/full"), "a file that is full")
    def test_what_cannot_be_written_is_no_success(self):
        trace = self.file("trace.csv", random_trace(1, 20)[0])
        for words in (["help"], ["--version"], ["replay", "--help"], ["info"],
                      ["replay", trace, "--json"]):
            with open("/dev/full", "w", encoding="utf-8") as full:
                run = subprocess.run([TOOL, *words], stdout=full, check=False)
            self.assertEqual(run.returncode, 1, words)

    def test_help_tells_about_each_command(self):
        self.assertIn("weir replay TRACE", weir("help").stdout)
        self.assertEqual(weir("help", "help").stdout, weir("help").stdout)
        for words in (("help", "replay"), ("replay", "--help"), ("replay", "-h")):
            run = weir(*words)
            self.assertEqual(run.returncode, 0)
            for option in ("--resource", "--compare", "--device", "--streams", "--seed",
                           "--spread", "--threads", "--repeat", "--fit", "--verify",
                           "--json", "--memory", "--skip-wait"):
                self.assertIn(option, run.stdout)
        self.assertIn("weir info", weir("info", "--help").stdout)
        self.assertRegex(weir("--version").stdout, r"^weir \d+\.\d+\.\d+\n$")

    def test_bad_usage_is_refused(self):
        trace = self.file("trace.csv", random_trace(1, 10)[0])
        self.refused("no command")
        self.refused("no command `replays`", "replays")
        self.refused("no command `x`", "help", "x")
        for words in (("info", "x"), ("--version", "x"), ("help", "info", "x")):
            self.refused("what is `x`", *words)
        self.refused("--xyz", "info", "--xyz")
        self.refused("no trace", "replay")
        self.refused("one trace at a time", "replay", trace, trace)
        self.refused("--xyz", "replay", trace, "--xyz")
        self.refused("requires an argument", "replay", trace, "--seed")
        for option, value in (("streams", "0"), ("streams", "1025"), ("streams", "x"),
                              ("streams", "4x"), ("streams", "-1"), ("streams", ""),
                              ("threads", "0"), ("threads", "65"), ("repeat", "0"),
                              ("seed", "-1"), ("seed", "18446744073709551616")):
            self.refused(f"--{option} is a number", "replay", trace, f"--{option}",
                         value)
        for value in ("0", "x", "GiB", "1gib", "99999999999GiB", "-1GiB"):
            self.refused("--memory is a size", "replay", trace, "--memory", value)
        self.refused("--spread is", "replay", trace, "--streams", "2", "--spread", "x")
        self.refused("--spread wants", "replay", trace, "--spread", "random")
        self.refused("--fit wants one", "replay", trace, "--fit", "--threads", "2")
        self.refused("--fit wants a", "replay", trace, "--fit", "--resource", "device")
        self.refused("no name", "replay", trace, "--compare", "pool/device,,device")
        self.refused("try `weir replay --help`", "replay")

    def test_what_is_not_there_is_refused(self):
        trace = self.file("trace.csv", random_trace(1, 10)[0])
        self.refused("no resource is called \"pond\"", "replay", trace, "--resource",
                     "pond/device")
        self.refused("pool", "replay", trace, "--resource", "pool")
        self.refused("\"pond\"", "replay", trace, "--compare", "device,pond")
        self.refused("weir: emulated:99: ", "replay", trace, "--device", "emulated:99")
        self.refused("weir: moon: ", "replay", trace, "--device", "moon")
        self.refused("nowhere.csv: cannot be opened", "replay", "nowhere.csv")

    def test_cuda_says_why_it_is_not_there(self):
        trace = self.file("trace.csv", random_trace(1, 10)[0])
        run = weir("replay", trace, "--device", "cuda:0")
        if run.returncode == 0:
            self.skipTest("there is a CUDA device")
        self.assertEqual(run.returncode, 2)
        self.assertRegex(run.stderr, r"^weir: cuda:0: .{10,}\n$")

    def test_a_broken_trace_is_refused_by_line(self):
        good, _ = random_trace(1, 50)
        lines = good.splitlines(keepends=True)
        for name in ("trace.csv", "trace.csv.gz"):
            broken = lines[:]
            broken[16] = "1600,0,0,A,seven,512\n"
            path = self.file(name, "".join(broken))
            self.refused(f"weir: {path}:17: id is `seven`, which is no number",
                         "replay", path, "--json")
        path = self.file("trace.csv", good + "9999999,0,0,F,3,512\n")
        self.refused(f"{path}:52: id 3 is freed and was never", "replay", path)
        path = self.file("trace.csv", "")
        self.refused(f"{path}:1: the file is empty", "replay", path)
        path = self.file("trace.csv.gz", good)
        with open(path, "r+b") as file:
            file.truncate(os.path.getsize(path) // 2)
        self.refused("the gzip file is cut short", "replay", path)
        packed = [gzip.compress("".join(part).encode())
                  for part in (lines[:30], lines[30:])]
        for joint, said in ((b"", ""), (b"x", "the gzip file is broken")):
            with open(path, "wb") as file:
                file.write(packed[0] + joint + packed[1][len(joint):])
            run = weir("replay", path)
            self.assertEqual(run.returncode, 2 if said else 0, run.stderr)
            self.assertIn(said, run.stderr)


class Info(Case):
    def test_info_names_devices_versions_and_build(self):
        run = weir("info")
        self.assertEqual((run.returncode, run.stderr), (0, ""))
        self.assertRegex(run.stdout, r"^Weir \d+\.\d+\.\d+, built against the headers")
        for words in ("build: ", "cuda:0: ", "emulated:0: ", "ledger", "pool/device"):
            self.assertIn(words, run.stdout)
        for spec, words in (("managed", "host access, managed, trims, finds blocks"),
                            ("shareable", "trims, finds blocks, shared (fd)")):
            self.assertIn(f"\n  {spec:24}{words}\n", run.stdout)

    def test_info_is_told_as_json(self):
        run = weir("info", "--json")
        self.assertEqual((run.returncode, run.stderr), (0, ""))
        found = json.loads(run.stdout)
        self.assertEqual(found["version"], found["headers"])
        self.assertTrue(found["build"])
        devices = {device["device"]: device for device in found["devices"]}
        if not devices["cuda:0"]["available"]:
            self.assertTrue(devices["cuda:0"]["reason"])
        emulated = devices["emulated:0"]
        self.assertTrue(emulated["available"] and emulated["has_ledger"])
        self.assertGreater(emulated["memory_bytes"], 1 << 30)
        self.assertRegex(emulated["uuid"],
                         r"^[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}$")
        kinds = {it["resource"]: it["share_kind"] for it in emulated["resources"]}
        self.assertEqual((kinds["pool/device"], kinds["system"]), ("none", "none"))
        self.assertEqual((kinds["shareable"], kinds["pool/shareable"]), ("fd", "none"))

    def test_info_tells_how_a_resource_is_written(self):
        run = weir("info", "--resources")
        self.assertEqual((run.returncode, run.stderr), (0, ""))
        for words in (r"^resource = part", r"^part +=", r"^pool/\.\.\. +reuses",
                      r"^  growth +size = auto\n +chunks are", r"^device +memory",
                      r"^  limit +size, must be given\n", r"use weir_callback_create$"):
            self.assertRegex(run.stdout, re.compile(words, re.MULTILINE))
        self.assertLessEqual(max(map(len, run.stdout.split("\n"))), 88)

    def test_each_default_that_info_tells_is_taken(self):
        run = weir("info", "--json", "--resources")
        self.assertEqual((run.returncode, run.stderr), (0, ""))
        found = json.loads(run.stdout)
        self.assertIn("part { \"/\" part }", found["grammar"])
        self.assertEqual((found["length_max"], found["parts_max"]), (4096, 32))
        kinds = {kind["resource"]: kind for kind in found["resources"]}
        self.assertEqual([option["option"] for option in kinds["pool"]["options"]],
                         ["initial", "limit", "growth", "cache", "slack", "exact"])
        self.assertEqual(kinds["pool"]["options"][1]["choices"], ["unlimited"])
        limit, = kinds["limiting"]["options"]
        self.assertTrue(limit["required"] and limit["name_may_be_left_out"])
        self.assertIsNone(limit["default"])
        self.assertEqual(kinds["callback"]["only_from"], "weir_callback_create")
        trace = self.file("trace.csv", HEADER + "0,0,0,A,1,1000\n")
        for option in kinds["pool"]["options"]:
            spec = f"pool({option['option']}={option['default']})/device"
            held, = (result["peak_held_bytes"] for result in
                     self.nothing_wrong(trace, "--resource", spec)["results"])
            self.assertEqual(held, 8 << 20)
        self.assertIn("auto: 8MiB", kinds["pool"]["options"][2]["doc"])


class Replay(Case):
    def test_json_has_all_that_was_promised(self):
        text, peak = random_trace(2, 400)
        trace = self.file("a \"trace\".csv.gz", text)
        found = self.nothing_wrong(trace, "--verify", "--fit", "--device", "emulated")
        self.assertEqual(found["trace"], trace)
        self.assertEqual(found["device"], "emulated:0")
        self.assertEqual((found["streams"], found["threads"], found["seed"],
                          found["handoffs"], found["spread"]), (1, 1, 1, 0, "trace"))
        self.assertEqual(len(found["results"]), 1)
        result = found["results"][0]
        self.assertEqual(result["resource"], "pool/device")
        self.assertEqual(result["events"], 400)
        self.assertEqual(result["peak_live_bytes"], peak)
        self.assertGreater(result["ns_per_event"], 0)
        self.assertGreaterEqual(result["ns_per_event_median"], result["ns_per_event"])
        self.assertGreaterEqual(result["peak_held_bytes"], peak)
        self.assertAlmostEqual(result["held_over_live"],
                               result["peak_held_bytes"] / peak, places=5)
        self.assertAlmostEqual(result["fit_over_live"], result["fit_bytes"] / peak,
                               places=5)
        self.assertGreaterEqual(result["fit_over_live"], 1)
        self.assertEqual(sorted(result["device_calls"]), sorted(CALLS))
        self.assertGreater(result["device_calls"]["malloc"], 0)
        for kind in ("event_record", "stream_wait_event", "event_query"):
            self.assertEqual(result["device_calls"][kind], 0)

    def test_fit_is_null_where_it_was_not_asked(self):
        trace = self.file("trace.csv", random_trace(3, 50)[0])
        self.assertIsNone(self.nothing_wrong(trace)["results"][0]["fit_over_live"])
        found = self.nothing_wrong(trace, "--fit", "--compare", "device,pool/device")
        self.assertIsNone(found["results"][0]["fit_over_live"])
        self.assertGreaterEqual(found["results"][1]["fit_over_live"], 1)

    def test_compare_keeps_the_order_and_shows_ratios(self):
        trace = self.file("trace.csv", random_trace(4, 300)[0])
        found = self.nothing_wrong(trace, "--compare", "device,statistics/pool/system",
                                   "--resource", "pool/device", "--repeat", "1")
        self.assertEqual([result["resource"] for result in found["results"]],
                         ["pool/device", "device", "statistics/pool/system"])
        run = weir("replay", trace, "--compare", "pool/device,device")
        self.assertEqual(run.returncode, 0)
        self.assertRegex(run.stdout, r"ns per event +\d+\.\d +\d+\.\d \(\d+\.\d\dx\)")

    def test_resources_may_have_options(self):
        trace = self.file("trace.csv", random_trace(5, 300)[0])
        specs = ["pool(initial=64MiB,growth=1MiB)/device", "pool/system",
                 "limiting(8GiB)/pool( 1MiB , limit=1GiB)/device", "device"]
        found = self.nothing_wrong(trace, "--resource", specs[0], "--repeat", "1",
                                   "--compare", ",".join(specs[1:]))
        self.assertEqual([result["resource"] for result in found["results"]], specs)
        self.assertGreaterEqual(found["results"][0]["peak_held_bytes"], 64 << 20)
        self.assertLess(found["results"][1]["peak_held_bytes"], 64 << 20)
        self.refused("character 7: here a \",\" or", "replay", trace, "--compare",
                     "device,pool(1(2),3)/device")
        self.refused("character 6: this quote is never closed", "replay", trace,
                     "--compare", "pool(\"1,2)/device,device")
        self.refused("character 6: initial is no text", "replay", trace, "--compare",
                     "device,pool(\"\\\",)(,\")/device,device")

    def test_held_is_what_the_leaves_hold(self):
        trace = self.file("trace.csv", random_trace(5, 300)[0])
        chains = ["pool/device", "binning/pool/device", "limiting(8GiB)/pool/device"]
        found = self.nothing_wrong(trace, "--compare", ",".join(chains),
                                   "--repeat", "1")["results"]
        held = [result["peak_held_bytes"] for result in found]
        self.assertEqual(held[0] % (8 << 20), 0)
        self.assertEqual(held[1] % (8 << 20), 0)  # not what the bins have of the pool
        self.assertEqual(held[2], held[0])

    def test_threads_are_held_against_what_they_had_live(self):
        trace = self.file("trace.csv", random_trace(5, 300)[0])
        for result in self.nothing_wrong(trace, "--compare", "pool/device,device",
                                         "--repeat", "1", "--streams", "2",
                                         "--threads", "2")["results"]:
            self.assertGreaterEqual(result["held_over_live"], 1)
            self.assertNotEqual(result["peak_live_bytes"], 0)

    def test_table_is_for_people(self):
        trace = self.file("trace.csv", random_trace(5, 300)[0])
        run = weir("replay", trace, "--verify", "--fit", "--streams", "3")
        self.assertEqual((run.returncode, run.stderr), (0, ""))
        for words in (r"^trace +\S+trace\.csv$", r"^ns per event +\d",
                      r"^held / live +\d", r"^peak live +[\d.]+ [KMG]iB",
                      r"^peak held +[\d.]+ [KMG]iB",
                      r"^chunk / live +[1-9]\.", r"^device calls$", r"^  malloc +\d",
                      r"^out of memory +0$", r"^ledger findings +0$",
                      r"^data errors +0$", r"^nothing is wrong"):
            self.assertRegex(run.stdout, re.compile(words, re.MULTILINE))

    def test_nothing_is_wrong_however_it_is_spread(self):
        for seed in range(SPREADS):
            text, _ = random_trace(seed, 400, threads=4, streams=2)
            trace = self.file("trace.csv", text)
            common = (trace, "--verify", "--seed", str(seed), "--repeat", "1",
                      "--resource", ("pool/device", "pool/system", "device")[seed % 3])
            found = self.nothing_wrong(*common)
            self.assertEqual((found["streams"], found["spread"]), (2, "trace"))
            for spread in ("random", "thread", "phase"):
                for threads in ("1", "2", "5"):
                    found = self.nothing_wrong(*common, "--streams", "4", "--spread",
                                               spread, "--threads", threads)
                    self.assertEqual(found["streams"], 4)
                    self.assertEqual(found["spread"], spread)
                    self.assertGreater(found["handoffs"], 0)
                    self.assertEqual(found["crossings"] > 0, threads != "1")

    def test_random_hands_half_of_the_blocks_over(self):
        trace = self.file("trace.csv", random_trace(6, 4000)[0])
        found = self.nothing_wrong(trace, "--streams", "4", "--spread", "random",
                                   "--repeat", "1")
        self.assertAlmostEqual(found["handoffs"] / found["allocations"], 0.5,
                               delta=0.05)
        calls = found["results"][0]["device_calls"]
        self.assertGreaterEqual(calls["stream_wait_event"], found["handoffs"] // 2)

    def test_thread_says_if_streams_stay_empty(self):
        trace = self.file("trace.csv", random_trace(7, 50)[0])
        found = self.results(trace, "--streams", "2", "--spread", "thread")
        self.assertIn("fill 1 of the 2 streams", found["stderr"])

    def test_the_same_seed_gives_the_same_figures(self):
        trace = self.file("trace.csv", random_trace(8, 500)[0])
        arguments = (trace, "--streams", "4", "--seed", "9", "--verify", "--skip-wait",
                     "--repeat", "1")
        once, again = (self.results(*arguments, status=1) for _ in range(2))
        for found in (once, again):
            for result in found["results"]:
                del result["ns_per_event"], result["ns_per_event_median"]
            found["stderr"] = re.sub("0x[0-9a-f]+", "", found["stderr"])
        self.assertEqual(once, again)


LOG = "Thread,Time,Action,Pointer,Size,Stream\n"
LOG_STREAMS = ["0", "0x1", "0x2", "0x55d0c8a2b2c0", "0x55d0c8a2c000"]


def random_log(seed, events, extra):
    """A log as RMM writes it, or with `extra` as Weir does: three threads, default
    streams and others, frees on any of them; some calls fail, some are for nothing."""
    draw = random.Random(seed)
    lines, live = [], {}
    header = LOG[:-1] + ",Device,Alignment,Sequence\n" if extra else LOG
    def add(action, pointer, size, alignment):
        line = (f"{4000 + draw.randrange(3)},12:00:{len(lines) % 60:02}.000001,"
                f"{action},{pointer},{size},{draw.choice(LOG_STREAMS)}")
        if extra:
            line += f",cuda:0,{alignment},{len(lines) + 1}"
        lines.append(line + "\n")
    while len(lines) < events:
        what = draw.random()
        if what < 0.05:
            add("allocate failure", "(nil)", 1 << 40, 256)
        elif what < 0.1 and not extra:
            add(draw.choice(["allocate", "free"]), "(nil)", 0, 256)
        elif live and what < 0.5:
            pointer = draw.choice(sorted(live))
            add("free", pointer, *live.pop(pointer))
        else:
            pointer = hex(draw.randrange(1, 1000) * 256)
            if pointer not in live:
                alignment = draw.choice([16, 256]) if extra else 256
                live[pointer] = int(2 ** draw.uniform(0, 20)), alignment
                add("allocate", pointer, *live[pointer])
    return header + "".join(lines), lines


class Logs(Case):
    def test_a_log_is_replayed_on_its_own_streams(self):
        for extra in (False, True):
            text, lines = random_log(6, 600, extra)
            trace = self.file("log.csv.gz", text)
            failures = sum("failure" in line for line in lines)
            nothing = sum(",(nil),0," in line for line in lines)
            for more in ((), ("--streams", "trace"), ("--threads", "3")):
                found = self.nothing_wrong(trace, "--verify", *more)
                # 0 and 0x1 are one stream, and 0x2 is another on each thread.
                self.assertEqual(found["streams"], 6)
                self.assertEqual(found["failures_skipped"], failures)
                self.assertEqual(found["zero_bytes_skipped"], nothing)
                self.assertGreater(found["handoffs"], 50)
                self.assertEqual(found["results"][0]["events"],
                                 600 - failures - nothing)
            self.nothing_wrong(trace, "--streams", "2", "--fit")
            found = self.results(trace, "--skip-wait", status=1)
            self.assertGreater(found["results"][0]["ledger_findings"], 0)
            self.assertEqual(nothing > 0, not extra)

    def test_the_table_tells_what_is_skipped(self):
        trace = self.file("log.csv", LOG +
                          "1,00:00:00.000000,allocate failure,(nil),9,0\n"
                          "1,00:00:00.000000,allocate,0x100,9,0\n")
        run = weir("replay", trace)
        self.assertEqual((run.returncode, run.stderr), (0, ""))
        self.assertIn("1 failure and 0 calls for zero bytes are skipped", run.stdout)

    def test_what_weir_logs_is_replayed(self):
        """A replay through the adaptor makes a log; that one replays alike."""
        trace = self.file("log.csv", random_log(7, 300, True)[0])
        log = os.path.join(self.folder.name, "again.csv")
        found = self.nothing_wrong(trace, "--repeat", "1", "--resource",
                                   f"logging(file={log},append=true)/pool/device")
        again = self.nothing_wrong(log, "--verify")
        # One timed pass and the checked one, each of which frees all in the end.
        self.assertEqual(again["allocations"], 2 * found["allocations"])
        self.assertEqual(again["failures_skipped"], 0)
        self.refused("is being written to", "replay", trace, "--resource",
                     f"logging({log})/logging({log})/device")

    def test_a_broken_log_is_refused_with_its_line(self):
        trace = self.file("log.csv", LOG + "1,00:00:00.000000,free,0x100,9,0\n")
        self.refused("log.csv:2: pointer 0x100 is freed and was never", "replay", trace)


class Costs(Case):
    def run_with(self, text, *arguments):
        trace = self.file("trace.csv", random_trace(11, 500)[0])
        costs = self.file("costs.txt", text)
        return self.nothing_wrong(trace, "--repeat", "1", "--costs", costs, *arguments)

    def test_costs_of_calls_are_added_to_the_hosts_time(self):
        costs = "# of nowhere\n\nevent_record 1000 # each\nmalloc 5e5 0\r\n"
        found = self.run_with(costs, "--streams", "4",
                              "--compare", "pool/device,device")
        self.assertTrue(found["costs"].endswith("costs.txt"))
        for result in found["results"]:
            calls = result["device_calls"]
            self.assertGreater(calls["malloc"], 0)
            wanted = (calls["event_record"] * 1000 + calls["malloc"] * 5e5) / 500
            self.assertAlmostEqual(result["device_ns_per_event"], wanted, delta=0.01)
            self.assertAlmostEqual(result["predicted_ns_per_event"],
                                   wanted + result["ns_per_event"], delta=0.02)

    def test_bytes_cost_too(self):
        result, = self.run_with("malloc 0 1e6\n", "--resource", "device")["results"]
        text = random_trace(11, 500)[0]
        asked = sum(int(line.split(",")[5]) for line in text.split("\n")[1:]
                    if ",A," in line)
        self.assertAlmostEqual(result["device_ns_per_event"],
                               asked / (1 << 20) * 1e6 / 500, delta=0.01)

    def test_the_costs_that_ship_are_read(self):
        path = os.path.join(TOP, "bench/costs/published.txt")
        trace = self.file("trace.csv", random_trace(12, 200)[0])
        result, = self.nothing_wrong(trace, "--costs", path)["results"]
        self.assertGreater(result["device_ns_per_event"], 0)
        run = weir("replay", trace, "--costs", path)
        self.assertRegex(run.stdout, r"\n  predicted in all +\d")
        result, = self.nothing_wrong(trace)["results"]
        self.assertIsNone(result["device_ns_per_event"])
        self.assertNotIn("predicted", weir("replay", trace).stdout)

    def test_a_broken_file_of_costs_is_refused_with_its_line(self):
        trace = self.file("trace.csv", random_trace(13, 50)[0])
        for line, why in (("cudaMalloc 3", "no device call is a `cudaMalloc`"),
                          ("malloc", "after the call come its ns"),
                          ("malloc 1 2 3", "after the call come its ns"),
                          ("malloc -1", "`-1` is no number of ns"),
                          ("malloc 1 nan", "`nan` is no number of ns"),
                          ("malloc 1e999", "`1e999` is no number of ns"),
                          ("malloc 3us", "`3us` is no number of ns"),
                          ("fill 2", "fill has its cost already"),
                          ("malloc " + "0" * 400, "the line is longer than 398")):
            path = self.file("costs.txt", f"fill 1\n{line}\n")
            self.refused(f"{path}:2: {why}", "replay", trace, "--costs", path)
        path = self.file("costs.txt", "# nothing\n")
        self.refused(f"{path}: there is no cost in it", "replay", trace, "--costs",
                     path)
        self.refused("no/costs.txt: No such file", "replay", trace, "--costs",
                     "no/costs.txt")


class Wrong(Case):
    def test_a_replay_without_its_waits_is_found_out(self):
        errors = 0
        for seed in range(1, RACES + 1):
            trace = self.file("trace.csv", random_trace(seed, 600)[0])
            common = (trace, "--streams", "4", "--seed", str(seed), "--repeat", "1")
            for threads in ("1", "2"):
                found = self.results(*common, "--verify", "--skip-wait", "--threads",
                                     threads, status=1)
                self.assertGreater(found["results"][0]["ledger_findings"], 0)
                self.assertIn("weir: pool/device: ledger: ", found["stderr"])
                errors += found["results"][0]["data_errors"]
            found = self.results(*common, "--skip-wait", status=1)
            self.assertGreater(found["results"][0]["ledger_findings"], 0)
            self.nothing_wrong(*common, "--verify")
        self.assertGreater(errors, 0)
        run = weir("replay", *common, "--skip-wait")
        self.assertIn("SOMETHING IS WRONG", run.stdout)

    def test_memory_that_runs_out_is_counted(self):
        lines = [HEADER] + [f"{i},0,0,A,{i},1048576\n" for i in range(40)]
        lines += [f"{40 + i},0,0,F,{i},1048576\n" for i in range(40)]
        trace = self.file("trace.csv", "".join(lines))
        for threads in ("1", "2"):
            found = self.results(trace, "--memory", "16MiB", "--resource", "device",
                                 "--threads", threads, "--verify", status=1)
            result = found["results"][0]
            if threads == "1":
                self.assertEqual(result["out_of_memory"], 24)
                self.assertEqual(result["peak_live_bytes"], 16 << 20)
            self.assertGreater(result["out_of_memory"], 0)
            self.assertEqual(result["ledger_findings"] + result["data_errors"], 0)
        found = self.results(trace, "--resource", "fixed_size(256)/device", status=1)
        self.assertEqual(found["results"][0]["out_of_memory"], 40)
        self.assertEqual(found["results"][0]["peak_live_bytes"], 0)


class Fit(Case):
    def fit(self, lines):
        trace = self.file("trace.csv", "".join([HEADER] + lines))
        found = self.nothing_wrong(trace, "--fit", "--repeat", "1")
        return found["results"][0]["fit_over_live"]

    def test_a_stack_fits_into_its_peak(self):
        lines = [f"{i},0,0,A,{i},1048576\n" for i in range(20)]
        lines += [f"{40 - i},0,0,F,{i},1048576\n" for i in reversed(range(20))]
        self.assertEqual(self.fit(lines), 1)

    def test_a_device_without_room_for_the_chunk_is_told(self):
        lines = [f"0,0,0,A,{i},262144\n" for i in range(8)]
        lines += [f"1,0,0,F,{i},262144\n" for i in range(0, 8, 2)]
        lines += ["2,0,0,A,8,1048576\n"]
        trace = self.file("trace.csv", "".join([HEADER] + lines))
        found = self.results(trace, "--fit", "--memory", "2MiB", status=1)
        self.assertIn("no single chunk", found["stderr"])
        result = found["results"][0]
        self.assertEqual((result["fit_over_live"], result["failed"]), (None, True))
        self.assertIsNotNone(result["ledger_findings"])

    def test_holes_that_nothing_fits_into_cost_their_size(self):
        lines = [f"0,0,0,A,{i},262144\n" for i in range(8)]
        lines += [f"1,0,0,F,{i},262144\n" for i in range(0, 8, 2)]
        lines += ["2,0,0,A,8,1048576\n"]
        self.assertAlmostEqual(self.fit(lines), 1.5, delta=0.001)


if __name__ == "__main__":
    if not os.path.isfile(TOOL):
        print("skipped: WEIR_TOOL names no program")
        sys.exit(77)
    unittest.main(verbosity=2)
