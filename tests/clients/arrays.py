"""arrays.py - all cases with one library, or other processes, for tools/gpu_check: each
a line of JSON, with the states that it knows.

    WEIR_LIBRARY=.../libweir.so WEIR_CLIENT=.../libweir_client.so \\
    arrays.py cudart|cudart_cai|torch|cupy|jax|numba|ipc gpu|stand-in

A case of a library that has shown that it works by itself passes or fails. The last
line is {"ended": true}; without it the process did not come to its end.
"""
import json
import os
import sys
import traceback

import array_peers
import cases
import cases_arrays
import peers
import weir


def say(**what):
    print(json.dumps(what), flush=True)


def begun_ipc(label):
    """Whether this machine lets processes share memory at all."""
    with weir.Device(*cases.OPENED[label]) as device:
        with weir.Buffer(device.resource("shareable"), (1,)) as buffer:
            buffer.export()
    return "processes"


def begun(peer, label):
    words = array_peers.begun(peer).version
    weir.Device(*cases.OPENED[label]).close()
    return words


def begin(peer, label):
    """The state, and words, of what comes before all cases."""
    try:
        return "passed", begun_ipc(label) if peer == "ipc" else begun(peer, label)
    except BufferError as problem:  # Weir's, where a device cannot do it
        return "refused here", str(problem)
    except array_peers.NotThere as problem:
        return "not there", str(problem)
    except array_peers.Refused as problem:
        return "refused here", str(problem)


def run_case(peer, label, case):
    try:
        with cases.World(label, peer) as world:
            case(world)
        return "passed", ""
    except cases_arrays.NotShown as problem:
        state = "failed" if array_peers.PEERS[peer].is_stalled else "not there"
        return state, f"a stream that is busy for long: {problem}"
    except Exception as problem:
        traceback.print_exc()
        return "failed", f"{type(problem).__name__}: {problem}"


def main(peer, label):
    state, words = begin(peer, label)
    say(case="begins", state=state, words=words)
    if state == "passed":
        file = "cases_ipc.py" if peer == "ipc" else "cases_arrays.py"
        for name, case in peers.cases_for(peer, file):
            state, words = run_case(peer, label, case)
            say(case=name.split("_", 1)[1].replace("_", " "), state=state, words=words)
    say(ended=True)
    # What a library does when the interpreter ends is not what this is about.
    sys.stderr.flush()
    os._exit(0)


if __name__ == "__main__":
    if len(sys.argv) != 3 or sys.argv[1] not in (*array_peers.PEERS, "ipc"):
        print(__doc__, file=sys.stderr)
        sys.exit(2)
    main(*sys.argv[1:])
