#!/usr/bin/env python3
"""test_gpu_check.py - tools/gpu_check: what it makes of what programs print, and a run
over the stand-in for CUDA, whole and with something planted that fails, hangs, or is
not there.

WEIR_TOOL is the command in the build tree whose stand-in is used; without a stand-in
there the runs are skipped.
"""
import json
import os
import stat
import subprocess
import sys
import tempfile
import unittest

TOP = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
sys.path.insert(0, os.path.join(TOP, "tools"))
import gpu_check_arrays as arrays_of
import gpu_check_machine as machine_of
import gpu_check_pairs as pairs_of
import gpu_check_peers as peers_of
import gpu_check_report as report_of
import gpu_check_run as run_of
import gpu_check_stages as stages_of

BUILD = os.path.dirname(os.path.abspath(os.environ.get("WEIR_TOOL", "none/weir")))
HAS_STAND_IN = (os.path.isfile(os.path.join(BUILD, "stand_in", "weir"))
                and os.path.isfile(os.path.join(BUILD, "bench/cuda_costs_stand_in")))
MACHINE = {"stand_in": True, "gpu": "a | b", "commit": "c", "time": "t"}


def runner(deadline_s=60, **environment):
    return run_of.Runner(deadline_s, environment, lambda text: None, "/")


def shell(script, limit_s=30, **more):
    return runner(**more).run(["sh", "-c", script], limit_s)


class Parsing(unittest.TestCase):
    def test_costs_and_what_is_not_provided(self):
        found = report_of.parse_costs(
            'words\n{"group": "g", "call": "a", "refused": "cudaErrorNotSupported"}\n',
            "the stand-in for CUDA does not provide cudaIpcGetMemHandle\nAborted\n")
        self.assertEqual([result["call"] for result in found],
                         ["a", "cudaIpcGetMemHandle"])
        self.assertTrue(found[1]["not_provided"])

    def test_facts(self):
        self.assertEqual(report_of.parse_facts("confirmed one: it is: so\nnoise: x\n"
                                               "otherwise two: it is: it is not\n"),
                         [("confirmed", "one", "it is: so"),
                          ("otherwise", "two", "it is: it is not")])

    def test_the_sanitizers_last_count_counts(self):
        self.assertEqual(report_of.parse_sanitizer(
            "========= ERROR SUMMARY: 3 errors\n========= ERROR SUMMARY: 1 error\n"), 1)
        self.assertIsNone(report_of.parse_sanitizer("========= Error: no device"))

    def test_a_trace_becomes_events(self):
        trace = os.path.join(TOP, "bench/traces/transformer_train.csv.gz")
        sizes, events, peak = peers_of.events_of(trace)
        self.assertEqual((len(sizes), len(events), peak), (4623, 9246, 829704256))
        live = set()
        for event in events:
            if event >= 0:
                live.add(event)
            else:
                live.remove(-1 - event)
        self.assertEqual(live, set())


class Costs(unittest.TestCase):
    @staticmethod
    def result(call, how, size, ns):
        return {"group": "", "call": call, "how": how, "bytes": size,
                "ns": [ns - 1, ns, ns + 1], "samples": 5}

    def lines(self, *results):
        text = report_of.costs_file(results, MACHINE)
        return {line.split()[0]: line.split()[1:] for line in text.split("\n")
                if line and not line.startswith("#")}

    def test_the_context_is_part_of_each_call(self):
        found = self.lines(self.result("cuCtxPushCurrent+Pop", "", 0, 50),
                           self.result("cudaEventRecord", "no timing", 0, 800),
                           self.result("cudaEventRecord", "timing", 0, 5000))
        self.assertEqual(found, {"event_record": ["850", "0.0"]})

    def test_what_grows_with_bytes_is_told_for_each_mib(self):
        mib = 1 << 20
        found = self.lines(
            self.result("cudaMalloc", "idle", 256, 5000),
            self.result("cudaMalloc", "idle", 100 * mib, 105000),
            self.result("cudaFree", "idle", 256, 5000),
            self.result("cudaFree", "idle", 100 * mib, 4000),
            self.result("cudaMallocFromPoolAsync", "pool has it", 256, 500),
            self.result("cudaMallocFromPoolAsync", "pool grows", 100 * mib, 200500),
            self.result("cudaFreeAsync", "pool has it", 256, 400),
            self.result("cudaFreeAsync", "pool has it", 100 * mib, 9400))
        self.assertEqual(found, {"malloc": ["5000", "1000.0"], "free": ["5000", "0.0"],
                                 "mempool_malloc": ["500", "2000.0"],
                                 "mempool_free": ["400", "0.0"]})

    def test_nothing_measured_is_no_file(self):
        self.assertIsNone(report_of.costs_file([{"call": "a", "refused": "b"}],
                                               MACHINE))


