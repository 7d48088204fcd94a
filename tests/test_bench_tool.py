#!/usr/bin/env python3
"""test_bench_tool.py - what tools/bench makes of what the benchmark programs say, and
of what they do not say. The programs here are scripts: it needs no Google Benchmark, no
peers and no matplotlib.
"""
import csv
import io
import json
import os
import subprocess
import sys
import tempfile
import unittest

TOP = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
sys.path.insert(0, os.path.join(TOP, "tools"))
import bench_best_fit
import bench_memory
import bench_plan
import bench_record
import bench_reference
import bench_results
import bench_run
import bench_table
import bench_targets

# A benchmark program that takes 3 ns by itself and 10 with "weir", the processor's time
# being two less than the clock's. It breaks where it is asked for W3, and says nothing
# of W2 and half of it of W1/256 and W1/1M.
PROGRAM = """#!/bin/sh
echo "$0 $*" >> "$0.log"
ns=3 threads=1 record=0
case $0 in *weir) ns=10 record=0.5;; esac
case $1 in W3) echo "the work has failed" >&2; exit 1;; esac
case $1 in W2) echo '{}'; exit 0;; W1/256) echo '{"benchmarks": ['; exit 0;; esac
case $1 in W1/1M) echo '{"benchmarks": [{"threads": 1}]}'; exit 0;; esac
case $2 in --threads) threads=$3;; esac
echo '{"benchmarks": [{"threads": '$threads', "cpu_time": '$((ns - 2))', "real_time": 0,
 "items_per_second": '$((threads * 1000000000 / ns))', "event_record": '$record',
 "event_query": 0, "stream_wait_event": 0, "others": 0}]}'
"""


def quiet(words):
    del words


