"""gpu_check_report - what tools/gpu_check finds out, and how that is written down.

A Step is one thing that was tried, a Stage several of them. Each has a state:

    passed          it went well
    failed          it did not, and this project has to see to it
    refused here    the machine does not let it: a sandbox, say
    no time         the deadline came first
    not there       something that it needs is missing, which is named

A stage is failed if a step is; else passed if one has passed; else what its first step
is. The report is written anew after each stage, so that it is there whatever happens.
"""
import json
import os
import re
import time

PASSED, FAILED, REFUSED = "passed", "failed", "refused here"
NO_TIME, NOT_THERE = "no time", "not there"
STATES = (PASSED, FAILED, REFUSED, NO_TIME, NOT_THERE)

FILES_MAX = 8
LOG_BYTES_MAX = 1 << 20

# What programs print where the machine, not the program, is why they cannot go on.
REFUSALS = re.compile(
    r"Device not supported|cudaErrorNotSupported|cudaErrorOperatingSystem"
    r"|cudaErrorNotPermitted|operation not supported|operation not permitted"
    r"|cudaErrorSystemDriverMismatch|LibraryNotLoaded", re.IGNORECASE)


class Step:
    """One thing that was tried: its state, why, and what was measured."""

    def __init__(self, name, state, words="", seconds=0.0, **figures):
        if state not in STATES:
            raise ValueError(f"{state} is no state")
        self.name, self.state, self.words = name, state, words
        self.seconds, self.figures = seconds, figures

    def to_json(self):
        found = {"step": self.name, "state": self.state}
        if self.words:
            found["words"] = self.words
        if self.seconds:
            found["seconds"] = round(self.seconds, 2)
        found.update(self.figures)
        return found


class Stage:
    """What came of one stage; steps are added as they end."""

    def __init__(self, name):
        self.name, self.steps, self.seconds = name, [], 0.0

    def add(self, step):
        self.steps.append(step)
        return step

    @property
    def state(self):
        states = [step.state for step in self.steps]
        for state in (FAILED, PASSED):
            if state in states:
                return state
        return states[0] if states else NOT_THERE

    def to_json(self):
        return {"stage": self.name, "state": self.state,
                "seconds": round(self.seconds, 2),
                "steps": [step.to_json() for step in self.steps]}


class Report:
    """The files of one run: report.json, report.md, log.txt, and what stages add."""

    def __init__(self, folder, machine):
        self.folder, self.machine, self.stages = folder, machine, []
        self.begun = time.time()
        self.log_bytes = 0
        os.makedirs(folder, exist_ok=True)
        self.files = {"report.json", "report.md", "log.txt"}
        open(self.path("log.txt"), "w", encoding="utf-8").close()

    def path(self, name):
        return os.path.join(self.folder, name)

    def room_for(self, name):
        """Whether one more file may be added; it is counted then."""
        if name not in self.files and len(self.files) == FILES_MAX:
            return False
        self.files.add(name)
        return True

    def log(self, text):
        """Adds to log.txt, up to a bound that leaves the beginning."""
        left = LOG_BYTES_MAX - self.log_bytes
        if left <= 0:
            return
        text = text[:left]
        self.log_bytes += len(text)
        with open(self.path("log.txt"), "a", encoding="utf-8") as file:
            file.write(text)

    def failed(self):
        return any(stage.state == FAILED for stage in self.stages)

    def to_json(self):
        return {"gpu_check": 1, "machine": self.machine,
                "seconds": round(time.time() - self.begun, 1),
                "failed": self.failed(),
                "stages": [stage.to_json() for stage in self.stages]}

    def write(self):
        """Both files, each in one move, so that neither is ever half there."""
        for name, text in (("report.json", json.dumps(self.to_json(), indent=1) + "\n"),
                           ("report.md", markdown(self))):
            with open(self.path(name) + ".new", "w", encoding="utf-8") as file:
                file.write(text)
            os.replace(self.path(name) + ".new", self.path(name))


# --- Markdown --------------------------------------------------------------------

def cell(value):
    text = "" if value is None else str(value)
    return text.replace("|", "\\|").replace("\n", " ")


def table(head, rows):
    lines = ["| " + " | ".join(map(cell, head)) + " |", "|" + " --- |" * len(head)]
    return lines + ["| " + " | ".join(map(cell, row)) + " |" for row in rows] + [""]


def short(value):
    """A figure as people read it."""
    if isinstance(value, float):
        return f"{value:.4g}" if abs(value) < 1000 else f"{value:.0f}"
    return value


def markdown_stage(stage):
    lines = [f"## {stage.name}: {stage.state}", ""]
    columns = []
    for step in stage.steps:
        columns += [key for key, value in step.figures.items()
                    if key not in columns and not isinstance(value, (dict, list))]
    rows = [[step.name, step.state] + [short(step.figures.get(key)) for key in columns]
            + [step.words] for step in stage.steps]
    return lines + table(["step", "state", *columns, "words"], rows)


