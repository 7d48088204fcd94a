"""gpu_check_stages - what tools/gpu_check does, in order of importance.

A stage is a function of a Check, which fills its Stage with steps. A Check knows where
everything is: the sources, the build, the programs, which device.
"""
import glob
import gzip
import json
import os
import re
import shutil
import sys
import xml.etree.ElementTree

import gpu_check_arrays
import gpu_check_pairs
import gpu_check_report as report
from gpu_check_machine import python_has
from gpu_check_report import FAILED, NO_TIME, NOT_THERE, PASSED, REFUSED, Step
from gpu_check_run import step_of

TOOLS = os.path.dirname(os.path.abspath(__file__))
TOP = os.path.dirname(TOOLS)
LEAVES = ("pool/async", "pool/device", "async", "pool/managed", "pool/pinned")
PROGRAMS = ("convolution", "transformer", "generation")
PEER_RUNS = 3
SHORT_EVENTS = 400  # of a trace for compute-sanitizer
UNSUPPORTED = "Device not supported"  # as compute-sanitizer says it
SHORT = ("--verify", "--repeat", "1", "--streams", "4")


class Check:
    """One run: the arguments, the machine, the runner, and what has been built."""

    def __init__(self, arguments, machine, runner, files):
        self.stand_in, self.jobs = arguments.stand_in, arguments.jobs
        self.machine, self.runner, self.files = machine, runner, files
        self.build = os.path.abspath(
            arguments.build or os.path.join(
                TOP, "build", "test" if arguments.stand_in else "gpu"))
        self.builds = not arguments.no_build
        self.label = "standin" if self.stand_in else "gpu"
        self.suffix = "_stand_in" if self.stand_in else ""
        self.targets = [["library and command", "weir_tool",
                         "stand_in" if self.stand_in else "weir_cuda"],
                        ["for Python", "weir_client"],
                        ["measuring", "cuda_costs" + self.suffix,
                         "cuda_facts" + self.suffix, "pairs_cuda" + self.suffix,
                         "pairs_weir"]]
        self.work = arguments.work

    def program(self, name):
        """A program of bench/; None: it is not built."""
        path = os.path.join(self.build, "bench", name + self.suffix)
        return path if os.path.isfile(path) else None

    def weir(self):
        """The command, with the module for this device beside its library; or None."""
        path = os.path.join(self.build, "stand_in" if self.stand_in else "", "weir")
        return path if os.path.isfile(path) else None

    def traces(self):
        return sorted(glob.glob(os.path.join(TOP, "bench/traces/*.csv.gz")))

    def replay(self, trace, spec, *more, limit_s=60, weir=None):
        weir = weir or self.weir()
        if weir is None:
            return None
        return self.runner.run([weir, "replay", trace, "--resource", spec, "--device",
                                "cuda:0", "--json", *more], limit_s)


def missing(stage, name, words):
    return stage.add(Step(name, NOT_THERE, words))


# --- building --------------------------------------------------------------------

def build(check, stage):
    """Configures, and builds no more than is run."""
    if not check.builds:
        stage.add(Step("as it is", PASSED, check.build))
        return
    command = ["cmake", "--preset", "test" if check.stand_in else "gpu", "-B",
               check.build]
    if not check.stand_in:  # which is built as the tests are, and with them
        command += [f"-DWEIR_PYTHON={sys.executable}", "-DWEIR_WERROR=OFF"]
    step = configure_step(check.runner.run(command, 60, cwd=TOP))
    if stage.add(step).state != PASSED:
        return
    command = ["cmake", "--build", check.build, "-j", check.jobs, "--target"]
    for name, *targets in check.targets + [[name] for name in suites_known(check)]:
        ran = check.runner.run(command + (targets or [name]), 150)
        stage.add(step_of(name, ran))


