"""gpu_check_pairs - what an allocate and its deallocate take on the GPU, of Weir and of
what CUDA itself has: workloads of tools/bench, which bench/README.md tells about.
"""
import json
import os

import bench_run
from gpu_check_report import FAILED, NOT_THERE, PASSED, Step
from gpu_check_run import step_of

CASES = ["W1/4K", "W1/1M", "W3", "W4", "W5/1k", "W5/10k"]
WEIR = ["--device", "cuda:0", "--spec"]
# Name, program and options of each.
ALLOCATORS = [("weir pool/async", "pairs_weir", [*WEIR, "pool/async"]),
              ("weir pool/device", "pairs_weir", [*WEIR, "pool/device"]),
              ("weir async", "pairs_weir", [*WEIR, "async"]),
              ("cudaMallocAsync", "pairs_cuda", ["--spec", "async"]),
              ("cudaMalloc", "pairs_cuda", [])]
LIMIT_S = 60


def program_of(check, name):
    """That with Weir is one for all devices: its module tells them apart."""
    suffix = "" if name == "pairs_weir" else check.suffix
    return os.path.join(check.build, "bench", name + suffix)


def step_for(check, name, command):
    """The module for the stand-in lies beside another copy of the library."""
    environment = {}
    if check.stand_in:
        environment["LD_LIBRARY_PATH"] = os.path.join(check.build, "stand_in")
    ran = check.runner.run(command, LIMIT_S, environment=environment)
    step = step_of(name, ran)
    if step.state != PASSED:
        return step
    try:
        run = json.loads(ran.out)["benchmarks"][0]
        step.figures.update(ns_per_pair=round(run["real_time"], 1),
                            processor_ns_per_pair=round(run["cpu_time"], 1))
        step.figures.update({kind: run[kind] for kind in bench_run.CALLS if run[kind]})
    except (ValueError, KeyError, IndexError):
        step.state, step.words = FAILED, "it told no figures"
    return step


def pairs(check, stage):
    """Each in a process of its own; those of a workload follow each other."""
    seconds = "0.01" if check.stand_in else "0.2"
    for case in CASES:
        for name, program, options in ALLOCATORS:
            path = program_of(check, program)
            if not os.path.isfile(path):
                stage.add(Step(f"{case}: {name}", NOT_THERE, program))
                continue
            stage.add(step_for(check, f"{case}: {name}",
                               [path, case, "--seconds", seconds, *options]))
