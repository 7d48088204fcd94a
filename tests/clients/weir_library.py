"""weir_library.py - libweir.so, loaded, with what its failures become in Python.

    WEIR_LIBRARY=.../libweir.so [WEIR_CLIENT=.../libweir_client.so]
"""
import os

import weir_abi as abi

EXCEPTIONS = {
    abi.INVALID_ARGUMENT: ValueError,
    abi.NOT_SUPPORTED: BufferError,
    abi.NOT_OWNED: BufferError,
    abi.NOT_FOUND: LookupError,
    abi.FILE_ERROR: OSError,
    abi.PEER_GONE: ConnectionError,
    abi.OUT_OF_HOST_MEMORY: MemoryError,
    abi.OUT_OF_MEMORY: MemoryError,
    abi.LIMIT_REACHED: MemoryError,
}  # all others: RuntimeError


def _exception(status, sentence, name):
    return EXCEPTIONS.get(status, RuntimeError)(f"{name}: {sentence}")


path = os.environ["WEIR_LIBRARY"]
lib = abi.load(path, _exception)
helper = abi.load_helper(
    os.environ.get("WEIR_CLIENT", os.path.join(os.path.dirname(path),
                                               "libweir_client.so")), lib)
