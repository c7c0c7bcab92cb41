"""What the data folder holds, on the terminal and as files:

    python -m storage compare EXPERIMENT
    python -m storage explain EXPERIMENT
    python -m storage list [WORD...]
    python -m storage trend [WORD...] [--of NUMBER] [--fail-if CONDITION]
    python -m storage difference EXPERIMENT EXPERIMENT...
    python -m storage ladder EXPERIMENT
    python -m storage replay EXPERIMENT
    python -m storage compile-diff RUN RUN
    python -m storage suite SUITE_RUN [--against EARLIER]
    python -m storage report EXPERIMENT... --output report.html
    python -m storage export EXPERIMENT --format harness-performance-csv --output FILE
    python -m storage import FILE...

`explain` says why each backend is faster or slower than the baseline, by what its kernels took.
`report` writes experiments, or a suite run, whole into one file, HTML or PDF, which `import` takes
in again, as it does archives of run folders; `export` and `import` also speak the formats of
PyTorch's own benchmarks (docs/exchange.md). Their exit status is 0, or 2 for bad input.

Exit status of `compare`: 0 every run finished and parity holds for every backend; 1 a run did not
finish; 2 bad input; 3 parity is broken; 4 parity proves nothing (the baseline learned nothing, or
there is no control, or no backend). A broken parity outranks a run that did not finish. With
`--fail-if` (docs/ci-gate.md): 0 every run finished and no condition is met; 1 a run did not finish;
2 bad input; 5 a condition is met, which outranks a run that did not finish. In the scenario
`accuracy`, with or without conditions: 0 every check passes; 1 one was not made; 2 bad input; 3 one
does not pass. In the scenario `cache` and the part `inference` of `speed`, which prove no parity,
there is no 4.

Exit status of `trend`: 0; 2 bad input; with `--fail-if` (docs/ci-gate.md) 1 nothing could be
judged; 5 a condition is met.

Exit status of `replay`: 0 no number came out otherwise than expected; 1 a run did not finish, or
nothing could be judged; 2 bad input; 6 a number did, which outranks a run that did not finish.

Exit status of `suite`: 0 every cell passed; 1 one is not over, was stopped, or was measured too
badly to be compared with the earlier suite run; 2 bad input; 3 one failed; 5 one is worse than in
the earlier suite run, which outranks the others.
"""

import argparse
import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

from runner.commands.conditions import Condition, add_fail_if
from runner.commands.filters import add_list_options, read_filter
from runner.commands.terminal import ends_quietly
from runner.folders.data_folder import DEFAULT_TEXT, default_data_folder
from runner.folders.queue import PROJECT_ROOT
from runner.folders.run_dir import DataDir
from runner.folders.states import RunState
from storage import queries
from storage.comparison import latency
from storage.comparison.comparison import compare
from storage.comparison.correctness import checks
from storage.comparison.results import Comparison
from storage.compiling.difference import load_compiled
from storage.compiling.kept import code_difference, kept_of
from storage.compiling.ladder import find_ladder
from storage.difference.replays import load_replay
from storage.difference.sides import load_sides
from storage.errors import StoreError
from storage.exchange import FORMATS, NOTES
from storage.exchange.bring import bring
from storage.exchange.suites import SUITE_FORMATS
from storage.index.store import Store
from storage.library.backend_rows import backend_rows
from storage.library.trends import trends
from storage.profile.explanation import explain
from storage.suite.cells import outcomes
from storage.suite.regressions import against
from storage.terminal import correctness as correctness_report
from storage.terminal import gate, library
from storage.terminal import replay as replay_report
from storage.terminal import suite as suite_report
from storage.terminal import trend as trend_report
from storage.terminal.compiling import compile_report
from storage.terminal.difference import difference_report
from storage.terminal.explain import explain_report
from storage.terminal.ladder import NO_LADDER, ladder_report
from storage.terminal.report import brought_text, report

EXAMPLES = PROJECT_ROOT / "examples"
FINISHED, UNFINISHED, BAD_INPUT, BROKEN, PROVES_NOTHING, REFUSED = range(6)


def main(arguments: list[str] | None = None) -> int:
    options = parser().parse_args(arguments)
    if not options.data_folder.is_dir():
        print(f"--data-folder {options.data_folder}: there is no such folder", file=sys.stderr)  # noqa: T201
        return BAD_INPUT
    try:
        status: int = options.execute(DataDir(options.data_folder), options)
        return status
    except BrokenPipeError:
        raise
    except (StoreError, OSError) as error:
        print(error, file=sys.stderr)  # noqa: T201
        return BAD_INPUT


