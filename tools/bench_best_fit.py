"""bench_best_fit - what best fit needs: the smallest chunk in which an allocator does a
trace on one stream that gives each request the smallest free stretch with room, of
equal ones the lowest, in units of 256 bytes, and merges neighbours at once. It keeps
nothing and rounds to nothing else: a yardstick for the heap, not an allocator.
"""
import bisect

UNIT = 256
SLIP = 1 / 2048  # of the peak: how near the answer is


class Chunk:
    """Its free stretches, by address and by size."""

    def __init__(self, units):
        self.size_at = {0: units}
        self.end_at = {units: 0}
        self.by_size = [(units, 0)]

    def take(self, units):
        """An address, or None."""
        found = bisect.bisect_left(self.by_size, (units, 0))
        if found == len(self.by_size):
            return None
        size, at = self.by_size.pop(found)
        del self.size_at[at], self.end_at[at + size]
        if size > units:
            self.put(at + units, size - units)
        return at

    def put(self, at, size):
        self.size_at[at] = size
        self.end_at[at + size] = at
        bisect.insort(self.by_size, (size, at))

    def drop(self, at):
        """Takes the stretch there out; its size."""
        size = self.size_at.pop(at)
        del self.end_at[at + size]
        self.by_size.pop(bisect.bisect_left(self.by_size, (size, at)))
        return size

    def give(self, at, units):
        if at + units in self.size_at:
            units += self.drop(at + units)
        front = self.end_at.get(at)
        if front is not None:
            units += self.drop(front)
            at = front
        self.put(at, units)


def suffices(events, units):
    chunk, taken = Chunk(units), {}
    for op, number, size in events:
        if op == "A":
            size = -(-size // UNIT)
            at = chunk.take(size)
            if at is None:
                return False
            taken[number] = (at, size)
        else:
            chunk.give(*taken.pop(number))
    return True


def fit(events, peak):
    """In bytes, by bisection, from `peak` bytes on, which are live at once."""
    events, least = list(events), -(-peak // UNIT)
    step = max(int(least * SLIP), 1)
    most = least
    while not suffices(events, most):
        most += max(least // 8, 1)
    while most - least > step:
        middle = (least + most) // 2
        if suffices(events, middle):
            most = middle
        else:
            least = middle
    return most * UNIT
