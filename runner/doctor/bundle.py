"""Writes a file for an issue: the doctor's findings and the last output of runs.

All texts are masked. Models, data, checkpoints and all other files of runs are omitted.
"""

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

from breakeven.runner.doctor.findings import Finding
from breakeven.runner.errors import NotWritable, RunnerError
from breakeven.runner.folders.data_dir import DATA_VARIABLE, DataDir
from breakeven.runner.folders.run_dir import RunDir
from breakeven.runner.masking import mask_private

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
        for path in (run.spec_file, run.claim_file, run.exit_file, run.output_file,
                     run.events_file):  # fmt: skip
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
        "packages": dict(sorted((one.name, one.version) for one in metadata.distributions())),
        "variables": {name: value for name, value in sorted(os.environ.items())
                      if name.startswith(OWN_PREFIX)},
    }  # fmt: skip


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
