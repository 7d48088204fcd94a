#!/usr/bin/python3
"""Records what a real program allocates, and converts it to a trace for replay.

    record_trace.py record convolution events.json
    record_trace.py convert --at-least 16 events.json convolution_train.csv.gz
    record_trace.py record --device cuda:0 convolution history.json
    record_trace.py convert --device cuda:0 history.json convolution_cuda.csv.gz

`record` runs one of the programs of trace_programs.py under the memory profiler of
PyTorch (Debian: python3-torch) and writes the memory events as a Chrome trace. PyTorch
exports that form itself where it is built with Kineto; Debian's is not, so the events
come from the profiler's event tree and only the writing is done here. On a GPU it runs
under PyTorch's memory history (2.1 or later), which knows the streams.

`convert` reads such a file, its own, a Chrome trace that PyTorch exported on a machine
with a GPU, or what torch.cuda.memory._dump_snapshot() wrote, and writes
`t_ns,thread,stream,op,id,size`. It needs no PyTorch. A Chrome trace names memory by
address; in the result `id` names one allocation, counted from 1, and every free has its
allocation. The same input gives the same bytes. A memory history tells no threads, and
of a block the stream that it was allocated on; it is freed where the program let go of
it (free_requested), whenever PyTorch reused it.

With `--at-least` smaller allocations are left out. On the CPU half of all are numbers
of 4 and 8 bytes: PyTorch makes a host tensor of every Python number that it multiplies
with. They stay on the host in a training on a GPU as well, where device memory never
sees them; with them go the few scalars that device memory would see.
"""

import argparse
import decimal
import gzip
import io
import json
import pickle
import sys

SEED = 20221215
DEVICE_TYPES = {"cpu": 0, "cuda": 1}


def allocations_of(roots):
    """Returns all allocation events below the roots of an event tree, by time."""
    found = []
    waiting = list(reversed(roots))
    while waiting:
        event = waiting.pop()
        if event.tag.name == "Allocation":
            found.append(event)
        waiting.extend(reversed(event.children))
    return sorted(found, key=lambda event: event.start_time_ns)


def chrome_event(event, start_ns):
    """Returns one allocation event as Kineto writes it; `ts` is in microseconds."""
    fields = event.extra_fields
    index = fields.device.index
    return {
        "ph": "i",
        "s": "t",
        "name": "[memory]",
        "tid": event.start_tid,
        "ts": (event.start_time_ns - start_ns) / 1000,
        "args": {
            "Device Type": DEVICE_TYPES[fields.device.type],
            "Device Id": -1 if index is None else index,
            "Addr": fields.ptr,
            "Bytes": fields.alloc_size,
        },
    }


def profiled(program):
    """Runs the program and returns its memory events in the order of time.

    The number of threads is fixed because some operations keep a buffer for each.
    """
    import torch

    torch.set_num_threads(1)
    torch.manual_seed(SEED)
    cpu = [torch.profiler.ProfilerActivity.CPU]
    with torch.profiler.profile(activities=cpu, profile_memory=True) as profile:
        program()
    tree = profile.profiler.kineto_results.experimental_event_tree()
    events = allocations_of(tree)
    return [chrome_event(event, events[0].start_time_ns) for event in events]


HISTORY_FIELDS = ("action", "addr", "size", "stream", "time_us")


def history_of(program, index):
    """Runs the program on GPU `index` and returns its memory history, oldest first."""
    import torch

    torch.cuda.set_device(index)
    torch.set_default_device(f"cuda:{index}")
    torch.manual_seed(SEED)
    torch.cuda.memory._record_memory_history(context=None, max_entries=10_000_000)
    program()
    torch.cuda.synchronize()
    history = torch.cuda.memory._snapshot()["device_traces"][index]
    torch.cuda.memory._record_memory_history(enabled=None)
    return [
        {name: entry[name] for name in HISTORY_FIELDS if name in entry}
        for entry in history
    ]


