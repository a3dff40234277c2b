"""marginctl doctor."""

from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated

import typer

from marginctl.cli import common_options
from marginctl.cli.common_options import print_json

if TYPE_CHECKING:
    from rich.console import Console

    from marginctl.doctor import Finding


def command(
    data_dir: common_options.DataDir = None,
    out: common_options.Out = common_options.RUNS,
    device: common_options.Device = "auto",
    verbose: Annotated[
        bool, typer.Option("--verbose", "-v", help="Name packages and data sets.")
    ] = False,
    json: common_options.Json = False,
) -> None:
    """Check the installation and suggest fixes.

    Exits with status 1 if a problem stops every command.
    """
    from marginctl.data.paths import default_data_dir
    from marginctl.doctor import examine
    from marginctl.reports.formats.output import stdout_console

    console = stdout_console()
    findings = []
    for finding in examine(data_dir or default_data_dir(), out, device):
        findings.append(finding)
        if not json:
            _print_finding(console, finding, verbose=verbose)
    problems = sum(finding.state == "problem" for finding in findings)
    if json:
        records = [asdict(finding) for finding in findings]
        print_json({"schema": 1, "command": "doctor", "problems": problems, "findings": records})
    if problems:
        raise typer.Exit(1)
    if not json:
        common_options.print_next_step("uci-cv --dataset iris")


def _print_finding(console: "Console", finding: "Finding", *, verbose: bool) -> None:
    """Print a finding, with its details and its advice on the next lines."""
    from rich.text import Text

    from marginctl.utils.text import printable

    labels = {"ok": ("ok", "green"), "note": ("note", "yellow"), "problem": ("PROBLEM", "bold red")}
    label, style = labels[finding.state]
    head = Text.assemble((f"{label:8}", style), (f"{finding.topic:13}", "bold"))
    advice = f"-> {finding.advice}" if finding.advice else None
    for text in filter(None, (finding.text, finding.details if verbose else None, advice)):
        for line in Text(printable(text)).wrap(console, max(20, console.width - len(head))):
            console.print(head + line, soft_wrap=True)
            head = Text(" " * len(head))
