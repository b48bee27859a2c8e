"""`taxiway doctor`: what is installed, what is missing, and what to do about it."""

import argparse
import json
from collections.abc import Iterator
from dataclasses import asdict

from pipeline.doctor import Finding, State, examine, this_machine

SIGNS: dict[State, str] = {"ok": "✓", "note": "!", "missing": "-", "broken": "✗"}
BROKEN = 1


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the command's options."""
    parser.add_argument("--json", action="store_true", help="print JSON")
    parser.add_argument(
        "--deep", action="store_true", help="import TensorFlow to see its devices"
    )


def run(args: argparse.Namespace) -> int:
    """Print what was found.

    Returns:
        0, or 1 when something is broken that every command needs.
    """
    findings = examine(this_machine(), args.deep)
    if args.json:
        print(json.dumps([asdict(finding) for finding in findings], indent=2))
    else:
        for line in lines(findings):
            print(line)
    return BROKEN if any(finding.state == "broken" for finding in findings) else 0


def lines(findings: list[Finding]) -> Iterator[str]:
    """Yield the findings as text, each remedy below what it is for."""
    width = max(len(finding.topic) for finding in findings)
    for finding in findings:
        yield f"{SIGNS[finding.state]} {finding.topic:<{width}}  {finding.what}"
        if finding.remedy is not None:
            yield f"  {'':<{width}}  → {finding.remedy}"
