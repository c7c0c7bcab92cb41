"""`python -m storage compare EXPERIMENT --data-folder DIR`: the comparison on the terminal.

Exit status: 0 every run finished and parity holds for every backend; 1 a run did not finish;
2 bad input; 3 parity is broken; 4 parity proves nothing (the baseline learned nothing, or there is
no control, or no backend). A broken parity outranks a run that did not finish. With `--fail-if`
(docs/ci-gate.md): 0 every run finished and no condition is met; 1 a run did not finish; 2 bad
input; 5 a condition is met, which outranks a run that did not finish.
"""

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from runner.conditions import Condition, add_fail_if
from runner.queue import PROJECT_ROOT
from runner.run_dir import DataDir, RunState
from storage import gate
from storage.comparison import compare
from storage.errors import NotInStore, StoreError
from storage.report import report
from storage.results import Comparison
from storage.store import Store

EXAMPLES = PROJECT_ROOT / "examples"
FINISHED, UNFINISHED, BAD_INPUT, BROKEN, PROVES_NOTHING, REFUSED = range(6)


def main(arguments: list[str] | None = None) -> int:
    options = _parse(arguments)
    if not options.data_folder.is_dir():
        print(f"--data-folder {options.data_folder}: there is no such folder", file=sys.stderr)  # noqa: T201
        return BAD_INPUT
    with _open(DataDir(options.data_folder)) as store:
        store.ingest_all()
        try:
            comparison = compare(store, options.experiment)
        except NotInStore as error:
            print(error, file=sys.stderr)  # noqa: T201
            return BAD_INPUT
    print(report(comparison))  # noqa: T201
    if options.fail_if:
        return pass_gate(comparison, options.fail_if)
    return exit_status(comparison)


def pass_gate(comparison: Comparison, conditions: Sequence[Condition]) -> int:
    """Prints why the gate stays closed, a line for each reason, and returns the exit status."""
    refused, unfinished = gate.reasons(comparison, conditions), gate.unfinished(comparison)
    for reason in [*refused, *unfinished]:
        print(f"FAIL {reason}")  # noqa: T201
    if refused:
        return REFUSED
    return UNFINISHED if unfinished else FINISHED


def exit_status(comparison: Comparison) -> int:
    """What the module's docstring says."""
    verdicts = [result.parity.verdict for result in comparison.results if result.parity]
    if "broken" in verdicts:
        return BROKEN
    if any(result.state != RunState.FINISHED for result in comparison.results):
        return UNFINISHED
    if not verdicts or any(verdict != "holds" for verdict in verdicts):
        return PROVES_NOTHING
    return FINISHED


def _parse(arguments: list[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m storage",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    commands = parser.add_subparsers(required=True, metavar="compare")
    command = commands.add_parser("compare", help="print the comparison of an experiment")
    command.add_argument("experiment", help="id of the experiment")
    command.add_argument(
        "--data-folder", type=Path, default=PROJECT_ROOT / "data", help="where runs are kept"
    )
    add_fail_if(command)
    return parser.parse_args(arguments)


def _open(data_dir: DataDir) -> Store:
    """The data folder's database, or one in memory while somebody else owns it."""
    try:
        return Store.open(data_dir, EXAMPLES)
    except StoreError:
        return Store.in_memory(data_dir, EXAMPLES)


if __name__ == "__main__":
    sys.exit(main())
