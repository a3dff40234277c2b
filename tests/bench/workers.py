"""Time trials side by side against one after another, interleaved.

python -m tests.bench.workers
python -m tests.bench.workers --model resnet18 --data digits --images 300 --rounds 5 --busy 2

Each side is a command of six trials: with two workers; one after another with the same threads; and
one after another on all cores. Its time is that of the trials, from the start of the first to the
last result, without the imports of the command and of its workers; the whole command's time and its
processor time are printed, too. A ratio is relative to the workers in the same round: above 1, they
are faster.
"""

import argparse
import os
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from contextlib import ExitStack
from pathlib import Path

from tests.faults.harness import records

WORKERS, ALONE, ALL_CORES = "2 workers", "one after another", "one after another, all cores"
SIDES = (WORKERS, ALONE, ALL_CORES)
BUSY = "while True: pass"


def run(side: str, arguments: list[str], out: Path) -> tuple[float, float, float]:
    """Run a command; return the seconds of its trials, of the whole, and of the processor."""
    environment = {k: v for k, v in os.environ.items() if k != "OMP_NUM_THREADS"}
    if side == ALL_CORES:
        environment["OMP_NUM_THREADS"] = str(os.cpu_count())
    workers = "2" if side == WORKERS else "1"
    command = [sys.executable, "-m", "marginctl", *arguments, "--workers", workers, "--out", out]
    started, before = time.time(), resource.getrusage(resource.RUSAGE_CHILDREN)
    subprocess.run(command, env=environment, check=True, capture_output=True)
    ended, after = time.time(), resource.getrusage(resource.RUSAGE_CHILDREN)
    begun = min(path.stat().st_mtime for path in out.rglob("run.json"))
    last = max(path.stat().st_mtime for path in out.rglob("result.json"))
    processor = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return last - begun, ended - started, processor


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.bench.workers", description=__doc__)
    parser.add_argument("--model", default="mnist-cnn")
    parser.add_argument("--data", default="digits")
    parser.add_argument("--images", type=int, default=1400)
    parser.add_argument("--epochs", type=int, default=6)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--busy", type=int, default=0, help="other processes that compute")
    args = parser.parse_args()
    arguments = ["train", "--data", args.data, "--model", args.model, "--epochs", str(args.epochs)]
    arguments += ["--objective", "soft", "--objective", "arcface", "--objective", "arcgrad"]
    arguments += ["--seeds", "2", "--set", f"data.subset_size={args.images}", "--no-tune"]
    arguments += ["--device", "cpu", "--quiet"]
    measured: dict[str, list[tuple[float, float, float]]] = {side: [] for side in SIDES}
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        for _ in range(args.busy):
            process = subprocess.Popen([sys.executable, "-c", BUSY])
            stack.callback(process.kill)
        for number in range(args.rounds):
            for side in SIDES if number % 2 == 0 else SIDES[::-1]:
                measured[side].append(run(side, arguments, folder / side / str(number)))
                print(f"round {number + 1}: {side}: %.1f s (%.1f, %.1f)" % measured[side][-1])
                sys.stdout.flush()
            same = records(folder / WORKERS) == records(folder / ALONE)
    print(f"{args.model} on {args.data}, {args.busy} busy processes, load {os.getloadavg()[0]:.1f}")
    print(f"workers and one after another have the same results: {same}")
    for side in SIDES:
        trials, whole, processor = (statistics.median(s) for s in zip(*measured[side], strict=True))
        pairs = zip(measured[side], measured[WORKERS], strict=True)
        ratios = sorted(a[0] / b[0] for a, b in pairs)
        print(
            f"{side}: trials {trials:.1f} s, command {whole:.1f} s, processor {processor:.1f} s; "
            f"trials relative to the workers {statistics.median(ratios):.2f} "
            f"({ratios[0]:.2f} to {ratios[-1]:.2f}, n = {len(ratios)})"
        )


if __name__ == "__main__":
    main()