def markdown(report):
    title = "tools/gpu_check"
    if report.machine.get("stand_in"):
        title += " over the stand-in for CUDA: nothing here was measured on a GPU"
    lines = [f"# {title}", ""]
    lines += table(["machine", ""], report.machine.items())
    lines += table(["stage", "state", "seconds", "steps"],
                   [[stage.name, stage.state, f"{stage.seconds:.1f}", len(stage.steps)]
                    for stage in report.stages])
    for stage in report.stages:
        lines += markdown_stage(stage)
    return "\n".join(lines)


# --- what programs print ---------------------------------------------------------

def parse_costs(text, errors=""):
    """The lines of `cuda_costs --json`; what the stand-in stopped at is one more."""
    found = []
    for line in text.split("\n"):
        if line.startswith("{"):
            found.append(json.loads(line))
    for name in re.findall(r"does not provide (\w+)", errors):
        found.append({"group": "", "call": name, "not_provided": True})
    return found


def parse_facts(text):
    """(word, name, sentence) of each line of cuda_facts."""
    return [match.groups() for match in
            re.finditer(r"^(confirmed|otherwise|refused) (\w+): (.*)$", text,
                        re.MULTILINE)]


def parse_sanitizer(text):
    """How many errors compute-sanitizer counted; None: it did not come to count."""
    found = re.findall(r"ERROR SUMMARY: (\d+) error", text)
    return int(found[-1]) if found else None


# Which call of cuda_costs stands for which kind of device call: the one for what every
# call costs, and the one that grows with bytes.
HOW_EACH = {
    "malloc": ("cudaMalloc", "idle"), "free": ("cudaFree", "idle"),
    "memory_info": ("cudaMemGetInfo", ""),
    "stream_create": ("cudaStreamCreateWithFlags", "non-blocking"),
    "stream_destroy": ("cudaStreamDestroy", "idle"),
    "stream_get_id": ("cudaStreamGetId", "100 streams"),
    "stream_is_capturing": ("cudaStreamIsCapturing", "100 streams"),
    "stream_sync": ("cudaStreamSynchronize", "idle"),
    "stream_query": ("cudaStreamQuery", "idle"),
    "stream_wait_event": ("cudaStreamWaitEvent", "pending"),
    "event_create": ("cudaEventCreateWithFlags", "no timing"),
    "event_destroy": ("cudaEventDestroy", "no timing"),
    "event_record": ("cudaEventRecord", "no timing"),
    "event_query": ("cudaEventQuery", "pending"),
    "device_sync": ("cudaDeviceSynchronize", "idle"),
    "copy": ("cudaMemcpyAsync", "on the device"), "fill": ("cudaMemsetAsync", "launch"),
    "launch": ("cudaLaunchHostFunc", ""),
    "managed_malloc": ("cudaMallocManaged", "managed"),
    "pinned_malloc": ("cudaHostAlloc", ""), "pinned_free": ("cudaFreeHost", ""),
    "host_register": ("cudaHostRegister", "touched before"),
    "host_unregister": ("cudaHostUnregister", "touched before"),
    "mempool_malloc": ("cudaMallocFromPoolAsync", "pool has it"),
    "mempool_free": ("cudaFreeAsync", "pool has it"),
    "mempool_trim": ("cudaMemPoolTrimTo", "to nothing"),
}
HOW_BYTES = {"mempool_malloc": ("cudaMallocFromPoolAsync", "pool grows"),
             "mempool_free": None, "copy": None, "fill": None}
MIB = 1 << 20


def cost_of(kind, measured):
    """(ns, ns for each MiB) of a kind of device call; None: not measured."""
    each = measured.get(HOW_EACH[kind])
    if not each:
        return None
    least = min(each)
    ns = each[least]
    by_bytes = measured.get(HOW_BYTES.get(kind, HOW_EACH[kind])) or {}
    most = max(by_bytes, default=0)
    slope = (by_bytes[most] - ns) / (most / MIB) if most > MIB else 0.0
    return ns, max(slope, 0.0)


def costs_file(results, machine):
    """The text of a file for `weir replay --costs`."""
    measured = {}
    for result in results:
        if "ns" in result:
            key = result["call"], result["how"]
            measured.setdefault(key, {})[result["bytes"]] = result["ns"][1]
    context = min(measured.get(("cuCtxPushCurrent+Pop", ""), {0: 0.0}).values())
    lines = [f"# Device calls as tools/gpu_check measured them: medians, with "
             f"{context:.0f} ns for the context of each.",
             f"# {machine.get('gpu')}, driver {machine.get('driver')}, "
             f"CUDA {machine.get('cuda')}, {machine.get('processor')}",
             f"# commit {machine.get('commit')}, {machine.get('time')}",
             "# call ns ns-for-each-MiB"]
    count = 0
    for kind in HOW_EACH:
        cost = cost_of(kind, measured)
        if cost is not None:
            lines.append(f"{kind} {cost[0] + context:.0f} {cost[1]:.1f}")
            count += 1
    return "\n".join(lines) + "\n" if count else None
