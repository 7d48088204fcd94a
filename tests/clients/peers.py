#!/usr/bin/python3
"""peers.py - Weir and one other library hand arrays to each other.

    WEIR_LIBRARY=.../libweir.so WEIR_CLIENT=.../libweir_client.so \\
    peers.py PEER stepped|threads|stand-in...

Of a case, a function of cases_*.py, it prints `A17 stepped pass NAME.PEER`, or `fail`,
where the name begins with the line of tests/checklist.txt that it shows. Cases called
also_... show none. numpy2 and tvm_ffi are those of tools/peers, whose interpreter
WEIR_PEERS_PYTHON is. Where the library is missing the status is 77; with WEIR_CI set it
is 1, as it is where no case ran.
"""
import importlib
import os
import re
import sys
import traceback

CASES = {"module": "cases_module.py", "numpy1": "cases_numpy.py",
         "numpy2": "cases_numpy.py", "torch": "cases_torch.py",
         "tvm_ffi": "cases_tvm_ffi.py", "cudart": "cases_arrays.py",
         "cudart_cai": "cases_arrays.py", "ipc": "cases_ipc.py"}
MADE_BY_TOOLS = ("numpy2", "tvm_ffi")
NAME = re.compile(r"([a-e]\d+|also)_\w+$")


def version_of(peer):
    """Of the library that is there; None where it is not, or is another version."""
    if peer == "module":
        return "Python " + sys.version.split()[0]
    if peer.startswith("cudart"):
        return "CUDA's runtime"
    try:
        library = importlib.import_module(
            "numpy" if "numpy" in peer or peer == "ipc" else peer)
    except ImportError:
        return None
    version = library.__version__
    if "numpy" in peer and version.split(".")[0] != peer[-1]:
        return None
    return f"{library.__name__} {version}"


def cases_for(peer, file=None):
    """Those of its file, or of another, in order; some are for some peers only."""
    module = importlib.import_module((file or CASES[peer])[:-len(".py")])
    return [(name, case) for name, case in vars(module).items()
            if NAME.match(name) and callable(case)
            and peer in getattr(case, "only_for", (peer,))]


def run_case(peer, label, name, case):
    """True if it passes."""
    import cases
    line = name.split("_")[0].upper()
    try:
        with cases.World(label, peer) as world:
            case(world)
        word = "pass"
    except Exception:
        traceback.print_exc(file=sys.stdout)
        word = "fail"
    print(f"{line} {label} {word} {name}.{peer}", flush=True)
    return word == "pass"


def main(peer, labels):
    if "WEIR_LIBRARY" not in os.environ:
        print("skipped: WEIR_LIBRARY does not say which library to load")
        return 77
    made = os.environ.get("WEIR_PEERS_PYTHON")
    if peer in MADE_BY_TOOLS and made and os.path.exists(made) \
            and "WEIR_PEERS_INSIDE" not in os.environ:
        os.environ["WEIR_PEERS_INSIDE"] = "1"
        os.execv(made, [made, __file__, peer, *labels])
    version = version_of(peer)
    if version is None:
        print(f"peers: {peer} is missing; tools/setup --peers installs it")
        return 1 if "WEIR_CI" in os.environ else 77
    found = cases_for(peer)
    for label in labels:
        failed = sum(not run_case(peer, label, *case) for case in found)
        print(f"peers: {version} on {label}: {len(found)} cases ran, {failed} failed",
              flush=True)
        if failed or not found:
            return 1
    return 0


if __name__ == "__main__":
    if len(sys.argv) < 3 or sys.argv[1] not in CASES:
        print(__doc__, file=sys.stderr)
        sys.exit(2)
    sys.exit(main(sys.argv[1], sys.argv[2:]))
