"""`python -m marginctl` is the `marginctl` command."""

from marginctl.cli import main

if __name__ == "__main__":
    main()