class Running(unittest.TestCase):
    def state(self, ran):
        return run_of.step_of("it", ran).state

    def test_how_it_ended_becomes_a_state(self):
        for script, state in (("true", "passed"), ("exit 3", "failed"),
                              ("exit 77", "refused here"),
                              ("echo Device not supported; exit 1", "refused here"),
                              ("echo Device not supported", "passed"),
                              ("kill -ABRT $$", "failed")):
            self.assertEqual(self.state(shell(script)), state, script)
        ran = runner().run(["/no/such/program"], 30)
        self.assertEqual(self.state(ran), "not there")
        self.assertIn("No such file", ran.err)

    def test_what_is_said_beside_a_failure_does_not_excuse_it(self):
        ran = shell("echo cudaErrorNotSupported; exit 1")
        self.assertEqual(self.state(ran), "refused here")
        step = run_of.step_of("it", ran, may_refuse=lambda code: code == 2)
        self.assertEqual(step.state, "failed")
        self.assertEqual(stages_of.replay_step("it", ran, "weir").state, "failed")

    def test_the_last_words_say_why(self):
        step = run_of.step_of("it", shell("echo one; echo; echo two >&2; exit 1"))
        self.assertEqual((step.state, step.words), ("failed", "two"))

    def test_a_limit_is_a_failure_and_the_deadline_is_none(self):
        ran = shell("echo before; sleep 60 & wait", limit_s=0.2)
        self.assertEqual((self.state(ran), ran.out), ("failed", "before\n"))
        ran = shell("sleep 60", deadline_s=run_of.SECONDS_LEAST + 0.2)
        self.assertEqual(self.state(ran), "no time")
        self.assertIsNone(shell("true", deadline_s=1))
        self.assertEqual(self.state(None), "no time")

    def test_the_environment_is_passed_on(self):
        self.assertEqual(shell("echo $A", A="b").out, "b\n")


class Reporting(unittest.TestCase):
    def setUp(self):
        self.folder = tempfile.TemporaryDirectory()
        self.report = report_of.Report(self.folder.name, MACHINE)

    def tearDown(self):
        self.folder.cleanup()

    def stage(self, *states):
        stage = report_of.Stage("s")
        for state in states:
            stage.add(report_of.Step("step", state, "words | with a bar", ns=1.5))
        self.report.stages = [stage]
        return stage

    def test_a_stage_is_its_worst_step_or_its_best(self):
        for states, state in ((("passed", "failed"), "failed"),
                              (("no time", "passed", "refused here"), "passed"),
                              (("no time", "not there"), "no time"),
                              (("refused here",), "refused here"), ((), "not there")):
            self.assertEqual(self.stage(*states).state, state)
            self.assertEqual(self.report.failed(), state == "failed")
        with self.assertRaises(ValueError):
            report_of.Step("it", "done")

    def test_json_and_markdown_say_the_same(self):
        self.stage("passed", "failed")
        self.report.write()
        found = json.loads(machine_of.text_of(self.report.path("report.json")))
        self.assertTrue(found["failed"])
        self.assertEqual([step["state"] for step in found["stages"][0]["steps"]],
                         ["passed", "failed"])
        text = machine_of.text_of(self.report.path("report.md"))
        self.assertIn("nothing here was measured on a GPU", text)
        self.assertIn("## s: failed", text)
        self.assertIn("words \\| with a bar", text)
        self.assertEqual(sorted(os.listdir(self.folder.name)),
                         ["log.txt", "report.json", "report.md"])

    def test_there_are_eight_files_at_most(self):
        room = [self.report.room_for(f"file{i}") for i in range(7)]
        self.assertEqual(room, [True] * 5 + [False] * 2)
        self.assertTrue(self.report.room_for("file0"))

    def test_the_log_is_bounded(self):
        for _ in range(3):
            self.report.log("x" * report_of.LOG_BYTES_MAX)
        self.assertEqual(os.path.getsize(self.report.path("log.txt")),
                         report_of.LOG_BYTES_MAX)


