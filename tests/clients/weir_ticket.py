"""weir_ticket.py - what one process gives another so that it can open a buffer.
"""
import ctypes

import weir_abi as abi
from weir_library import lib


class Ticket(abi.weir_ticket):
    """Plain octets; `list(ticket)` has them as numbers, and Ticket(numbers) takes them
    back. ValueError: they are no ticket."""

    def __init__(self, octets=None):
        super().__init__()
        if octets is not None:
            octets = bytes(octets)
            if len(octets) != ctypes.sizeof(self):
                raise ValueError(f"a ticket is {ctypes.sizeof(self)} octets, not "
                                 f"{len(octets)}")
            ctypes.memmove(ctypes.byref(self), octets, len(octets))
            self.info()

    def __iter__(self):
        return iter(bytes(self))

    def __eq__(self, other):
        return isinstance(other, Ticket) and bytes(self) == bytes(other)

    __hash__ = None

    def to_json(self):
        """Text: a list of numbers."""
        room, length = abi.TICKET_JSON_BYTES, ctypes.c_size_t()
        text = ctypes.create_string_buffer(room)
        lib.weir_ticket_to_json(self, text, room, length)
        return text.raw[:length.value].decode()

    @classmethod
    def from_json(cls, text):
        made, octets = cls(), text.encode()
        lib.weir_ticket_from_json(octets, len(octets), made)
        return made

    def info(self):
        """What it says, as a weir_ticket_info; nobody has checked it."""
        seen = abi.sized(abi.weir_ticket_info)
        lib.weir_ticket_get_info(self, seen)
        return seen

    @property
    def bytes(self):
        """How many it names."""
        return self.info().bytes