def _compare(data_dir: DataDir, options: argparse.Namespace) -> int:
    with open_store(data_dir) as store:
        comparison = compare(store, options.experiment)
        if comparison.spec.kind.compares_tensors:
            found = checks(store, options.experiment, comparison.spec)
            print(correctness_report.correctness_report(comparison.spec, found))  # noqa: T201
            return correctness_report.exit_status(found)
        pairs = latency.cold_and_warm(store, options.experiment)
        caches = latency.summary(pairs, latency.without_latency(store, options.experiment))
    print("\n\n".join(filter(None, [report(comparison), caches])))  # noqa: T201
    if options.fail_if:
        return pass_gate(comparison, options.fail_if)
    return exit_status(comparison)


def _explain(data_dir: DataDir, options: argparse.Namespace) -> int:
    with open_store(data_dir) as store:
        print(explain_report(explain(store, options.experiment)))  # noqa: T201
    return 0


def _list(data_dir: DataDir, options: argparse.Namespace) -> int:
    with open_store(data_dir) as store:
        found = library.listed(store, read_filter(options))
    print(library.as_json(found) if options.json else library.as_table(found))  # noqa: T201
    return 0


def _trend(data_dir: DataDir, options: argparse.Namespace) -> int:
    with open_store(data_dir) as store:
        rows = backend_rows(store, library.listed(store, read_filter(options)))
    if options.fail_if:  # A gate judges what was run here, not what Breakeven brings along.
        rows = rows[rows["origin"] != "example"]
    found = trends(rows, options.of)
    print(trend_report.as_json(found) if options.json else trend_report.report(found))  # noqa: T201
    refused = trend_report.reasons(found, options.fail_if, options.within)
    unjudged = trend_report.unjudged(found, options.fail_if)
    for reason in filter(None, [*refused, unjudged]):
        print(f"FAIL {reason}", file=sys.stderr if options.json else sys.stdout)
    if refused:
        return REFUSED
    return UNFINISHED if unjudged else FINISHED


def _difference(data_dir: DataDir, options: argparse.Namespace) -> int:
    with open_store(data_dir) as store:
        sides = load_sides(store, options.experiments)
    if len(sides) < 2:
        raise StoreError("a difference needs two experiments at least")
    print(difference_report(sides))  # noqa: T201
    return 0


def _ladder(data_dir: DataDir, options: argparse.Namespace) -> int:
    with open_store(data_dir) as store:
        found = find_ladder(store, options.experiment)
    if found is None:
        raise StoreError(NO_LADDER.format(options.experiment))
    print(ladder_report(found))  # noqa: T201
    return 0


def _replay(data_dir: DataDir, options: argparse.Namespace) -> int:
    with open_store(data_dir) as store:
        found = load_replay(store, options.experiment)
    print(replay_report.replay_report(found))  # noqa: T201
    return replay_report.exit_status(found)


def _compile_diff(data_dir: DataDir, options: argparse.Namespace) -> int:
    with open_store(data_dir) as store:
        one, other = (load_compiled(store, run) for run in (options.run, options.other))
        kept = [kept_of(store, run.record) for run in (one, other)]
    code = [name for name, _ in code_difference(*kept)] if all(kept) else []
    print(compile_report(one, other, code))  # noqa: T201
    return 0


def _suite(data_dir: DataDir, options: argparse.Namespace) -> int:
    with open_store(data_dir) as store:
        found = outcomes(store, options.suite_run)
        earlier = options.against and outcomes(store, options.against)
        runs = queries.list_suite_runs(store)
    print(suite_report.suite_report(options.suite_run, found))  # noqa: T201
    compared = against(found, earlier) if earlier else None
    if compared is not None:
        conditions = suite_report.other_conditions(runs, options.suite_run, options.against)
        print(f"\n{suite_report.against_report(options.against, compared, conditions)}")  # noqa: T201
    return suite_report.exit_status(found, compared)


def _export(data_dir: DataDir, options: argparse.Namespace) -> int:
    with open_store(data_dir) as store:
        is_suite = options.experiment in set(queries.list_suite_runs(store)["suite_run"])
        formats = SUITE_FORMATS if is_suite else FORMATS
        text = formats[options.format](store, options.experiment)
    options.output.write_text(text)
    if options.format in NOTES:
        print(f"note: {NOTES[options.format]}", file=sys.stderr)  # noqa: T201
    return 0


def _report(data_dir: DataDir, options: argparse.Namespace) -> int:
    if options.output.suffix.lower() not in (".html", ".pdf"):
        print(f"--output {options.output}: must end in .html or .pdf", file=sys.stderr)  # noqa: T201
        return BAD_INPUT
    # Charts are drawn by the dashboard's half, which nothing here imports.
    command = [sys.executable, "-m", "views.report", *options.experiments, "--output",
               str(options.output.resolve()), "--data-folder", str(data_dir.path)]  # fmt: skip
    return subprocess.run(command, cwd=PROJECT_ROOT).returncode


