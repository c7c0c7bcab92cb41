"""What only storage can tell, asked in a process of its own: the index, the noise floor, and
journals."""

import sys
from collections.abc import Iterator
from importlib.util import find_spec
from typing import Any

from breakeven.runner.doctor.asking import ask
from breakeven.runner.doctor.findings import Finding, Health
from breakeven.runner.folders.data_dir import DataDir
from breakeven.runner.locks import FileLock
from breakeven.runner.texts import printable

LIMIT_SECONDS = 600.0
SHOWN = 3
NOISY = 0.05
"""A noise floor beyond which few compilers' speedups can be told from nothing."""


def check_database(data_dir: DataDir) -> Iterator[Finding]:
    if find_spec("duckdb") is None:
        yield Finding(
            subject="Database",
            health=Health.OK,
            evidence="duckdb is not installed: this machine measures, and shows nothing",
        )
        return
    answer = _ask_storage(data_dir)
    if isinstance(answer, str):
        yield Finding(subject="Database", health=Health.UNKNOWN, evidence=answer)
        return
    yield _index(data_dir, answer["database"])
    yield _noise(answer["noise"])
    yield _journals(answer["journals"])


def _index(data_dir: DataDir, found: dict[str, Any]) -> Finding:
    subject, evidence = "Database", printable(found["evidence"])
    if found["state"] == "ok":
        return Finding(subject=subject, health=Health.OK, evidence=evidence)

    def repair() -> str:
        file, lock = data_dir.database_file, FileLock(data_dir.database_lock)
        if not lock.try_acquire():
            return "a dashboard has opened it meanwhile, and mends it by itself"
        with lock:
            for part in (file, file.with_name(file.name + ".wal")):
                part.unlink(missing_ok=True)
        return "removed; the next dashboard builds it anew from the run folders"

    return Finding(
        subject=subject,
        health=Health.DOUBTFUL,
        evidence=evidence,
        repair=repair,
        remedy="it is an index of the run folders: `make run` builds it anew by itself",
    )


def _noise(found: dict[str, Any]) -> Finding:
    subject, floor = "Noise floor", found["floor"]
    if floor is None:
        return Finding(subject=subject, health=Health.OK, evidence=printable(found["evidence"]))
    evidence = (
        f"{100 * floor:.1f} % between equal runs ({found['count']} controls, the last in "
        f"{printable(found['experiment'])})"
    )
    if floor > NOISY:
        remedy = (
            "end other work on this machine, give runs fewer threads (`--cpu-threads`), or take "
            "longer blocks (`--block-steps`): smaller differences than this mean nothing"
        )
        return Finding(subject=subject, health=Health.DOUBTFUL, evidence=evidence, remedy=remedy)
    return Finding(subject=subject, health=Health.OK, evidence=evidence)


def _journals(found: dict[str, int]) -> Finding:
    subject = "Journals"
    if not found:
        return Finding(subject=subject, health=Health.OK, evidence="every line counts once")
    listed = "; ".join(f"{printable(run_id, 80)}: {count:,}"
                       for run_id, count in [*found.items()][:SHOWN])  # fmt: skip
    more = f"; and {len(found) - SHOWN} more runs" if len(found) > SHOWN else ""
    return Finding(
        subject=subject,
        health=Health.DOUBTFUL,
        evidence=f"{sum(found.values()):,} lines do not follow those before them and are left out, "
        f"as where a journal was copied into itself: {listed}{more}",
        remedy="bring events.jsonl back from where it came; what is shown is that of the others",
    )


def _ask_storage(data_dir: DataDir) -> dict[str, Any] | str:
    if not data_dir.path.is_dir():
        return f"there is no {data_dir.path} yet"
    command = [
        sys.executable,
        "-m",
        "breakeven.storage",
        "checkup",
        f"--data-folder={data_dir.path}",
    ]
    return ask("storage", command, LIMIT_SECONDS)