def record(arguments):
    """Runs one of the programs and writes its Chrome trace, or its memory history."""
    from trace_programs import PROGRAMS

    if arguments.program not in PROGRAMS:
        raise ValueError(f"no such program; there are: {', '.join(PROGRAMS)}")
    program = PROGRAMS[arguments.program]
    kind, index = arguments.device
    if kind == DEVICE_TYPES["cpu"]:
        head, events, tail = '{"traceEvents": [', profiled(program), "]}"
    else:
        head, events, tail = '{"device_traces": [', history_of(program, index), "]]}"
        head += "[], " * index + "["
    with open(arguments.output, "w", encoding="ascii") as output:
        output.write(head + "\n")
        output.write(",\n".join(json.dumps(event) for event in events))
        output.write("\n" + tail + "\n")
    print(f"{arguments.output}: {len(events)} memory events")


def device_key(text):
    """Returns the (type, index) by which Kineto knows `cpu` or `cuda:N`."""
    if text == "cpu":
        return DEVICE_TYPES["cpu"], -1
    kind, _, index = text.partition(":")
    if kind != "cuda" or not index.isdecimal():
        raise argparse.ArgumentTypeError(f"{text} is neither cpu nor cuda:N")
    return DEVICE_TYPES["cuda"], int(index)


class PlainUnpickler(pickle.Unpickler):
    """Reads numbers, texts, lists and dictionaries, and runs nothing."""

    def find_class(self, module, name):
        raise ValueError(f"a snapshot does not hold a {module}.{name}")


def document_of(path):
    """Returns what the file holds, JSON or a pickle."""
    with open(path, "rb") as source:
        if source.read(1) == b"\x80":
            source.seek(0)
            try:
                return PlainUnpickler(source).load()
            except (pickle.UnpicklingError, EOFError) as problem:
                raise ValueError(f"{path} is no snapshot: {problem}") from problem
    with open(path, encoding="utf-8") as source:
        return json.load(source, parse_float=decimal.Decimal)


def history_events(snapshot, device):
    """Returns (ns, thread, address, bytes, stream) from the memory history of a GPU.

    Entries without a time are a microsecond apart.
    """
    kind, index = device
    traces = snapshot["device_traces"]
    if kind != DEVICE_TYPES["cuda"] or index >= len(traces):
        raise ValueError(f"the snapshot is of {len(traces)} GPUs: name one by --device")
    found = []
    for number, entry in enumerate(traces[index]):
        sign = {"alloc": 1, "free_requested": -1}.get(entry["action"])
        if sign is not None:
            ns = int(entry.get("time_us", number)) * 1000
            found.append((ns, 0, entry["addr"], sign * entry["size"], entry["stream"]))
    return sorted(found, key=lambda event: event[0])


def memory_events(path, device):
    """Returns (ns, thread, address, bytes, stream) of a device, in the order of time.

    Events of the same time keep the order in which the file has them.
    """
    document = document_of(path)
    if isinstance(document, dict) and "device_traces" in document:
        return history_events(document, device)
    events = document["traceEvents"] if isinstance(document, dict) else document
    found = []
    for event in events:
        if event.get("name") != "[memory]":
            continue
        about = event["args"]
        if "Addr" not in about:
            raise ValueError(f"{path} is of a PyTorch that leaves out addresses")
        if (about["Device Type"], about["Device Id"]) == device:
            ns = int(event["ts"] * 1000)
            found.append((ns, event["tid"], about["Addr"], about["Bytes"], 0))
    return sorted(found, key=lambda event: event[0])