class Sanitizer(unittest.TestCase):
    def step(self, text, code, is_wanted):
        ran = run_of.Ran(code, text, "", 1.0)
        return stages_of.sanitizer_step("it", ran, is_wanted)

    def test_its_count_decides(self):
        none, some = (lambda count: count == 0), (lambda count: count > 0)
        self.assertEqual(self.step("ERROR SUMMARY: 0 errors", 0, none).state, "passed")
        self.assertEqual(self.step("ERROR SUMMARY: 2 errors", 9, none).state, "failed")
        self.assertEqual(self.step("ERROR SUMMARY: 2 errors", 9, some).state, "passed")
        self.assertEqual(self.step("ERROR SUMMARY: 0 errors", 1, some).state, "failed")

    def test_what_is_not_supported_is_no_error(self):
        step = self.step("Device not supported\nERROR SUMMARY: 1 error", 9,
                         lambda count: count == 0)
        self.assertEqual(step.state, "refused here")
        step = self.step("cudaErrorNotSupported\nERROR SUMMARY: 1 error", 9,
                         lambda count: count == 0)
        self.assertEqual(step.state, "failed")

    def test_no_count_is_judged_by_the_words(self):
        step = self.step("Device not supported", 1, lambda count: count == 0)
        self.assertEqual(step.state, "refused here")
        step = self.step("weir: it broke", 1, lambda count: count == 0)
        self.assertEqual((step.state, step.words), ("failed", "weir: it broke"))


