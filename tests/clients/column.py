"""column.py - a column of a table, as processes share it: its values and, where some
are missing, a mask with a bit for each row. Both are tickets, in text that is JSON."""
import json

import weir
import weir_abi as abi


class Column:
    """`data` and `mask` are buffers; without a mask all rows have values. A part of a
    column shows part of the data, and the whole mask: `first` is the row in it of the
    part's first."""

    def __init__(self, data, mask=None, first=0):
        self.data, self.mask, self.first = data, mask, first

    def part(self, first, count):
        data = self.data.view((count,), offset=first * self.data.itemsize)
        mask = self.mask and self.mask.view(self.mask.shape)
        return Column(data, mask, self.first + first)

    def has(self):
        """For each row, whether it has a value."""
        count = self.data.shape[0]
        if self.mask is None:
            return [True] * count
        octets = self.mask.fetch()
        return [bool(octets[row // 8] >> row % 8 & 1)
                for row in range(self.first, self.first + count)]

    def export(self, access=abi.READ):
        return json.dumps({
            "dtype": self.data.dtype, "first": self.first,
            "data": list(self.data.export(access)),
            "mask": None if self.mask is None else list(self.mask.export(access))})

    @classmethod
    def open(cls, device, text, stream=None, access=abi.READ):
        said = json.loads(text)
        data = weir.Buffer.open(device, weir.Ticket(said["data"]), said["dtype"],
                                stream=stream, access=access)
        mask = said["mask"] and weir.Buffer.open(device, weir.Ticket(said["mask"]),
                                                 stream=stream, access=access)
        return cls(data, mask, said["first"])

    def close(self):
        self.data.close()
        if self.mask is not None:
            self.mask.close()