def _import(data_dir: DataDir, options: argparse.Namespace) -> int:
    for file in options.files:
        print(brought_text(bring(data_dir, file, EXAMPLES)))  # noqa: T201
    return 0


def pass_gate(comparison: Comparison, conditions: Sequence[Condition]) -> int:
    """Prints why the gate stays closed, a line for each reason, and returns the exit status."""
    refused, unfinished = gate.reasons(comparison, conditions), gate.unfinished(comparison)
    for reason in [*refused, *unfinished]:
        print(f"FAIL {reason}")  # noqa: T201
    if refused:
        return REFUSED
    return UNFINISHED if unfinished else FINISHED


def exit_status(comparison: Comparison) -> int:
    """Of `compare` without a gate; what the module's docstring says."""
    verdicts = [result.parity.verdict for result in comparison.results if result.parity]
    if "broken" in verdicts:
        return BROKEN
    if any(result.state != RunState.FINISHED for result in comparison.results):
        return UNFINISHED
    if not comparison.spec.kind.compares_runs or comparison.spec.is_inference:
        return FINISHED
    if not verdicts or any(verdict != "holds" for verdict in verdicts):
        return PROVES_NOTHING
    return FINISHED


def parser() -> argparse.ArgumentParser:
    """All commands with their options; `execute` of what it parses runs the command."""
    whole = argparse.ArgumentParser(
        prog="python -m storage",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    commands = whole.add_subparsers(required=True, metavar="COMMAND")

    def add(name: str, execute: Callable[..., int], text: str) -> argparse.ArgumentParser:
        command = commands.add_parser(name, help=text, description=text)
        command.set_defaults(execute=execute)
        where = f"where runs are kept {DEFAULT_TEXT}"
        command.add_argument("--data-folder", type=Path, default=default_data_folder(), help=where)
        return command

    comparing = add("compare", _compare, "print the comparison of an experiment")
    exporting = add("export", _export, "write an experiment in a format of PyTorch's benchmarks")
    text = "name the stage of the compiler that fails, computes wrongly or loses time"
    climbing = add("ladder", _ladder, text)
    explaining = add("explain", _explain, "say why each backend is faster or slower")
    for command in (comparing, explaining, exporting, climbing):
        orders = "id of the experiment" + (", or of a suite run" if command is exporting else "")
        command.add_argument("experiment", help=orders)
    add_fail_if(comparing)
    exporting.add_argument("--format", choices=list(FORMATS), required=True)
    exporting.add_argument("--output", type=Path, required=True, metavar="FILE")
    text = "tell what the compiler did otherwise in one run than in another"
    differing = add("compile-diff", _compile_diff, text)
    for name in ("run", "other"):
        differing.add_argument(name, metavar="RUN", help="EXPERIMENT.LABEL, as its folder is named")
    listing = add("list", _list, "list experiments and what they came to")
    telling = add("trend", _trend, "tell how the same training fared over time, and its steps")
    for command in (listing, telling):
        add_list_options(command)
    trend_report.add_trend_options(telling)
    text = "hold experiments against each other: the first is what others are compared with"
    add("difference", _difference, text).add_argument(
        "experiments", nargs="+", metavar="EXPERIMENT", help="id, as `list` has it"
    )
    text = "say whether what was measured again came out as it should"
    add("replay", _replay, text).add_argument(
        "experiment", help="what `python -m runner replay RUN` ran"
    )
    summing = add("suite", _suite, "print the summary of a suite run, and what changed")
    summing.add_argument("suite_run", help="id of the suite run, as `python -m runner suite` says")
    summing.add_argument("--against", metavar="EARLIER", help="id of an earlier suite run")
    telling = add("report", _report, "write experiments whole into one file, HTML or PDF")
    telling.add_argument("experiments", nargs="+", metavar="EXPERIMENT",
                         help="ids of experiments or of suite runs")  # fmt: skip
    telling.add_argument("-o", "--output", type=Path, required=True, metavar="FILE",
                         help="must end in .html or .pdf")  # fmt: skip
    text = "take in reports, archives of run folders, and results of PyTorch's benchmarks"
    importing = add("import", _import, text)
    importing.add_argument("files", type=Path, nargs="+", metavar="FILE")
    return whole


def open_store(data_dir: DataDir) -> Store:
    """All run folders: in the data folder's database, or in one in memory while somebody else owns
    it or it cannot be written."""
    try:
        store = Store.open(data_dir, EXAMPLES)
    except StoreError:
        return Store.in_memory(data_dir, EXAMPLES)
    try:
        store.ingest_all()
    except StoreError:
        store.close()
        return Store.in_memory(data_dir, EXAMPLES)
    return store


if __name__ == "__main__":
    sys.exit(ends_quietly(main))
