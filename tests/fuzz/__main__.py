"""Tries thousands of wrong inputs: python -m tests.fuzz --cases 5000 --seed 0 --out FILE.json.

A failing case is printed with the fewest changes that still fail; its files stay in --folder, and
`--kind KIND --number N` with the same seed makes it again. With --known, files whose content is
known are read: a case fails where something else is read than was written.
"""

import argparse
import json
import sys
import tempfile
from pathlib import Path

from tests.fuzz.known import silent_differences
from tests.fuzz.session import KINDS, cases, fuzz


def main() -> int:
    """Returns 1 where a case failed."""
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz", description=__doc__)
    parser.add_argument("--cases", type=int, default=5000)
    parser.add_argument("--skip", type=int, default=0, help="so many of them: for a run in parts")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--known", action="store_true", help="files whose content is known")
    parser.add_argument("--kind", choices=list(KINDS), action="append")
    parser.add_argument("--number", type=int, help="this case alone; with one --kind")
    parser.add_argument("--folder", type=Path, help="for files; else a temporary one")
    parser.add_argument("--out", type=Path, help="counts, failures and messages as JSON")
    given = parser.parse_args()
    kinds = given.kind or list(KINDS)
    wanted = list(cases(given.cases, kinds))[given.skip :]
    if given.number is not None:
        wanted = [(kinds[0], given.number)]
    folder = (given.folder or Path(tempfile.mkdtemp(prefix="fuzz-"))).absolute()
    folder.mkdir(parents=True, exist_ok=True)
    if given.known:
        differ = []
        for line in silent_differences(given.seed, given.cases, folder):
            print(ascii(line)[1:-1], flush=True)
            differ.append(line)
        print(f"{given.cases} cases: {len(differ)} differ; files in {folder}", file=sys.stderr)
        return 1 if differ else 0
    outcome = fuzz(given.seed, wanted, folder, lambda line: print(ascii(line)[1:-1], flush=True))
    if given.out:
        given.out.write_text(json.dumps(outcome.as_json(), indent=1))
    print(f"{outcome.cases.total()} cases: {dict(outcome.cases)}", file=sys.stderr)
    print(f"{len(outcome.failures)} failed; files in {folder}", file=sys.stderr)
    return 1 if outcome.failures else 0


if __name__ == "__main__":
    raise SystemExit(main())
