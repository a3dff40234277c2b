"""The `marginctl` program, also as `python -m marginctl`."""

import os
import sys
from typing import NoReturn

from marginctl.utils.device import world_size


def main() -> NoReturn:
    """Runs the command line of this process; Ctrl-C while it is imported is no traceback."""
    try:
        from marginctl.cli import run

        status = run()
    except KeyboardInterrupt:
        status = 130
    if world_size() > 1:
        # A thread of torch that still talks to the others may ask for the interpreter lock while
        # that is taken down, and the whole process would abort: all is written, so leave at once.
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(status)
    sys.exit(status)


if __name__ == "__main__":
    main()