# What CMake says where a package is missing, and how Debian calls that.
MISSING = ((r"Could NOT find PkgConfig", "pkgconf"),
           (r"ackage '?cmocka'?,?.* (not )?found|not found:\s+- cmocka",
            "libcmocka-dev"),
           (r"Could NOT find ZLIB", "zlib1g-dev"),
           (r"there is no CUDA Toolkit", "a CUDA Toolkit"),
           (r"CMAKE_MAKE_PROGRAM is not set", "ninja"),
           (r"CMAKE_C_COMPILER.* (not set|is not )", "gcc"))


def configure_step(ran):
    """A package that is missing is no failure; it is named."""
    step = step_of("configure", ran)
    if step.state == FAILED and not ran.timed_out:
        for words, package in MISSING:
            if re.search(words, ran.all):
                step.state = NOT_THERE
                step.words = f"{package}; see tools/gpu_check --prepare"
                break
    return step


def suites_known(check):
    """The names of the tests with the device's label; each is a target, too."""
    ran = check.runner.run(["ctest", "--test-dir", check.build, "-L",
                            f"^{check.label}$", "--show-only=json-v1"], 30)
    if ran is None or ran.code != 0:
        return []
    try:
        found = json.loads(ran.out[ran.out.index("{"):])
    except ValueError:
        return []
    return [test["name"] for test in found["tests"]]


# --- suites ----------------------------------------------------------------------

def suites(check, stage):
    """Each suite by itself, so that one that hangs does not cost the others' time."""
    names = suites_known(check)
    if not names:
        missing(stage, "suites", f"no test has the label {check.label}")
    for name in names:
        junit = os.path.join(check.work, "suite.xml")
        if os.path.exists(junit):
            os.remove(junit)
        ran = check.runner.run(
            ["ctest", "--test-dir", check.build, "-R", f"^{name}$", "--timeout", "110",
             "--output-on-failure", "--output-junit", junit], 120)
        step = stage.add(step_of(name, ran, may_refuse=lambda code: False))
        if step.state == PASSED and junit_skipped(junit):
            step.state, step.words = REFUSED, "it skipped itself"


def junit_skipped(path):
    try:
        top = xml.etree.ElementTree.parse(path).getroot()
    except (OSError, xml.etree.ElementTree.ParseError):
        return False
    return int(top.get("skipped", "0")) + int(top.get("disabled", "0")) > 0


# --- facts and costs -------------------------------------------------------------

def names_listed(check, program):
    ran = check.runner.run([program, "--list"], 10)
    return ran.out.split() if ran is not None and ran.code == 0 else []


def facts(check, stage):
    """Otherwise is an answer, not a failure: it says where the emulation is wrong."""
    program = check.program("cuda_facts")
    if program is None:
        missing(stage, "facts", "cuda_facts is not built")
        return
    for name in names_listed(check, program):
        ran = check.runner.run([program, name], 20)
        told = {found[1]: found for found in
                report.parse_facts(ran.out if ran is not None else "")}
        if name in told and not ran.timed_out:
            word, _, sentence = told[name]
            state = REFUSED if word == "refused" else PASSED
            stage.add(Step(name, state, f"{word}: {sentence}", ran.seconds,
                           answer=word))
        elif ran is not None and "does not provide" in ran.err:
            stage.add(Step(name, REFUSED, ran.last_words()))
        else:
            stage.add(step_of(name, ran))


def costs(check, stage):
    """Each group in a process of its own; writes costs.txt."""
    program = check.program("cuda_costs")
    if program is None:
        missing(stage, "costs", "cuda_costs is not built")
        return
    results = []
    for group in names_listed(check, program):
        ran = check.runner.run([program, "--json", group], 40)
        found = report.parse_costs(ran.out, ran.err) if ran is not None else []
        results += found
        stopped = any(result.get("not_provided") for result in found)
        step = step_of(group, ran, good=(0, -6) if stopped else (0,))
        if step.state != PASSED or not found:
            stage.add(step)
        for result in found:
            stage.add(cost_step(result))
    text = report.costs_file(results, check.machine)
    if text and check.files.room_for("costs.txt"):
        with open(check.files.path("costs.txt"), "w", encoding="utf-8") as file:
            file.write(text)
        costs_are_read(check, stage)


