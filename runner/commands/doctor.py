"""`breakeven doctor`: prints findings with evidence and remedy."""

import argparse
import json
import sys
import textwrap
from collections.abc import Sequence
from pathlib import Path

from breakeven.runner.doctor.bundle import write_bundle
from breakeven.runner.doctor.examination import examine
from breakeven.runner.doctor.findings import Finding, Health, worst
from breakeven.runner.folders import audit
from breakeven.runner.folders.data_dir import DataDir
from breakeven.runner.masking import mask
from breakeven.runner.texts import printable

SIGNS = {Health.OK: "ok", Health.DOUBTFUL: "doubtful", Health.WRONG: "WRONG",
         Health.UNKNOWN: "unknown"}  # fmt: skip
WIDTH = 100
SOMETHING_WRONG = 1


def add_doctor_options(command: argparse.ArgumentParser) -> None:
    command.add_argument("--repair", action="store_true", help="repair what is safe to repair")
    command.add_argument("--notify", action="store_true", help="send a test notification")
    command.add_argument("--json", action="store_true", help="print the findings as JSON")
    command.add_argument(
        "--bundle", type=Path, metavar="FILE.zip",
        help="write findings, logs and records of the latest runs to a file for an issue; secrets "
        "are masked",
    )  # fmt: skip


def examine_machine(data_dir: DataDir, options: argparse.Namespace) -> int:
    """Prints the findings; returns 1 if something is wrong, else 0."""
    findings = examine(data_dir, notify=options.notify)
    if options.repair:
        repaired = _repair(data_dir, findings)
        findings = examine(data_dir) if repaired else findings
    if options.json:
        content = {"health": worst(findings), "findings": [one.to_dict() for one in findings]}
        _print(mask(json.dumps(content, indent=2)))
    else:
        _print(mask(report(findings)))
    if options.bundle is not None:
        count = write_bundle(data_dir, findings, options.bundle)
        sys.stderr.write(f"{count} files in {options.bundle}; check them before you send it\n")
    return SOMETHING_WRONG if worst(findings) is Health.WRONG else 0


def report(findings: Sequence[Finding]) -> str:
    """A line for each finding, with its remedy below; at the end the number of each kind."""
    width = max(len(finding.subject) for finding in findings)
    lines = []
    for one in findings:
        head = f"{SIGNS[one.health]:<8}  {one.subject:<{width}}  "
        lines.append(_wrapped(printable(one.evidence, 600), head))
        if one.remedy:
            lines.append(_wrapped(f"remedy: {printable(one.remedy, 600)}", " " * len(head)))
    counted = {health: sum(one.health is health for one in findings) for health in SIGNS}
    summary = ", ".join(f"{count} {SIGNS[health].lower()}" for health, count in counted.items()
                        if count)  # fmt: skip
    return "\n".join([*lines, "", summary])


def _repair(data_dir: DataDir, findings: Sequence[Finding]) -> bool:
    """Runs all repairs; returns whether there were any."""
    tried = False
    for one in findings:
        if one.repair is not None and one.health is not Health.OK:
            tried = True
            try:
                done = one.repair()
            except OSError as error:
                done = f"not repaired: {error}"
            audit.record(data_dir, "repair", one.subject, came=done)
            sys.stderr.write(f"{one.subject}: {printable(done)}\n")
    return tried


def _wrapped(text: str, head: str) -> str:
    return textwrap.fill(text, WIDTH, initial_indent=head, subsequent_indent=" " * len(head),
                         break_long_words=False, break_on_hyphens=False)  # fmt: skip


def _print(text: str) -> None:
    sys.stdout.write(text + "\n")
