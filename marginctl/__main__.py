"""The `marginctl` program, also as `python -m marginctl`."""

import sys
from typing import NoReturn


def main() -> NoReturn:
    """Runs the command line of this process; Ctrl-C while it is imported is no traceback."""
    try:
        from marginctl.cli import run

        sys.exit(run())
    except KeyboardInterrupt:
        sys.exit(130)


if __name__ == "__main__":
    main()