class Programs(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = folder.name
        for name in ["bench_null", "bench_weir", "bench_tcmalloc"]:
            path = os.path.join(self.folder, name)
            with open(path, "w", encoding="ascii") as file:
                file.write(PROGRAM)
            os.chmod(path, 0o755)
        self.bench = bench_run.Bench(self.folder, 0.5)
        stderr, sys.stderr = sys.stderr, io.StringIO()
        self.addCleanup(setattr, sys, "stderr", stderr)

    def figures(self, items, rounds=3):
        return bench_run.figures_of(
            bench_run.measure_all(self.bench, items, rounds, quiet))

    def test_figures_are_net_of_the_harness(self):
        items = [bench_plan.case_item("W1/4K", ["null", "weir"])]
        found = self.figures(items)["W1/4K"]
        self.assertEqual(self.bench.failures, [])
        self.assertEqual(found["null"]["gross"], 1)
        self.assertEqual(found["weir"]["runs"], [8, 8, 8])
        self.assertEqual(found["weir"]["net"], 7)
        self.assertEqual(found["weir"]["wall"], 10)
        self.assertEqual(found["weir"]["calls"], {"event_record": 0.5})
        self.assertNotIn("calls", found["null"])

    def test_several_threads_are_timed_by_the_clock(self):
        items = [bench_plan.case_item("W6a", ["null", "weir"], 4)]
        found = self.figures(items)["W6a/t4"]
        self.assertEqual(found["null"]["gross"], 3)
        self.assertEqual(found["weir"]["gross"], 10)
        with open(os.path.join(self.folder, "bench_weir.log"), encoding="ascii") as log:
            self.assertIn("bench_weir W6a --threads 4 --seconds 0.5", log.read())

    def test_what_two_threads_do_together_is_counted_once(self):
        run = {"threads": 2, "cpu_time": 30, "items_per_second": 2e7, "event_record": 1,
               "event_query": 0, "stream_wait_event": 0, "others": 0}
        one = bench_run.one_run(run, 2)
        self.assertEqual((one["ns"], one["wall"], one["cpu"]), (50, 50, 60))
        self.assertEqual(bench_run.one_run(run, 1)["ns"], 100)
        with open(os.path.join(TOP, "bench", "cases.c"), encoding="utf-8") as file:
            text = file.read()
        for case, crew in bench_plan.CREWS.items():
            self.assertRegex(text, rf'"{case}"[^{{}}]*\.crew = {crew},')
        self.assertEqual(text.count(".crew"), len(bench_plan.CREWS))

    def test_of_one_thread_there_are_more_processes(self):
        items = list(bench_plan.thread_items("W6a", [1, 2]))
        for item in items:
            item.allocators = ["null", "weir"]
        found = self.figures(items)
        self.assertEqual([len(found[key]["weir"]["runs"]) for key in ["W6a", "W6a/t2"]],
                         [9, 3])

    def test_what_fails_is_told_and_left_out(self):
        items = [bench_plan.case_item("W3", ["null", "weir"]),
                 bench_plan.case_item("W4", ["null", "glibc"])]
        found = self.figures(items, rounds=1)
        self.assertEqual(found["W3"], {})
        self.assertEqual(list(found["W4"]), ["null"])
        self.assertEqual(len(self.bench.failures), 3)
        self.assertIn("the work has failed", self.bench.failures[0])
        self.assertIn("No such file", self.bench.failures[2])


    def test_what_tells_nothing_is_a_failure(self):
        items = [bench_plan.case_item(name, ["weir"])
                 for name in ["W1/256", "W2", "W1/1M", "W4"]]
        found = self.figures(items, rounds=1)
        self.assertEqual([list(found[item.key]) for item in items],
                         [[], [], [], ["weir"]])
        self.assertEqual(len(self.bench.failures), 3)
        self.assertIn("no JSON object", self.bench.failures[0])
        self.assertIn("no JSON object", self.bench.failures[1])
        self.assertIn("no figures", self.bench.failures[2])

    def test_options_for_weir_are_given_to_no_other(self):
        item = bench_plan.Item("W4", ["W4"], ["null", "weir"], ["--memory", "5"])
        self.figures([item], rounds=1)
        for name, told in [("weir", "W4 --memory 5 --seconds"),
                           ("null", "W4 --seconds")]:
            path = os.path.join(self.folder, f"bench_{name}.log")
            with open(path, encoding="ascii") as log:
                self.assertIn(f"bench_{name} {told}", log.read())


def program(name):
    """Where the tests are built with it, in the folder of `weir`."""
    tool = os.environ.get("WEIR_TOOL", "")
    return os.path.join(os.path.dirname(tool), "bench", name)


class WrongUsage(unittest.TestCase):
    def refused(self, status, words, *command):
        ran = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True,
                             text=True, timeout=60, check=False)
        self.assertEqual((ran.returncode, ran.stdout), (status, ""), command)
        self.assertIn(words, ran.stderr)
        self.assertNotIn("Traceback", ran.stderr)

    def test_of_the_tool_before_it_builds_anything(self):
        tool = os.path.join(TOP, "tools", "bench")
        presets = os.path.join(TOP, "CMakePresets.json")
        for status, words, *options in [
                (2, "no figure's name begins with 'nonsense'", "--only", "nonsense"),
                (2, "begins with 'nonsense'", "--quick", "--only", "W5", "nonsense"),
                (2, "'-1' is not 1 or more", "--rounds", "-1"),
                (2, "'0' is not 1 or more", "--rounds", "0"),
                (2, "'0' is not more than 0", "--seconds", "0"),
                (2, "'nan' is not more than 0", "--seconds", "nan"),
                (2, "--against wants --table", "--against", "x"),
                (2, "of a whole run", "--quick", "--record"),
                (1, "/nope: No such file", "--table", "/nope"),
                (1, "/nope: No such file", "--record", "/nope"),
                (1, "no JSON", "--table", tool),
                (1, "not the results", "--table", presets)]:
            self.refused(status, words, sys.executable, tool, *options)

    def test_of_the_programs(self):
        programs = [program(name) for name in
                    ["pairs_glibc", "pairs_cuda_stand_in", "bench_moments"]]
        if not all(map(os.path.isfile, programs)):
            self.skipTest("the programs are not built here")
        glibc, cuda, moments = programs
        for option, *value in [("--spec", "pool/device"), ("--device", "cuda:0"),
                               ("--memory", "5"), ("--unknown",), ("--own",)]:
            self.refused(2, f"{option} means nothing", glibc, "W1/4K", option, *value)
        self.refused(2, "--device means nothing", cuda, "W1/4K", "--device", "cuda:0")
        self.refused(1, 'not "asynch"', cuda, "W1/4K", "--spec", "asynch")
        self.refused(2, "begins with 'nonsense'", moments, "clock", "nonsense")

    def test_moments_are_those_whose_names_begin_so(self):
        if not os.path.isfile(program("bench_moments")):
            self.skipTest("it is not built here")
        said = subprocess.run([program("bench_moments"), "cl", "handover/1M"],
                              capture_output=True, text=True, timeout=60, check=True)
        names = [json.loads(line)["name"] for line in said.stdout.splitlines()]
        self.assertEqual(names, ["clock", "handover/1M"])