class Converter:
    """Pairs frees with allocations and keeps the figures of the whole trace.

    `live` maps an address to (id, bytes) of the allocation that holds it. An address
    handed out while it is still held means that the profiler missed a free, which is
    put in just before.
    """

    def __init__(self, at_least):
        self.at_least = at_least
        self.rows = []
        self.live = {}
        self.threads = {}
        self.streams = {}
        self.sizes = set()
        self.count = 0
        self.live_bytes = 0
        self.peak_bytes = 0
        self.peak_blocks = 0
        self.dropped_small = 0
        self.dropped_unknown = 0
        self.added_frees = 0

    def event(self, ns, thread, address, size, stream):
        """Takes one event; `size` is negative where memory is freed."""
        if abs(size) < self.at_least:
            self.dropped_small += 1
        elif size > 0:
            self.allocated(ns, thread, address, size, stream)
        elif address in self.live:
            self.freed(ns, thread, address, -size, stream)
        else:
            self.dropped_unknown += 1

    def allocated(self, ns, thread, address, size, stream):
        if address in self.live:
            self.added_frees += 1
            self.freed(ns, thread, address, self.live[address][1], stream)
        self.count += 1
        self.live[address] = (self.count, size)
        self.sizes.add(size)
        self.live_bytes += size
        self.peak_bytes = max(self.peak_bytes, self.live_bytes)
        self.peak_blocks = max(self.peak_blocks, len(self.live))
        self.row(ns, thread, stream, "A", self.count, size)

    def freed(self, ns, thread, address, size, stream):
        number, allocated = self.live.pop(address)
        if size != allocated:
            raise ValueError(
                f"{size} bytes are freed at {address}, which holds {allocated}"
            )
        self.live_bytes -= size
        self.row(ns, thread, stream, "F", number, size)

    def row(self, ns, thread, stream, op, number, size):
        thread = self.threads.setdefault(thread, len(self.threads))
        stream = self.streams.setdefault(stream, len(self.streams))
        self.rows.append(f"{ns},{thread},{stream},{op},{number},{size}\n")

    def print_figures(self, path):
        print(f"{path}: {self.count} allocations, {len(self.sizes)} distinct sizes")
        print(f"  peak live: {self.peak_bytes} bytes")
        print(f"  most blocks live: {self.peak_blocks}")
        print(f"  live at the end: {self.live_bytes} bytes, {len(self.live)} blocks")
        print(f"  threads: {len(self.threads)}, streams: {len(self.streams)}")
        print(
            f"  dropped: {self.dropped_unknown} frees of unknown addresses, "
            f"{self.dropped_small} events below {self.at_least} bytes; "
            f"added: {self.added_frees} missed frees",
            file=sys.stderr,
        )


def compressed(text):
    """Returns the text as gzip bytes in which there is neither name nor time."""
    raw = io.BytesIO()
    with gzip.GzipFile("", "wb", 9, raw, mtime=0) as packed:
        packed.write(text.encode("ascii"))
    return raw.getvalue()


def convert(arguments):
    """Reads a Chrome trace, or a memory history, and writes the trace for replay."""
    events = memory_events(arguments.input, arguments.device)
    if not events:
        raise ValueError(f"{arguments.input} has no memory events of the device")
    converter = Converter(arguments.at_least)
    for ns, thread, address, size, stream in events:
        converter.event(ns - events[0][0], thread, address, size, stream)
    text = "t_ns,thread,stream,op,id,size\n" + "".join(converter.rows)
    with open(arguments.output, "wb") as output:
        output.write(compressed(text))
    converter.print_figures(arguments.output)


def byte_count(text):
    """Returns a number of bytes that is at least 1: empty events never count."""
    if not text.isdecimal() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"{text} is not a number of bytes above 0")
    return int(text)


def parsed_arguments():
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    stages = parser.add_subparsers(required=True)
    stage = stages.add_parser("record", help=record.__doc__)
    stage.add_argument("program", help="convolution, transformer or generation")
    stage.add_argument("output", help="the Chrome trace or history to write (JSON)")
    stage.add_argument(
        "--device", type=device_key, default="cpu", help="cpu (default), cuda:0, ..."
    )
    stage.set_defaults(run=record)
    stage = stages.add_parser("convert", help=convert.__doc__)
    stage.add_argument("input", help="a Chrome trace, history or snapshot")
    stage.add_argument("output", help="the trace to write (.csv.gz)")
    stage.add_argument(
        "--device", type=device_key, default="cpu", help="cpu (default), cuda:0, ..."
    )
    stage.add_argument(
        "--at-least", type=byte_count, default=1, help="bytes; 1 unless told"
    )
    stage.set_defaults(run=convert)
    return parser.parse_args()


def main():
    arguments = parsed_arguments()
    try:
        arguments.run(arguments)
    except KeyError as key:
        sys.exit(f"record_trace.py: an event of the file lacks {key}")
    except (ImportError, OSError, ValueError) as problem:
        sys.exit(f"record_trace.py: {problem}")


if __name__ == "__main__":
    main()
