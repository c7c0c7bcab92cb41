"""`breakeven doctor`: makes all checks, prints findings with evidence and remedy, and writes a file
for an issue.

All texts of the file are masked. It has no models, data, checkpoints and other files of runs.
"""

import argparse
import json
import os
import platform
import sys
import time
import zipfile
from collections.abc import Iterator, Sequence
from contextlib import suppress
from importlib import metadata
from pathlib import Path

from breakeven.runner.commands.entry import tell
from breakeven.runner.doctor.examination import examine
from breakeven.runner.doctor.health_finding import Finding, Health, worst
from breakeven.runner.errors import NotWritable, RunnerError
from breakeven.runner.logs import log_action
from breakeven.runner.masking import mask, mask_private
from breakeven.runner.protocol.data_dir import DATA_VARIABLE, DataDir
from breakeven.runner.protocol.run_dir import RunDir
from breakeven.runner.texts import filled, printable

SIGNS = {
    Health.OK: "ok",
    Health.DOUBTFUL: "doubtful",
    Health.WRONG: "WRONG",
    Health.UNKNOWN: "unknown",
}
SOMETHING_WRONG = 1


def add_doctor_options(command: argparse.ArgumentParser) -> None:
    command.add_argument("--repair", action="store_true", help="repair what is safe to repair")
    command.add_argument("--notify", action="store_true", help="send a test notification")
    command.add_argument("--json", action="store_true", help="print the findings as JSON")
    command.add_argument(
        "--bundle",
        type=Path,
        metavar="FILE.zip",
        help="write findings, logs and records of the latest runs to a file for an issue; secrets "
        "are masked",
    )


def examine_machine(data_dir: DataDir, options: argparse.Namespace) -> int:
    """Prints the findings; returns 1 if something is wrong, else 0."""
    findings = examine(data_dir, notify=options.notify)
    if options.repair:
        repaired = _repair(data_dir, findings)
        findings = examine(data_dir) if repaired else findings
    if options.json:
        content = {
            "health": worst(findings),
            "findings": [finding.to_dict() for finding in findings],
        }
        tell(mask(json.dumps(content, indent=2)))
    else:
        tell(mask(report(findings)))
    if options.bundle is not None:
        count = write_bundle(data_dir, findings, options.bundle)
        sys.stderr.write(f"{count} files in {options.bundle}; check them before you send it\n")
    return SOMETHING_WRONG if worst(findings) is Health.WRONG else 0


def report(findings: Sequence[Finding]) -> str:
    """A line for each finding, with its remedy below; at the end the number of each kind."""
    width = max(len(finding.subject) for finding in findings)
    lines = []
    for finding in findings:
        head = f"{SIGNS[finding.health]:<8}  {finding.subject:<{width}}  "
        lines.append(filled(printable(finding.evidence, 600), head))
        if finding.remedy:
            lines.append(filled(f"remedy: {printable(finding.remedy, 600)}", " " * len(head)))
    counted = {health: sum(finding.health is health for finding in findings) for health in SIGNS}
    summary = ", ".join(
        f"{count} {SIGNS[health].lower()}" for health, count in counted.items() if count
    )
    return "\n".join([*lines, "", summary])


def _repair(data_dir: DataDir, findings: Sequence[Finding]) -> bool:
    """Runs all repairs; returns whether there were any."""
    tried = False
    for finding in findings:
        if finding.repair is not None and finding.health is not Health.OK:
            tried = True
            try:
                done = finding.repair()
            except OSError as error:
                done = f"not repaired: {error}"
            log_action(data_dir.logs, "repair", finding.subject, came=done)
            sys.stderr.write(f"{finding.subject}: {printable(done)}\n")
    return tried


LAST_EXPERIMENTS = 5
TAIL_BYTES = 200_000
OWN_PREFIX = DATA_VARIABLE.partition("_")[0] + "_"
READ_ME = """\
All files are text; secrets and home folders are masked:

findings.json   findings of `breakeven doctor`
system.json     Python, packages, platform, and Breakeven's own environment variables
logs/           the end of the logs of dashboard and supervisor
runs/           specification, claim, exit record, the end of the output and of the journal of the
                last experiments

There is no model, data, checkpoint or picture. Check the files before you send them: names of
experiments and the output of your own code are not masked.
"""


def write_bundle(data_dir: DataDir, findings: Sequence[Finding], file: Path) -> int:
    """Writes the ZIP file and returns how many files it has; raises `NotWritable`."""
    temporary = file.with_name(f".{file.name}.tmp")
    try:
        with zipfile.ZipFile(temporary, "w", zipfile.ZIP_DEFLATED) as bundle:
            for name, text in _contents(data_dir, findings):
                bundle.writestr(name, mask_private(text))
            count = len(bundle.namelist())
        temporary.replace(file)
    except OSError as error:
        temporary.unlink(missing_ok=True)
        raise NotWritable(file.parent, error) from error
    return count


def _contents(data_dir: DataDir, findings: Sequence[Finding]) -> Iterator[tuple[str, str]]:
    yield "README.txt", READ_ME
    yield "findings.json", _json([finding.to_dict() for finding in findings])
    yield "system.json", _json(_system())
    for log in sorted(data_dir.path.glob("*.log")) + sorted(data_dir.logs.glob("*.jsonl*")):
        with suppress(OSError):
            yield f"logs/{log.name}", _tail(log)
    for run in _last_runs(data_dir):
        for path in (
            run.spec_file,
            run.claim_file,
            run.exit_file,
            run.output_file,
            run.events_file,
        ):
            with suppress(OSError, RunnerError), run.open(path.name) as opened:
                opened.seek(max(0, opened.seek(0, os.SEEK_END) - TAIL_BYTES))
                yield (
                    f"runs/{run.run_id}/{path.name}",
                    opened.read(TAIL_BYTES).decode(errors="replace"),
                )


def _system() -> dict[str, object]:
    return {
        "time": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
        "python": sys.version,
        "platform": platform.platform(),
        "packages": dict(
            sorted((package.name, package.version) for package in metadata.distributions())
        ),
        "variables": {
            name: value for name, value in sorted(os.environ.items()) if name.startswith(OWN_PREFIX)
        },
    }


def _last_runs(data_dir: DataDir) -> list[RunDir]:
    runs = list(data_dir.run_dirs())
    last = sorted({run.run_id.partition(".")[0] for run in runs})[-LAST_EXPERIMENTS:]
    return [run for run in runs if run.run_id.partition(".")[0] in last]


def _tail(file: Path) -> str:
    with file.open("rb") as opened:
        opened.seek(max(0, file.stat().st_size - TAIL_BYTES))
        return opened.read(TAIL_BYTES).decode(errors="replace")


def _json(content: object) -> str:
    return json.dumps(content, indent=2) + "\n"