class Plan(unittest.TestCase):
    def test_every_case_is_one_of_the_programs(self):
        text = ""
        for name in ["cases.c", "own_cases_weir.c"]:
            with open(os.path.join(TOP, "bench", name), encoding="utf-8") as file:
                text += file.read()
        named = [*bench_plan.WORKLOADS, *bench_plan.QUICK, *bench_plan.UNKNOWN,
                 *bench_plan.LOOKUPS.values(), *bench_plan.SIZES, *bench_plan.LIVE,
                 *bench_plan.BUFFERS, *bench_plan.DEVICE, *bench_plan.BOUNDED,
                 *bench_plan.LIVE_LARGE, *bench_plan.TARGETS, *bench_memory.FIT,
                 *bench_memory.HOST, *bench_targets.FIT,
                 *bench_memory.MANY]
        for name in named:
            self.assertIn(f'"{name}"', text)

    def test_no_figure_is_measured_twice(self):
        for quick in [True, False]:
            items = bench_plan.items_of(quick, 2, {"t": "t.txt"}, {})
            keys = [item.key for item in items]
            self.assertEqual(len(keys), len(set(keys)))
            self.assertIn("trace/t", keys)

    def test_a_bounded_pool_has_the_limit_of_its_workload(self):
        items = {item.key: item for item in
                 bench_plan.items_of(True, 2, {}, {"W3": 512, "W4": 768})}
        self.assertIn("weir-bounded", items["W3"].allocators)
        self.assertNotIn("weir-bounded", items["W5/10k"].allocators)
        self.assertEqual(items["W4"].arguments_of("weir-bounded"),
                         ["W4", "--spec", "pool(initial=768, limit=768)/device"])
        self.assertEqual(items["W4"].arguments_of("weir"), ["W4"])

    def test_many_threads_have_a_device_with_room_for_them(self):
        item = bench_plan.case_item("W6b/10k", ["null", "weir", "weir-arena"], 64)
        for name in ["weir", "weir-arena"]:
            self.assertEqual(item.arguments_of(name)[-1], str(256 << 30))
        self.assertNotIn("--memory", item.arguments_of("null"))
        self.assertEqual(bench_plan.case_item("W6a", ["weir"], 16).for_weir, [])

    def test_scripts_are_made_of_both_forms_of_trace(self):
        rows = csv.DictReader(["t_ns,thread,stream,op,id,size", "0,0,0,A,7,100",
                               "1,0,0,A,9,200", "2,0,0,F,7,100", "3,0,0,F,5,1"])
        self.assertEqual(list(bench_plan.events_of(rows)),
                         [("A", 0, 100), ("A", 1, 200), ("F", 0, 0)])
        rows = csv.DictReader(
            ["Thread,Time,Action,Pointer,Size,Stream", "1,0,allocate,0x10,100,0",
             "1,0,free,0x10,100,0", "1,0,allocate failure,0x0,9,0",
             "1,0,allocate,0x10,50,0"])
        self.assertEqual(list(bench_plan.events_of(rows)),
                         [("A", 0, 100), ("F", 0, 0), ("A", 1, 50)])

    def test_peaks_are_of_whole_units(self):
        events = [("A", 0, 100), ("A", 1, 300), ("F", 0, 0), ("A", 2, 257)]
        self.assertEqual(bench_plan.peak_of(events, 1), 557)
        self.assertEqual(bench_plan.peak_of(events, 256), 1024)

    def test_the_projects_traces_become_scripts(self):
        with tempfile.TemporaryDirectory() as folder:
            scripts = bench_plan.write_scripts(False, folder)
            with open(scripts["word_index"], encoding="ascii") as file:
                lines = file.readlines()
        self.assertEqual(len(lines), 2398)
        self.assertEqual(lines[0], "A 0 39\n")
        self.assertEqual(sum(line.startswith("F") for line in lines), 1199)