def cost_step(result):
    """One line of cuda_costs."""
    if "ns" not in result:
        return Step(result["call"], REFUSED, result.get("refused", "not provided"))
    low, middle, high = result["ns"]
    return Step(f"{result['call']} {result['how']}".strip(), PASSED,
                bytes=result["bytes"], ns=middle, ns_from=low, ns_to=high,
                samples=result["samples"])


def costs_are_read(check, stage):
    """What has just been written predicts something."""
    weir = check.weir()
    if weir is None:
        return
    ran = check.runner.run([weir, "replay", check.traces()[0], "--device", "emulated",
                            "--repeat", "1", "--json", "--costs",
                            os.path.abspath(check.files.path("costs.txt"))], 60)
    step = stage.add(step_of("costs.txt predicts", ran))
    if step.state == PASSED:
        step.figures.update(figures_of(ran, "predicted_ns_per_event"))


# --- replays ---------------------------------------------------------------------

def figures_of(ran, *keys):
    """Of the first result of a replay."""
    try:
        result = json.loads(ran.out)["results"][0]
    except (ValueError, LookupError):
        return {}
    return {key: result[key] for key in keys if result.get(key) is not None}


def replay_step(name, ran, weir):
    if weir is None:
        return Step(name, NOT_THERE, "the command weir for this device is not built")
    step = step_of(name, ran, may_refuse=lambda code: code == 2)
    if ran is not None and ran.code in (0, 1):
        step.figures.update(figures_of(ran, "ns_per_event", "held_over_live",
                                       "data_errors", "out_of_memory"))
        if step.state == PASSED and "data_errors" not in step.figures:
            step.words = "what was written was not read back"
    return step


def replays(check, stage):
    """All leaves on each trace, written and read back on the device."""
    weir = check.weir()
    for trace in check.traces():
        for spec in LEAVES:
            name = f"{os.path.basename(trace).split('.')[0]} {spec}"
            ran = check.replay(trace, spec, "--verify", "--repeat", "2", "--streams",
                               "4")
            stage.add(replay_step(name, ran, weir))
            if weir is None:
                return


def short_trace(check):
    """The first events of a trace; what they do not free is live at the end."""
    path = os.path.join(check.work, "short.csv")
    with gzip.open(check.traces()[0], "rt", encoding="ascii") as whole, \
            open(path, "w", encoding="ascii") as part:
        for number, line in enumerate(whole):
            if number <= SHORT_EVENTS:
                part.write(line)
    return path


def sanitizer(check, stage):
    """Each block a cudaMallocAsync of its own, so that every race can be seen; and a
    run without its waits, which has to be found out."""
    program = shutil.which("compute-sanitizer")
    weir = check.weir()
    ran = check.replay(short_trace(check), "async", *SHORT)
    if stage.add(replay_step("the replay alone", ran, weir)).state != PASSED:
        return
    if check.stand_in or program is None:
        missing(stage, "memcheck", "the stand-in is no GPU" if check.stand_in else
                "compute-sanitizer")
        return
    # Calls that fail are Weir's to handle; what is looked for is memory.
    command = [program, "--tool", "memcheck", "--track-stream-ordered-races", "all",
               "--report-api-errors", "no", "--error-exitcode", "9", weir, "replay",
               short_trace(check), "--resource", "async", "--device", "cuda:0", *SHORT]
    ran = check.runner.run(command, 90)
    stage.add(sanitizer_step("memcheck", ran, lambda count: count == 0))
    ran = check.runner.run(command + ["--skip-wait"], 90)
    stage.add(sanitizer_step("canary: without waits", ran, lambda count: count > 0))


def sanitizer_step(name, ran, is_wanted):
    """By the errors that it counted, whatever the program answered."""
    step = step_of(name, ran)
    count = report.parse_sanitizer(ran.all) if ran is not None else None
    if count is None or step.state == NO_TIME:
        return step
    if UNSUPPORTED in ran.all:
        step.state, step.words = REFUSED, UNSUPPORTED
        return step
    step.state = PASSED if is_wanted(count) else FAILED
    step.words = f"{count} errors"
    step.figures["errors"] = count
    return step


