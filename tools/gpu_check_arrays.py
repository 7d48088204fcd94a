"""gpu_check_arrays - hands device memory to PyTorch, CuPy, JAX and Numba and takes
theirs, while streams are busy; and lets other processes open it. A process for each
runs tests/clients/arrays.py.

CUDA's own runtime comes first, by a consumer and a producer in Python: it needs no
library, and is there over the stand-in, too. So are other processes, whose Python needs
NumPy: with WEIR_CI set, it is a failure that none has it.
"""
import json
import os
import sys

from gpu_check_machine import python_has, python_with
from gpu_check_report import FAILED, NOT_THERE, PASSED, Step
from gpu_check_run import step_of

PROGRAM = os.path.join(os.path.dirname(os.path.dirname(os.path.abspath(__file__))),
                       "tests", "clients", "arrays.py")
ALWAYS = ("cudart", "cudart_cai", "ipc")
LIBRARIES = ("torch", "cupy", "jax", "numba")
LIMIT_S = 90


def steps_told(out):
    """(steps, whether it came to its end) by the lines that arrays.py has printed."""
    steps, has_ended = [], False
    for line in out.split("\n"):
        if line.startswith("{"):
            told = json.loads(line)
            if "case" in told:
                steps.append(Step(told["case"], told["state"], told["words"]))
            has_ended = has_ended or told.get("ended", False)
    return steps, has_ended


def python_for(name):
    """The Python that runs the cases of `name`, or None."""
    return python_with("numpy") if name == "ipc" else sys.executable


def why_not(check, name):
    """What is missing for `name`; None where nothing is."""
    if name not in LIBRARIES:
        return None if python_for(name) is not None else "numpy"
    if not python_has(name):
        return name
    return "the stand-in is none of its devices" if check.stand_in else None


def library_run(check, name, files):
    """The steps of one library."""
    environment = dict(zip(("WEIR_LIBRARY", "WEIR_CLIENT"), files),
                       PYTHONDONTWRITEBYTECODE="1")
    label = "stand-in" if check.stand_in else "gpu"
    ran = check.runner.run([python_for(name), PROGRAM, name, label], LIMIT_S,
                           environment=environment)
    steps, has_ended = steps_told(ran.out if ran is not None else "")
    if not has_ended:
        end = step_of("its end", ran)
        if end.state == PASSED:
            end.state, end.words = FAILED, "it did not come to its end"
        steps.append(end)
    return steps


def arrays(check, stage):
    """All of them, after what is missing was named."""
    folder = os.path.join(check.build, "stand_in" if check.stand_in else "")
    files = (os.path.join(folder, "libweir.so"),
             os.path.join(check.build, "tests", "libweir_client.so"))
    for path in files:
        if not os.path.exists(path):
            stage.add(Step("arrays", NOT_THERE, f"{os.path.basename(path)}: not built"))
            return
    for name in (*ALWAYS, *LIBRARIES):
        why = why_not(check, name)
        if why is None:
            steps = library_run(check, name, files)
        else:
            is_wanted = name in ALWAYS and "WEIR_CI" in os.environ
            steps = [Step("begins", FAILED if is_wanted else NOT_THERE, why)]
        for step in steps:
            step.name = f"{name}: {step.name}"
            stage.add(step)