RESULTS = {
    "machine": {"processor": "Intel(R) Xeon(R) X (family 6, model 1, stepping 8)",
                "cores": 2, "kernel": "6.1", "system": "Debian",
                "packages": {"gcc": "1"},
                "commit": "abc", "date": "2026-01-31", "load_before": [0.1, 0.2, 0.3],
                "load_after": [1, 2, 3]},
    "rounds": 3, "seconds": 0.2, "failures": [],
    "instructions": {"device/event_record": {"weir": 428}},
    "figures": {
        "W1/4K": {"null": {"gross": 3, "net": 0}, "weir": {"gross": 10, "net": 7,
                  "calls": {"event_record": 1}}, "glibc": {"gross": 43, "net": 40}},
        "W5/100k": {"null": {"gross": 5}, "weir": {"gross": 65, "net": 60}},
        "lookup/100k": {"null": {"gross": 40}},
        "lookup-table/100k": {"null": {"gross": 48}},
        "lookup-ahead/100k": {"null": {"gross": 4}},
        "W6a": {"null": {"gross": 3}, "weir": {"gross": 10, "cpu": 9},
                "weir-arena": {"gross": 16, "cpu": 9}},
        "W6a/t2": {"null": {"gross": 3}, "weir": {"gross": 20, "cpu": 10}},
        "W6a/t4": {"null": {"gross": 3}, "weir": {"gross": 20, "cpu": 18},
                   "weir-arena": {"gross": 40, "cpu": 9}},
        "threads/freed-by-another/t2": {"null": {"gross": 50},
                                        "weir": {"gross": 64, "net": 14, "cpu": 1}},
        "device/event_record": {"weir": {"gross": 40}},
        "device/event_query": {"weir": {"gross": 30}},
        "RMM/RANDOM_ALLOCATIONS/1000/1": {"null": {"gross": 4},
                                          "weir": {"gross": 30, "runs": [30, 24, 31]}},
        "RMM/UVECTOR/10k": {"weir": {"gross": 5000, "runs": [5000]}}},
}


class BestFit(unittest.TestCase):
    @staticmethod
    def events(*steps):
        """Of numbers, in units: 1 to 99 is allocated under its place in the row, less
        than 0 frees the place."""
        return [("A", at, 256 * step - 255) if step > 0 else ("F", -step, 0)
                for at, step in enumerate(steps, 1)]

    def must_need(self, units, *steps):
        events = self.events(*steps)
        peak = bench_plan.peak_of(events, 256)
        self.assertEqual(bench_best_fit.fit(events, peak), 256 * units)
        self.assertFalse(bench_best_fit.suffices(events, units - 1))

    def test_nothing_is_lost_where_nothing_is_freed(self):
        self.must_need(6, 1, 2, 3)

    def test_a_hole_that_is_too_small_is_lost(self):
        self.must_need(5, 1, 1, 1, -2, 2)

    def test_neighbours_merge_at_once(self):
        self.must_need(4, 1, 1, 1, 1, -2, -3, 2)
        self.must_need(4, 1, 1, 1, 1, -3, -2, 2)
        self.must_need(6, 1, 1, 1, 1, 2, -1, -3, -2, 3)

    def test_the_smallest_hole_is_taken(self):
        self.must_need(6, 3, 1, 1, 1, -1, -3, 1, 3)

    def test_of_equal_ones_the_lowest(self):
        self.must_need(5, 1, 1, 1, 1, 1, -2, -4, 1, -5, 2)


class Reference(unittest.TestCase):
    def test_a_machine_is_as_slow_as_its_mallocs(self):
        figures = {key: {name: {"net": 2 * bench_reference.net_of(name, key)}
                         for name in ["tcmalloc", "glibc"]}
                   for key in ["W1/1M", "W3", "W5/10k"]}
        figures["W1/1M"]["weir"] = {"net": 1e6}   # says nothing of the machine
        figures["W1/256"] = {"tcmalloc": {"net": 1e6}}  # all harness and clock there
        self.assertAlmostEqual(bench_reference.scale_of(figures), 2)
        self.assertIsNone(bench_reference.scale_of({}))
        self.assertIsNone(bench_reference.net_of("VMA", "W4"))
        self.assertIsNone(bench_reference.net_of("RMM", "W6a"))
        for gross in bench_reference.GROSS.values():
            self.assertEqual(len(gross), len(bench_reference.KEYS))


