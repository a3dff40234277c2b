"""The errors that a user can cause, which are shown as plain lines instead of a traceback."""


class MarginctlError(Exception):
    """A problem that ends the command.

    Args:
        lines: one line per problem, each naming the thing, its value, what was expected and what
            to do.
    """

    exit_status = 1
    is_local_to_process = False  # whether only one of several processes raises it

    def __init__(self, *lines: str) -> None:
        super().__init__("\n".join(lines))
        self.lines = lines


class RequestError(MarginctlError):
    """The request is wrong: a bad recipe, data file or option."""

    exit_status = 2


class StorageError(MarginctlError):
    """A run directory or an output file cannot be read or written."""


class PeerLostError(MarginctlError):
    """Another process of a data-parallel training run has ended."""

    is_local_to_process = True


class MissingPeerError(RequestError):
    """The other processes of a data-parallel training run do not come."""

    is_local_to_process = True


class DecodeError(RequestError):
    """An image file cannot be decoded."""

    is_local_to_process = True
