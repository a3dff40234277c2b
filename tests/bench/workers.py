"""Time trials side by side against one after another, interleaved.

python -m tests.bench.workers
python -m tests.bench.workers --model resnet20 --data cifar-100 --rounds 5 --busy 2

Each side is the whole command of six trials, from its start to its end: with two workers; one after
another with the same threads; and one after another on all cores. A ratio is the time of a side
relative to that of the workers in the same round: above 1, the workers are faster.
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

from marginctl.bench.timing import interleave, ratios
from tests.faults.harness import records

WORKERS, ALONE, ALL_CORES = "2 workers", "one after another", "one after another, all cores"
BUSY = "while True: pass"


def run(side: str, arguments: list[str], out: Path) -> None:
    environment = {k: v for k, v in os.environ.items() if k != "OMP_NUM_THREADS"}
    if side == ALL_CORES:
        environment["OMP_NUM_THREADS"] = str(os.cpu_count())
    workers = "2" if side == WORKERS else "1"
    command = [sys.executable, "-m", "marginctl", *arguments, "--workers", workers, "--out", out]
    subprocess.run(command, env=environment, check=True, capture_output=True)


def processor_seconds() -> float:
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.bench.workers", description=__doc__)
    parser.add_argument("--model", default="mnist-cnn")
    parser.add_argument("--data", default="mnist")
    parser.add_argument("--images", type=int, default=3000)
    parser.add_argument("--epochs", type=int, default=4)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--busy", type=int, default=0, help="other processes that compute")
    args = parser.parse_args()
    arguments = ["train", "--data", args.data, "--model", args.model, "--epochs", str(args.epochs)]
    arguments += ["--objective", "soft", "--objective", "arcface", "--objective", "arcgrad"]
    arguments += ["--seeds", "2", "--set", f"data.subset_size={args.images}", "--no-tune"]
    arguments += ["--device", "cpu", "--quiet"]
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        for _ in range(args.busy):
            process = subprocess.Popen([sys.executable, "-c", BUSY])
            stack.callback(process.kill)
        started, outs = time.time(), {side: list[Path]() for side in (WORKERS, ALONE, ALL_CORES)}
        processor = {side: list[float]() for side in outs}

        def timed_run(side: str) -> None:
            outs[side].append(folder / str(len(os.listdir(folder))))
            before = processor_seconds()
            run(side, arguments, outs[side][-1])
            processor[side].append(processor_seconds() - before)

        seconds = interleave(
            {side: lambda side=side: timed_run(side) for side in outs},
            args.rounds,
            warm_up=0,
            report=lambda line: print(line, flush=True),
        )
        same = records(outs[WORKERS][0]) == records(outs[ALONE][0])
    print(f"{args.model} on {args.data}, {args.busy} busy processes, {time.time() - started:.0f} s")
    print(f"load averages now: {os.getloadavg()}; equal results of workers and one alone: {same}")
    for side in outs:
        relative = sorted(ratios(seconds, side, WORKERS))
        print(
            f"{side}: median {statistics.median(seconds[side]):.1f} s; relative to the workers "
            f"{statistics.median(relative):.2f} ({relative[0]:.2f} to {relative[-1]:.2f}, "
            f"n = {len(relative)}); processor time {statistics.median(processor[side]):.1f} s"
        )


if __name__ == "__main__":
    main()