class Arrays(unittest.TestCase):
    def test_lines_become_steps_and_the_last_one_is_its_end(self):
        line = json.dumps({"case": "a", "state": "failed", "words": "b"})
        steps, has_ended = arrays_of.steps_told(f"noise\n{line}\n")
        self.assertEqual([(step.name, step.state, step.words) for step in steps],
                         [("a", "failed", "b")])
        self.assertFalse(has_ended)
        self.assertTrue(arrays_of.steps_told('{"ended": true}\n')[1])

    def steps(self, name, text):
        """Those of a library of that text, found before any other of its name."""
        with tempfile.TemporaryDirectory() as folder:
            place = os.path.join(folder, name)
            os.makedirs(place)
            path = os.path.join(place, "__init__.py")
            with open(path, "w", encoding="utf-8") as file:
                file.write(text)
            stand_in = os.path.join(BUILD, "stand_in")
            ran = runner(WEIR_LIBRARY=os.path.join(stand_in, "libweir.so"),
                         WEIR_CLIENT=os.path.join(BUILD, "tests/libweir_client.so"),
                         PYTHONPATH=folder, PYTHONDONTWRITEBYTECODE="1").run(
                [sys.executable, arrays_of.PROGRAM, name, "stand-in"], 30)
        steps, has_ended = arrays_of.steps_told(ran.out)
        self.assertTrue(has_ended, ran.all)
        return steps

    @unittest.skipUnless(HAS_STAND_IN, "no stand-in for CUDA here")
    def test_absent_and_refused_are_two_things(self):
        torch = "__version__ = '2'\nclass version: cuda = {}\n" \
                "class cuda:\n    is_available = lambda: False\n"
        jax = "def devices(kind): raise RuntimeError('{}')\n"
        cupy = "class cuda:\n    class runtime:\n" \
               "        def getDeviceCount(): raise ValueError('none')\n"
        for name, text, state, words in (
                ("torch", torch.format(None), "not there", "torch for CUDA"),
                ("torch", torch.format("'13'"), "refused here", "finds no GPU"),
                ("torch", "import no_such_thing", "not there", "no_such_thing"),
                ("torch", "1 / 0", "refused here", "ZeroDivisionError"),
                ("jax", jax.format("no platforms for it"), "not there", "jax for CUDA"),
                ("jax", jax.format("the driver says no"), "refused here", "driver"),
                ("cupy", cupy, "refused here", "ValueError: none"),
                ("numba", "", "not there", "numba.cuda")):
            steps = self.steps(name, text)
            self.assertEqual([step.state for step in steps], [state], steps[0].words)
            self.assertIn(words, steps[0].words)

    @unittest.skipUnless(HAS_STAND_IN, "no stand-in for CUDA here")
    def test_each_is_asked_for_what_it_has(self):
        text = "import planted; planted.take_place_of('{}')"
        for name, count in (("torch", 13), ("cupy", 13), ("numba", 12)):
            steps = self.steps(name, text.format(name))
            self.assertEqual({step.state for step in steps}, {"passed"},
                             [step.words for step in steps])
            self.assertEqual((len(steps), steps[0].words), (count, f"{name} planted"))


    @unittest.skipUnless(HAS_STAND_IN, "no stand-in for CUDA here")
    def test_one_that_names_no_stream_is_found_out(self):
        steps = self.steps("torch", """
import planted

class Deaf:
    def __init__(self, source):
        self.source, self.__dlpack_device__ = source, source.__dlpack_device__

    def __dlpack__(self, **options):
        return self.source.__dlpack__(**dict(options, stream=-1))

planted.take_place_of("torch")
planted.torch.from_dlpack = lambda source: planted.from_dlpack(Deaf(source))
""")
        failed = {step.name: step.words for step in steps if step.state == "failed"}
        self.assertIn("wrong bytes", failed["the peers stream waits for ours"])


class Building(unittest.TestCase):
    def test_a_package_that_is_missing_is_named(self):
        for words, state, package in (
                ("Could NOT find ZLIB (missing: ZLIB_LIBRARY)", "not there", "zlib1g"),
                ("The following required packages were not found:\n\n - cmocka\n",
                 "not there", "libcmocka-dev"),
                ("--   Package 'cmocka', required by 'virtual:world', not found\n",
                 "not there", "libcmocka-dev"),
                ("-- Found cmocka, version 1.1.5\n-- Found ZLIB: /usr\nit broke",
                 "failed", ""),
                ("WEIR_CUDA is ON, and there is no CUDA Toolkit >= 12", "not there",
                 "CUDA Toolkit"),
                ("CMake Error at CMakeLists.txt:3: unknown command", "failed", "")):
            step = stages_of.configure_step(run_of.Ran(1, "", words, 1.0))
            self.assertEqual(step.state, state)
            self.assertIn(package, step.words)
        self.assertEqual(stages_of.configure_step(None).state, "no time")


