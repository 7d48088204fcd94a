"""bench_words - numbers as people read them, for the tables of tools/bench."""


def number_of(value):
    """Ten and more without a fraction; a dash for what is not known."""
    if value is None:
        return "-"
    return f"{value:.1f}" if abs(value) < 9.95 else f"{value:.0f}"


def percent(share):
    return f"{100 * share:.0f} %"


def mib(count):
    return f"{count / 2**20:.1f} MiB"


def size(count):
    return mib(count) if count >= 2**20 else f"{count / 2**10:.1f} KiB"


def duration(ns):
    for unit, size in [("ms", 1e6), ("us", 1e3)]:
        if ns >= 10 * size:
            return f"{ns / size:.1f} {unit}"
    return f"{ns:.0f} ns"