# --- beside others ---------------------------------------------------------------

def peers_of(check):
    """(name, why not or None, command after the trace) for each that is compared."""
    weir = check.weir()
    why = None if weir else "the command weir for this device is not built"
    found = [(f"weir {spec}", why, [weir, "replay", None, "--resource", spec,
                                    "--device", "cuda:0", "--repeat", "1", "--streams",
                                    "1", "--json"])
             for spec in ("pool/async", "pool/device", "async")]
    script = [sys.executable, os.path.join(TOOLS, "gpu_check_peers.py")]
    for name in ("torch", "cupy"):
        why = None if python_has(name) else name
        if why is None and check.stand_in:
            why = "the stand-in is none of its devices"
        found.append((name, why, script + [name, None, check.work]))
    return found + [("no allocator", None, script + ["nothing", None, check.work])]


def peers(check, stage):
    """The same replays through others' allocators: a process for each run, in turn, so
    that whatever else the machine does hits all alike."""
    everyone = peers_of(check)
    for name, why, _ in everyone:
        if why is not None:
            missing(stage, name, why)
    there = [(name, command) for name, why, command in everyone if why is None]
    for trace in check.traces()[:2]:
        best = {}
        for _ in range(PEER_RUNS):
            for name, command in there:
                ran = check.runner.run([trace if word is None else word
                                        for word in command], 60)
                peer_note(best, name, ran)
        label = os.path.basename(trace).split(".")[0]
        for name, _ in there:
            step = best[name]
            step.name = f"{label}: {name}"
            stage.add(step)


def peer_note(best, name, ran):
    """Keeps the first step that did not go well, or else the quickest run."""
    step = step_of(name, ran)
    if step.state == PASSED:
        step.figures.update(figures_of(ran, "ns_per_event", "held_over_live", "how"))
        if "ns_per_event" not in step.figures:
            step.state, step.words = FAILED, "it told no figures"
    known = best.get(name)
    if known is None or known.state == PASSED and (
            step.state != PASSED or
            step.figures["ns_per_event"] < known.figures["ns_per_event"]):
        best[name] = step


def recordings(check, stage):
    """Traces of real programs under PyTorch, with their real streams; then replayed."""
    if check.stand_in or not python_has("torch"):
        missing(stage, "recording",
                "the stand-in is no GPU" if check.stand_in else "torch")
        return
    record = [sys.executable, os.path.join(TOOLS, "record_trace.py")]
    for program in PROGRAMS:
        name = f"trace_{program}.csv.gz"
        raw = os.path.join(check.work, f"{program}.json")
        trace = check.files.path(name)
        ran = check.runner.run(record + ["record", "--device", "cuda:0", program, raw],
                               60)
        if stage.add(step_of(f"{program} recorded", ran)).state != PASSED:
            continue
        ran = check.runner.run(record + ["convert", "--device", "cuda:0", raw,
                                         os.path.join(check.work, name)], 30)
        if stage.add(step_of(f"{program} converted", ran)).state != PASSED:
            continue
        if not check.files.room_for(name):
            stage.add(Step(f"{program} kept", NOT_THERE, "room for its file"))
            continue
        shutil.copy(os.path.join(check.work, name), trace)
        ran = check.replay(os.path.abspath(trace), "pool/async", "--verify")
        stage.add(replay_step(f"{program} replayed", ran, check.weir()))


# Name, the seconds that it needs to be begun, and what it does; the most important
# first.
STAGES = [("build", 10, build), ("suites", 10, suites), ("facts", 5, facts),
          ("costs", 10, costs), ("arrays", 20, gpu_check_arrays.arrays),
          ("replays", 10, replays), ("sanitizer", 20, sanitizer),
          ("recordings", 20, recordings), ("peers", 20, peers),
          ("pairs", 20, gpu_check_pairs.pairs)]