class Carried(unittest.TestCase):
    @staticmethod
    def pkgconf_planted(folder):
        """One that tells where it looks for libraries, and what it is asked."""
        os.makedirs(os.path.join(folder, "usr/bin"))
        path = os.path.join(folder, "usr/bin/pkgconf")
        with open(path, "w", encoding="utf-8") as file:
            file.write('#!/bin/sh\necho "$LD_LIBRARY_PATH: $*"\n')
        os.chmod(path, 0o755)

    def test_without_a_folder_nothing_is_set(self):
        self.assertEqual(machine_of.environment("/no/such/place"), {})

    def test_what_is_unpacked_can_be_moved(self):
        with tempfile.TemporaryDirectory() as top:
            folder = os.path.join(top, machine_of.FOLDER)
            place = os.path.join(folder, "usr/lib/x-linux-gnu")
            os.makedirs(os.path.join(place, "pkgconfig"))
            os.makedirs(os.path.join(folder, "lib/x-linux-gnu"))
            library = os.path.join(folder, "lib/x-linux-gnu/libz.so.1")
            open(library, "w", encoding="utf-8").close()
            os.symlink("/lib/x-linux-gnu/libz.so.1", os.path.join(place, "libz.so"))
            path = os.path.join(place, "pkgconfig/z.pc")
            with open(path, "w", encoding="utf-8") as file:
                file.write("prefix=/usr\nlibdir=/usr/lib\n")
            self.pkgconf_planted(folder)
            machine_of.make_movable(folder)
            machine_of.write_pkg_config(folder)
            for name in ("libz.so", "libz.so.1"):
                self.assertTrue(os.path.samefile(os.path.join(place, name), library))
            found = machine_of.environment(top)
            self.assertIn(os.path.join(place, "pkgconfig"), found["PKG_CONFIG_PATH"])
            own = found["PATH"].split(":")[-1]
            said = runner(LD_LIBRARY_PATH="").run([own + "/pkg-config", "a", "b"], 30)
            self.assertEqual(said.out, f"{place}: a b\n")
            self.assertEqual(machine_of.text_of(path),
                             "prefix=${pcfiledir}/../../..\n"
                             "libdir=${pcfiledir}/../../../lib\n")


