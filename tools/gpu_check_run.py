"""gpu_check_run - runs programs for tools/gpu_check, never past limit or deadline.

Each program has a process group of its own, which is ended with it.
"""
import os
import signal
import subprocess
import time

from gpu_check_report import (FAILED, NO_TIME, NOT_THERE, PASSED, REFUSALS, REFUSED,
                              Step)

# A program is not begun with less time than this.
SECONDS_LEAST = 3


class Ran:
    """What came of a program. `timed_out` is "", "limit" or "deadline"."""

    def __init__(self, code, out, err, seconds, timed_out=""):
        self.code, self.out, self.err = code, out, err
        self.seconds, self.timed_out = seconds, timed_out

    @property
    def all(self):
        return self.out + self.err

    def last_words(self):
        """The last line that says something, for a report."""
        lines = [line.strip() for line in self.all.split("\n") if line.strip()]
        return lines[-1][:300] if lines else f"exit status {self.code}"


class Runner:
    """Knows the deadline, the environment, and where to log."""

    def __init__(self, deadline_s, environment, log, folder):
        self.ends = time.monotonic() + deadline_s
        self.environment = dict(os.environ, **environment)
        self.log, self.folder = log, folder

    def left(self):
        return self.ends - time.monotonic()

    def run(self, command, limit_s, cwd=None, environment=None):
        """A Ran; None: there is no time to begin it. A program that is not there has
        code 127."""
        left = self.left()
        if left < SECONDS_LEAST:
            return None
        limit = min(limit_s, left)
        begun = time.monotonic()
        ran = self.run_within(list(map(str, command)), limit, cwd, environment or {})
        ran.seconds = time.monotonic() - begun
        if ran.timed_out and limit < limit_s:
            ran.timed_out = "deadline"
        self.log(f"$ {' '.join(map(str, command))}\n{ran.all[-200000:]}"
                 f"[{ran.code}; {ran.seconds:.1f} s] {ran.timed_out}\n\n")
        return ran

    def run_within(self, command, limit, cwd, environment):
        try:
            process = subprocess.Popen(
                command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                stderr=subprocess.PIPE, text=True, errors="replace",
                cwd=cwd or self.folder, start_new_session=True,
                env=dict(self.environment, **environment))
        except OSError as problem:
            return Ran(127, "", f"{command[0]}: {problem.strerror}\n", 0.0)
        try:
            out, err = process.communicate(timeout=limit)
            return Ran(process.returncode, out, err, 0.0)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            out, err = process.communicate()
            return Ran(124, out, err, 0.0, "limit")


def step_of(name, ran, good=(0,), may_refuse=lambda code: True):
    """The step that a program was: by how it ended and, where that may mean that the
    machine refused it, by what it said."""
    if ran is None:
        return Step(name, NO_TIME)
    if ran.timed_out == "deadline":
        return Step(name, NO_TIME, "the deadline came first", ran.seconds)
    if ran.timed_out:
        return Step(name, FAILED, f"it ran past its limit: {ran.last_words()}",
                    ran.seconds)
    if ran.code in good:
        return Step(name, PASSED, "", ran.seconds)
    if ran.code == 127:
        return Step(name, NOT_THERE, ran.last_words(), ran.seconds)
    if ran.code == 77:
        return Step(name, REFUSED, ran.last_words(), ran.seconds)
    refusal = REFUSALS.search(ran.all)
    if refusal and may_refuse(ran.code):
        return Step(name, REFUSED, refusal.group(), ran.seconds)
    return Step(name, FAILED, ran.last_words(), ran.seconds)
