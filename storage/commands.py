"""What the commands of `python -m storage` do; each returns its exit status, told in `__main__`."""

import argparse
import subprocess
import sys
from collections.abc import Sequence

from runner.commands.conditions import Condition
from runner.commands.filters import Filter, read_filter
from runner.folders.data_dir import DataDir
from runner.folders.states import RunState
from runner.project import PROJECT_ROOT
from storage import queries
from storage.comparison import latency
from storage.comparison.comparison import compare
from storage.comparison.correctness import checks
from storage.comparison.results import Comparison
from storage.compiling.difference import load_compiled
from storage.compiling.kept import code_difference, kept_of
from storage.compiling.ladder import find_ladder
from storage.difference.replays import load_replay
from storage.difference.scaling import scalings
from storage.difference.sides import load_sides
from storage.errors import StoreError, TeamStoreUnusable
from storage.exchange import FORMATS, NOTES
from storage.exchange.bring import bring
from storage.exchange.suites import SUITE_FORMATS
from storage.index.store import Store
from storage.library.backend_rows import backend_rows
from storage.library.devices import devices
from storage.library.trends import trends
from storage.profile.explanation import explain
from storage.suite.cells import outcomes
from storage.suite.regressions import against
from storage.team import opening
from storage.terminal import correctness as correctness_report
from storage.terminal import devices as devices_report
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


def work_on_team_store(data_dir: DataDir, options: argparse.Namespace) -> int:
    """What `team ACTION` asks for."""
    from storage.team.commands import run

    return run(data_dir, options, EXAMPLES)


def print_comparison(data_dir: DataDir, options: argparse.Namespace) -> int:
    """Numbers and verdicts of an experiment; with `--fail-if` why a gate stays closed."""
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


def print_explanation(data_dir: DataDir, options: argparse.Namespace) -> int:
    """Why each backend is faster or slower."""
    with open_store(data_dir) as store:
        print(explain_report(explain(store, options.experiment)))  # noqa: T201
    return 0


def print_list(data_dir: DataDir, options: argparse.Namespace) -> int:
    """Experiments, as a table or as JSON."""
    with open_store(data_dir) as store:
        found = library.listed(store, read_filter(options))
    print(library.as_json(found) if options.json else library.as_table(found))  # noqa: T201
    return 0


def print_trend(data_dir: DataDir, options: argparse.Namespace) -> int:
    """Numbers over days, and why a nightly job fails."""
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


def print_devices(data_dir: DataDir, options: argparse.Namespace) -> int:
    """The devices that experiments tell of, and which became noisy or slow."""
    with open_store(data_dir) as store:
        library.listed(store, Filter())
        found = devices(store)
    print(devices_report.as_json(found) if options.json else devices_report.report(found))  # noqa: T201
    return FINISHED


def print_difference(data_dir: DataDir, options: argparse.Namespace) -> int:
    """Experiments held against each other."""
    with open_store(data_dir) as store:
        sides = load_sides(store, options.experiments)
        if len(sides) < 2:
            raise StoreError("a difference needs two experiments at least")
        print(difference_report(sides, scalings(store, sides)))  # noqa: T201
    return 0


def print_ladder(data_dir: DataDir, options: argparse.Namespace) -> int:
    """Which stage of the compiler fails, computes wrongly or loses time."""
    with open_store(data_dir) as store:
        found = find_ladder(store, options.experiment)
    if found is None:
        raise StoreError(NO_LADDER.format(options.experiment))
    print(ladder_report(found))  # noqa: T201
    return 0


def print_replay(data_dir: DataDir, options: argparse.Namespace) -> int:
    """Whether what was measured again came out as it should."""
    with open_store(data_dir) as store:
        found = load_replay(store, options.experiment)
    print(replay_report.replay_report(found))  # noqa: T201
    return replay_report.exit_status(found)


def print_compile_difference(data_dir: DataDir, options: argparse.Namespace) -> int:
    """What the compiler did otherwise in one run than in another."""
    with open_store(data_dir) as store:
        one, other = (load_compiled(store, run) for run in (options.run, options.other))
        kept = [kept_of(store, run.record) for run in (one, other)]
    code = [name for name, _ in code_difference(*kept)] if all(kept) else []
    print(compile_report(one, other, code))  # noqa: T201
    return 0


def print_suite(data_dir: DataDir, options: argparse.Namespace) -> int:
    """What a suite run came to, and what changed since an earlier one."""
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


def export(data_dir: DataDir, options: argparse.Namespace) -> int:
    """Writes an experiment, or a suite run, in a format of PyTorch's benchmarks."""
    with open_store(data_dir) as store:
        is_suite = options.experiment in set(queries.list_suite_runs(store)["suite_run"])
        formats = SUITE_FORMATS if is_suite else FORMATS
        text = formats[options.format](store, options.experiment)
    options.output.write_text(text)
    if options.format in NOTES:
        print(f"note: {NOTES[options.format]}", file=sys.stderr)  # noqa: T201
    return 0


def write_report(data_dir: DataDir, options: argparse.Namespace) -> int:
    """Writes experiments whole into one file."""
    if options.output.suffix.lower() not in (".html", ".pdf"):
        print(f"--output {options.output}: must end in .html or .pdf", file=sys.stderr)  # noqa: T201
        return BAD_INPUT
    # Charts are drawn by the dashboard's half, which nothing here imports.
    command = [sys.executable, "-m", "views.report", *options.experiments, "--output",
               str(options.output.resolve()), "--data-folder", str(data_dir.path)]  # fmt: skip
    return subprocess.run(command, cwd=PROJECT_ROOT).returncode


def import_files(data_dir: DataDir, options: argparse.Namespace) -> int:
    """Takes in reports, archives and results."""
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
    """Of `compare` without a gate; what the docstring of `storage.__main__` says."""
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


def open_store(data_dir: DataDir) -> Store:
    """All run folders: in the data folder's database, or in one in memory while somebody else owns
    it or it cannot be written; or the team's store, where `BREAKEVEN_STORE` names one."""
    try:
        store = opening.open_store(data_dir, EXAMPLES)
    except TeamStoreUnusable:
        raise
    except StoreError:
        return Store.in_memory(data_dir, EXAMPLES)
    try:
        store.ingest_all()
    except TeamStoreUnusable:
        store.close()
        raise
    except StoreError:
        store.close()
        return Store.in_memory(data_dir, EXAMPLES)
    return store