class Runs(unittest.TestCase):
    def setUp(self):
        self.folder = tempfile.TemporaryDirectory()
        self.out = os.path.join(self.folder.name, "out")

    def tearDown(self):
        self.folder.cleanup()

    def check(self, *arguments, status=0, build=BUILD):
        """Runs it; the stages of its report, by name."""
        run = subprocess.run(
            [sys.executable, os.path.join(TOP, "tools/gpu_check"), "--stand-in",
             "--no-build", "--build", build, "--out", self.out, *arguments],
            stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, timeout=110,
            check=False)
        self.assertEqual(run.returncode, status, run.stdout + run.stderr)
        found = json.loads(machine_of.text_of(os.path.join(self.out, "report.json")))
        self.assertEqual(found["failed"], status == 1)
        self.assertTrue(found["machine"]["stand_in"])
        self.assertLessEqual(len(os.listdir(self.out)), report_of.FILES_MAX)
        self.assertTrue(os.path.getsize(os.path.join(self.out, "report.md")))
        return {stage["stage"]: stage for stage in found["stages"]}

    def planted(self, script):
        """A build tree whose command is a script."""
        place = os.path.join(self.folder.name, "build/stand_in")
        os.makedirs(place)
        path = os.path.join(place, "weir")
        with open(path, "w", encoding="utf-8") as file:
            file.write("#!/bin/sh\n" + script + "\n")
        os.chmod(path, os.stat(path).st_mode | stat.S_IXUSR)
        return os.path.dirname(place)

    @unittest.skipUnless(HAS_STAND_IN, "no stand-in for CUDA here")
    def test_cheap_stages_run_to_their_end(self):
        stages = self.check("--only", "facts", "costs", "sanitizer", "recordings")
        self.assertEqual(
            {name: stage["state"] for name, stage in stages.items()},
            {"probe": "passed", "build": "passed", "facts": "passed", "costs": "passed",
             "sanitizer": "passed", "recordings": "not there"})
        self.assertEqual([step["state"] for step in stages["sanitizer"]["steps"]],
                         ["passed", "not there"])
        words = {step["step"]: step for step in stages["costs"]["steps"]}
        self.assertGreater(words["cudaEventRecord no timing"]["ns"], 0)
        self.assertGreater(words["costs.txt predicts"]["predicted_ns_per_event"], 0)
        answers = [step["answer"] for step in stages["facts"]["steps"]]
        self.assertGreater(answers.count("confirmed"), 10)
        replay = stages["sanitizer"]["steps"][0]
        self.assertEqual((replay["out_of_memory"], replay["data_errors"]), (0, 0))

    def test_a_stage_that_fails_is_told_and_the_others_go_on(self):
        build = self.planted("echo it is broken >&2; exit 1")
        stages = self.check("--only", "replays", "peers", status=1, build=build)
        self.assertEqual(stages["replays"]["state"], "failed")
        self.assertEqual({step["words"] for step in stages["replays"]["steps"]},
                         {"it is broken"})
        traces = len([name for name in os.listdir(os.path.join(TOP, "bench/traces"))
                      if name.endswith(".gz")])
        self.assertEqual(len(stages["replays"]["steps"]),
                         traces * len(stages_of.LEAVES))
        self.assertEqual(stages["peers"]["state"], "failed")
        states = {step["step"].split(": ")[-1]: step["state"]
                  for step in stages["peers"]["steps"]}
        self.assertEqual(states["no allocator"], "passed")
        self.assertEqual(states["weir async"], "failed")

    @unittest.skipUnless(HAS_STAND_IN, "no stand-in for CUDA here")
    def test_arrays_go_both_ways_while_streams_are_busy(self):
        steps = self.check("--only", "arrays")["arrays"]["steps"]
        found = {}
        for step in steps:
            found.setdefault(step["step"].split(": ")[0], []).append(step["state"])
        self.assertEqual(set(found), {*arrays_of.ALWAYS, *arrays_of.LIBRARIES})
        for name, states in found.items():
            self.assertEqual(set(states), {"passed" if name in arrays_of.ALWAYS else
                                           "not there"}, name)
        counts = {name: len(states) for name, states in found.items()}
        self.assertEqual([counts[name] for name in arrays_of.ALWAYS], [13, 13, 18])

    @unittest.skipUnless(HAS_STAND_IN, "no stand-in for CUDA here")
    def test_pairs_are_timed_on_weir_and_on_cuda(self):
        steps = self.check("--only", "pairs")["pairs"]["steps"]
        self.assertEqual(len(steps), len(pairs_of.CASES) * len(pairs_of.ALLOCATORS))
        self.assertEqual({step["state"] for step in steps}, {"passed"})
        self.assertTrue(all(step["ns_per_pair"] > 0 for step in steps))
        steps = {step["step"]: step for step in steps}
        # A pool whose streams have enough waits for nothing, but marks what it keeps.
        self.assertGreater(steps["W4: weir pool/device"]["event_record"], 0)

    def test_what_hangs_costs_no_more_than_the_deadline(self):
        build = self.planted("sleep 100")
        stages = self.check("--only", "replays", "peers", "--deadline", "12",
                            build=build)
        self.assertEqual(stages["replays"]["steps"][0]["state"], "no time")
        self.assertEqual(stages["peers"]["state"], "no time")

    def test_what_is_not_built_is_named(self):
        build = os.path.join(self.folder.name, "nothing")
        stages = self.check("--only", "facts", "costs", "arrays", "replays", "pairs",
                            build=build)
        for name in ("facts", "costs", "arrays", "replays", "pairs"):
            self.assertEqual(stages[name]["state"], "not there")
        self.assertIn("cuda_facts", stages["facts"]["steps"][0]["words"])

    def test_wrong_usage_is_refused(self):
        run = subprocess.run([os.path.join(TOP, "tools/gpu_check"), "--only", "this"],
                             stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
                             timeout=30, check=False)
        self.assertEqual(run.returncode, 2)
        self.assertIn("invalid choice", run.stderr)


if __name__ == "__main__":
    if not HAS_STAND_IN:
        print("skipped in part: this build has no stand-in for CUDA")
    unittest.main(verbosity=2)