class Tables(unittest.TestCase):
    def rows_of(self, heading):
        found = [rows for words, rows in bench_table.tables_of(RESULTS)
                 if words.startswith(heading)]
        self.assertEqual(len(found), 1)
        return found[0]

    def test_targets_stand_beside(self):
        rows = self.rows_of("workloads")
        self.assertEqual(rows[1], ["W1/4K", "3.0", "8", "9.0", "yes", "7.0",
                                   *["-"] * 5, "40", "78", "82", "10", "record 1", ""])
        self.assertEqual([row[0] for row in rows[1:]], ["W1/4K", "W5/100k"])

    def test_calls_of_the_device_are_told(self):
        self.assertEqual(self.rows_of("calls of the emulated device")[1:],
                         [["event_record", "40", "428"], ["event_query", "30", "-"]])

    def test_rmms_runs_are_as_net_as_their_median(self):
        self.assertEqual(self.rows_of("RMM's benchmarks")[1:],
                         [["RANDOM_ALLOCATIONS/1000/1", "26", "26, 20, 27", "4.0"],
                          ["UVECTOR/10k", "5000", "5000", "in it"]])

    def test_bounded_pools_are_beside_those_that_grow(self):
        figures = {"W3": {"weir": {"net": 20}, "weir-bounded": {
            "net": 50, "calls": {"event_record": 0.25}}}, "W4": {"weir": {"net": 9}}}
        rows = bench_table.bounded_rows(figures, {"W3": 3 << 20, "W4": 6144})
        self.assertEqual(rows[1:], [["W3", "3.0 MiB", "20", "50", "2.5",
                                     "record 0.25"]])

    def test_what_is_held_is_that_of_the_drift(self):
        fit = {"peak_bytes": 1 << 20, "fit_bytes": 2 << 20, "fit": 2.0, "rounded": 1.0}
        memory = {"fit": {"W3": dict(fit, grown=1.5), "W5/10k": dict(fit, grown=1.5)},
                  "drift": {"W3": {"samples": [[100, 50, 0], [160, 20, 0],
                                               [90, 80, 0]]}},
                  "traces": {"t": dict(fit, held_over_live=1.25, best_fit=1.5)}}
        rows = bench_memory.fit_rows(
            bench_results.as_now({"figures": {}, "memory": memory})["memory"], {})
        self.assertEqual(rows[1][3:], ["2.0000", "", "", "1.0000", "", "2.0000",
                                       "8.0000", "1.51", "1.43", "65", "1.11"])
        self.assertEqual(rows[2][8:10], ["", ""])
        self.assertEqual(rows[3][4:10], ["1.06", "", "1.0000", "1.5000", "1.2500", ""])
        self.assertEqual(bench_memory.ratio(10240.0), "10240.0")

    def test_more_than_a_core_can_do_is_noise(self):
        self.assertEqual(bench_table.share_words(1.05), "105 %")
        self.assertEqual(bench_table.share_words(1.2), "120 % (noise)")

    def test_what_is_missed_is_told_above(self):
        said = bench_table.missed_sentence(RESULTS)
        self.assertEqual(said, "Targets missed: 1 of 5 (in brackets what is to be "
                         "reached): W6a/t2 per core 50 % (90 %).")
        self.assertTrue(bench_table.text_of(RESULTS).startswith("Targets missed: 1 "))
        self.assertIn(said, bench_record.block_of(RESULTS, "x"))
        memory = {"fit": {"W5/10k": {"fit": 1.09}, "W3": {"fit": 9}},
                  "traces": {"t": {"fit": 1.05}}, "host": {"W5/10k": {"of_allowed": 2}}}
        targets = bench_targets.targets_of({**RESULTS, "memory": memory})
        self.assertEqual([key for (kind, key), it in targets.items() if it.is_missed],
                         ["W6a/t2", "W5/10k", "W5/10k"])
        self.assertEqual(bench_targets.mark(targets, "fit", "t"), "yes")
        self.assertEqual(bench_targets.mark(targets, "fit", "W3"), "")
        self.assertIn("none of 0", bench_targets.sentence_of({}))

    def test_lookups_are_beside_what_they_are_for(self):
        self.assertEqual(self.rows_of("beside a bare")[1],
                         ["W5/100k", "60", "40", "48", "4.0", "1.50", "2", "yes",
                          "1.25"])

    def test_threads_count_up_to_the_cores(self):
        rows = self.rows_of("threads, million")
        rows = rows[1:-1]
        self.assertEqual([row[1] for row in rows], ["1", "2", "4"])
        self.assertEqual([row[3] for row in rows], ["100.0", "100.0", "200.0"])
        self.assertEqual([row[-4] for row in rows], ["100 %", "50 %", "100 %"])
        self.assertEqual([row[-3] for row in rows], ["", "NO", ""])
        self.assertEqual([row[-2] for row in rows], ["100 %", "90 %", "50 %"])
        self.assertEqual([row[-1] for row in rows], ["100 %", "-", "80 %"])

    def test_meetings_are_told_as_so_many_hits(self):
        self.assertEqual(self.rows_of("threads that meet")[1],
                         ["threads/freed-by-another/t2", "14", "2.0", "3", "yes",
                          "2.0"])
        self.assertEqual(self.rows_of("threads, million")[-1][:4],
                         ["threads/freed-by-another", "2", "20.0", "15.6"])

    def test_older_results_had_one_side_of_what_two_threads_do(self):
        def figures_of(version, cpu, calls):
            return {**version, "figures": {key: {"weir": {
                "gross": 50, "cpu": cpu, "calls": {"event_record": calls}}}
                for key in ["threads/freed-by-another/t2", "W6a/t2"]}}

        old, same = figures_of({}, 40, 0.5), figures_of({"version": 2}, 40, 0.5)
        now = bench_results.as_now(old)["figures"]
        self.assertEqual(now["threads/freed-by-another/t2"]["weir"],
                         {"gross": 50, "cpu": 80, "calls": {"event_record": 1}})
        self.assertEqual(now["W6a/t2"], old["figures"]["W6a/t2"])
        moments = [{"name": "refusal/x"}, {"name": "clock"}]
        now = bench_results.as_now({"figures": {}, "memory": {"moments": moments}})
        self.assertEqual([it["name"] for it in now["memory"]["moments"]],
                         ["refusal/x, again", "clock"])
        self.assertEqual(old, figures_of({}, 40, 0.5))
        self.assertIs(bench_results.as_now(same), same)

    def test_many_streams_are_told_by_pool(self):
        memory = {"many": {"W5/320/4s": {"pool/device": {
            "peak_bytes": 2 << 20, "grown_bytes": 5 << 20, "ns": 31.5}}}}
        self.assertEqual(bench_memory.many_rows(memory)[1:],
                         [["W5/320/4s", "pool/device", "2.0 MiB", "5.0 MiB", "2.5",
                           "32"]])
        self.assertEqual(len(bench_memory.many_rows({})), 1)

    def test_what_has_changed_is_told_as_the_mallocs_see_it(self):
        def run(malloc, **weir):
            figures = {key: {"null": {"gross": 1.0}, "weir": {"net": ns, "gross": ns}}
                       for key, ns in weir.items()}
            figures["W1/4K"] = {name: {"net": malloc, "gross": malloc}
                                for name in ["tcmalloc", "jemalloc", "mimalloc"]}
            return {"figures": figures}

        rows = bench_table.changed_rows(run(10.0, a=10.0, b=5.0, c=20.0, new=1.0),
                                        run(10.0, a=10.0, b=10.0, c=10.0, gone=1.0))
        self.assertEqual([row[0] for row in rows[1:]], ["c", "b"])
        self.assertEqual(rows[1][2:], ["10", "20", "2.00"])
        rows = bench_table.changed_rows(run(20.0, a=10.0), run(10.0, a=10.0))
        self.assertEqual([row[-1] for row in rows[1:]], ["0.50"])

    def test_a_record_replaces_the_one_before(self):
        name = bench_record.folder_name(RESULTS["machine"])
        self.assertEqual(name, "intel-xeon-x-2026-01-31")
        block = bench_record.block_of(RESULTS, name)
        with open(bench_record.README, encoding="utf-8") as file:
            text = file.read()
        once = bench_record.with_block(text, block)
        self.assertEqual(bench_record.with_block(once, block), once)
        self.assertIn("| W1/4K | 3.0 | 8 | 9.0 | yes | 7.0 |", once)
        self.assertIn("(results/intel-xeon-x-2026-01-31/workloads.png)", once)
        head = text[:text.index(bench_record.BEGIN)]
        self.assertTrue(once.startswith(head))
        self.assertTrue(once.endswith(text[text.index(bench_record.END):]))


if __name__ == "__main__":
    unittest.main()
