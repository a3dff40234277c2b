"""The errors that a user can cause. Each is shown as plain lines, never as a traceback."""


class MarginctlError(Exception):
    """A problem that ends the command.

    Args:
        lines: one line for each problem found, each naming the thing, its value, what was
            expected and what to do.
    """

    exit_status = 1
    is_local_to_process = False  # of several that train together, only the one that raises it knows

    def __init__(self, *lines: str) -> None:
        super().__init__("\n".join(lines))
        self.lines = lines


class RequestError(MarginctlError):
    """The request itself was wrong: a bad recipe, data file or option."""

    exit_status = 2


class StorageError(MarginctlError):
    """A run folder cannot be read or written."""


class PeerLostError(MarginctlError):
    """Another of the processes that train one network has gone."""

    is_local_to_process = True


class DecodeError(RequestError):
    """An image file cannot be decoded."""

    is_local_to_process = True
