"""marginctl doctor."""

from pathlib import Path

import typer

from marginctl.cli import options
from marginctl.cli.options import print_json


def command(
    data_dir: options.DataDir = None,
    out: options.Out = Path("runs"),
    device: options.Device = "auto",
    json: options.Json = False,
) -> None:
    """Say what is installed, which device, threads, disk and data there are, and what to do.

    Exits with 1 where something stands in the way of every command.
    """
    from marginctl.data.paths import default_data_dir
    from marginctl.doctor import examine
    from marginctl.reports.formats.output import print_finding

    found = []
    for finding in examine(data_dir or default_data_dir(), out, device):
        found.append(finding)
        if not json:
            print_finding(**finding.record())
    problems = sum(finding.state == "problem" for finding in found)
    if json:
        records = [finding.record() for finding in found]
        print_json({"schema": 1, "command": "doctor", "problems": problems, "findings": records})
    if problems:
        raise typer.Exit(1)
