"""The commands of `breakeven`; each returns its exit status, which `__main__` documents."""

import argparse
import os
import subprocess
import sys
import textwrap
from collections.abc import Callable, Sequence
from contextlib import ExitStack, suppress

from breakeven.runner.arguments.conditions import Condition, check_gate
from breakeven.runner.arguments.filters import read_filter
from breakeven.runner.arguments.lengths import Length, write_length
from breakeven.runner.disk_space import lacks_room
from breakeven.runner.experiments.continuing import instead_of_continuing, why_not_continued
from breakeven.runner.experiments.families import accept
from breakeven.runner.project import PACKAGE, PROJECT_ROOT
from breakeven.runner.protocol.data_dir import DataDir
from breakeven.runner.protocol.states import ACTIVE_EXPERIMENTS, RunState
from breakeven.runner.settings import read_settings
from breakeven.runner.specs.scenarios.base import Compared
from breakeven.storage import queries, team
from breakeven.storage.comparison.cold_and_warm import cold_and_warm, without_latency
from breakeven.storage.comparison.comparison import compare
from breakeven.storage.comparison.correctness import checks
from breakeven.storage.comparison.plan import Plan, own_plan, plan, steps_of
from breakeven.storage.comparison.results import Comparison, standings
from breakeven.storage.comparison.run_warnings import MissingRuns
from breakeven.storage.compiling.ladder import find_ladder
from breakeven.storage.compiling.two_runs import code_difference, kept_of, load_compiled
from breakeven.storage.errors import StoreError, TeamStoreUnusable
from breakeven.storage.exchange.benchmark_formats import FORMATS, NOTES
from breakeven.storage.exchange.imports import import_any
from breakeven.storage.index.store import Store
from breakeven.storage.investigation import (
    COMPILER_CAUSES,
    CUT_SHORT,
    Investigation,
    fault_to_find,
    load_investigation,
    next_experiment,
    suspects,
)
from breakeven.storage.library.catalog import backend_rows
from breakeven.storage.library.trends import failures_without_series, trends
from breakeven.storage.profile.explanation import explain
from breakeven.storage.queries.time_use import elapsed
from breakeven.storage.side_by_side.ratios import scalings
from breakeven.storage.side_by_side.sides import load_sides
from breakeven.storage.suite_runs.cells import outcomes
from breakeven.storage.suite_runs.groups import suite_changes
from breakeven.storage.terminal import gate
from breakeven.storage.terminal import suites as suite_report
from breakeven.storage.terminal import trends as trend_report
from breakeven.storage.terminal.as_json import (
    checks_json,
    comparison_json,
    explanation_json,
    investigation_json,
)
from breakeven.storage.terminal.compiling import caches_report, compile_report, ladder_report
from breakeven.storage.terminal.correctness import checks_exit_status, correctness_report
from breakeven.storage.terminal.imports import import_text
from breakeven.storage.terminal.layout import wrapped
from breakeven.storage.terminal.lists import list_json, list_table, listed, short_ids, wide_list
from breakeven.storage.terminal.markdown import fenced, summary, write_summary
from breakeven.storage.terminal.report import (
    causes_report,
    explain_report,
    investigation_report,
    report,
    short_report,
    spent_words,
)
from breakeven.storage.terminal.side_by_side import difference_report
from breakeven.storage.words.answer_sentence import answer_words, plan_details
from breakeven.storage.words.compiling import NO_LADDER
from breakeven.storage.words.investigation import issue, remedies
from breakeven.storage.words.issues import has_issue, slow_issue, slower
from breakeven.storage.words.known_causes import known_causes
from breakeven.storage.words.recipe import FURTHER, how_to_use
from breakeven.storage.words.suites import other_conditions

EXAMPLES = PACKAGE / "examples"
HTML = "html"
FINISHED, UNFINISHED, BAD_INPUT, BROKEN, PROVES_NOTHING, REFUSED = range(6)
PARITY = Condition(name="parity")


def work_on_team_store(data_dir: DataDir, options: argparse.Namespace) -> int:
    """Runs `team ACTION`."""
    from breakeven.storage.team.team_actions import run

    return run(data_dir, options, EXAMPLES)


def show(data_dir: DataDir, options: argparse.Namespace) -> int:
    """Prints the results of an experiment or a suite run. An experiment gives the exit
    status 0 unless it is judged: by conditions, or for `run` and `compare`."""
    with open_store(data_dir) as store:
        options.experiment = queries.id_named(store, options.experiment)
        if queries.is_suite_run(store, options.experiment):
            if options.fail_if:
                raise StoreError(
                    "--fail-if takes an experiment; a suite run has an exit status of "
                    "its own (docs/suites.md)"
                )
            return print_suite(store, options)
        spec = queries.experiment_spec(store, options.experiment)
        check_gate(spec, options.fail_if)
        status = PRINTERS[spec.kind.compares](store, options)
        return status if options.judged or options.fail_if else FINISHED


def print_checks(store: Store, options: argparse.Namespace) -> int:
    """Prints whether each backend computes the same tensors as a reference."""
    comparison = compare(store, options.experiment)
    if options.issue:
        return _print_slow_issue(store, comparison)
    spent = spent_words(elapsed(store, options.experiment)[0])
    made = checks(store, options.experiment, comparison.spec)
    missing = [
        f"warning: {warning.words()}"
        for warning in comparison.warnings
        if isinstance(warning, MissingRuns)
    ]
    shown = [correctness_report(comparison.spec, made), *missing, spent]
    text = "\n\n".join(filter(None, shown))
    print(checks_json(options.experiment, made) if options.json else wrapped(text))  # noqa: T201
    if options.markdown:
        write_summary(options.markdown, fenced(text))
    return checks_exit_status(made) or (UNFINISHED if missing else FINISHED)


def _print_slow_issue(store: Store, comparison: Comparison) -> int:
    print(slow_issue(store, comparison))  # noqa: T201
    return 0


def print_comparison(store: Store, options: argparse.Namespace) -> int:
    """Prints the numbers and verdicts of an experiment; with `--fail-if` the met conditions."""
    comparison = compare(store, options.experiment)
    if options.issue:
        return _print_slow_issue(store, comparison)
    spent = spent_words(elapsed(store, options.experiment)[0])
    pairs = cold_and_warm(comparison)
    planned = _planned(comparison, options.plan)
    silent = without_latency(comparison)
    caches = caches_report(pairs, silent, planned.num_steps)
    if options.diff:
        return _print_diff(planned, comparison, store)
    causes = known_causes(store, options.experiment)
    steps = [
        wrapped(causes_report(causes)),
        _investigate_lines(store, comparison),
        _continue_line(comparison, planned, store.data_dir),
        _use_lines(planned, comparison, store),
    ]
    answer, in_words = str(answer_words(planned)), report if options.wide else short_report
    result = _emphasised(wrapped(in_words(comparison, answer)), planned, answer)
    parts = [result, wrapped(caches)]
    parts += [next(filter(None, steps), ""), _further(comparison, store.data_dir)]
    if options.wide:
        parts = [result, *steps[:3]]
        parts += [wrapped(_plan_line(planned, store)), steps[3], wrapped(caches), wrapped(spent)]
    text = "\n\n".join(filter(None, parts))
    in_json = comparison_json(comparison, pairs, planned, causes)
    print(in_json if options.json else text)  # noqa: T201
    _accept(store.data_dir, comparison)
    if options.markdown:
        write_summary(options.markdown, summary(comparison, str(answer_words(planned))))
    if options.fail_if:
        for reason in [*gate.reasons(comparison, options.fail_if), *gate.unfinished(comparison)]:
            print(f"FAIL {reason}", file=sys.stderr if options.json else sys.stdout)
    return exit_status(comparison, options.fail_if)


def _accept(data_dir: DataDir, comparison: Comparison) -> None:
    """Tells the family of an experiment that is over, if something is faster."""
    is_over = all(RunState(result.state).is_final for result in comparison.results)
    if is_over and any(
        result.speed_verdict == "faster" for result in standings(comparison).counted
    ):
        with suppress(OSError):  # On a read-only disk later levels are too small, never too large.
            accept(data_dir, comparison.spec, comparison.experiment_id)


def print_investigation(store: Store, options: argparse.Namespace) -> int:
    """Prints what an investigation has found, or the text of an issue for PyTorch."""
    investigation = load_investigation(store, options.experiment)
    if options.issue:
        print(issue(investigation))  # noqa: T201
    elif options.json:
        print(investigation_json(investigation, remedies(store, investigation)))  # noqa: T201
    else:
        print(wrapped(_investigation_text(store, investigation)))  # noqa: T201
    if options.markdown:
        write_summary(options.markdown, fenced(_investigation_text(store, investigation)))
    if investigation.record.state != RunState.FINISHED or investigation.finding.cause in CUT_SHORT:
        return UNFINISHED
    return (
        FINISHED
        if investigation.finding.cause in (*COMPILER_CAUSES, "own code")
        else PROVES_NOTHING
    )


def _investigation_text(store: Store, investigation: Investigation) -> str:
    spent = spent_words(elapsed(store, investigation.record.experiment_id)[0])
    return "\n\n".join(filter(None, [investigation_report(store, investigation), spent]))


PRINTERS: dict[Compared, Callable[[Store, argparse.Namespace], int]] = {
    "runs": print_comparison,
    "caches": print_comparison,
    "tensors": print_checks,
    "causes": print_investigation,
}
"""The function that prints an experiment and returns the exit status, by what is compared."""


def plan_investigation(data_dir: DataDir, options: argparse.Namespace) -> int:
    """Writes the experiment that finds the cause of a run's fault; `breakeven investigate` queues
    it."""
    with open_store(data_dir) as store:
        spec = next_experiment(store, options.run, options.budget)
    options.output.write_text(spec.to_json())
    return 0


def _planned(comparison: Comparison, length: Length | None) -> Plan:
    """The plan for a length, or else for a training's or search's own steps, or for any length."""
    if length is None:
        return own_plan(comparison)
    return plan(comparison, steps_of(length, comparison), length.starts)


def _emphasised(text: str, planned: Plan, answer: str) -> str:
    """The wrapped text, which begins with the answer; on a terminal this is bold, in red if
    there is nothing to recommend from."""
    begin = wrapped(answer)
    if not answer or not sys.stdout.isatty() or "NO_COLOR" in os.environ:
        return text
    is_bad = planned.answer is not None and planned.answer.kind.startswith("nothing ")
    return f"\x1b[{'1;31' if is_bad else '1'}m{begin}\x1b[0m{text.removeprefix(begin)}"


def _investigate_lines(store: Store, comparison: Comparison) -> str:
    """The command that finds the cause, for each run that failed or learned something else."""
    suspected = {result.run_id for result in suspects(store, comparison)}
    faults = {
        result.run_id: fault_to_find(store, result.run_id)
        for result in comparison.results
        if result.role == "backend"
        and (result.state != RunState.FINISHED or result.run_id in suspected)
    }
    return "\n".join(
        f"to find the cause: breakeven investigate {run_id}{store.data_dir.option}"
        for run_id, fault in faults.items()
        if fault is not None and fault.kind != "slow"
    )


def _further(comparison: Comparison, data_dir: DataDir) -> str:
    """The commands that print what the short result leaves out."""
    name = f"{short_ids([comparison.experiment_id])[0]}{data_dir.option}"
    num_minor = len(comparison.minor_warnings)
    notes = f" and {num_minor} note{'s' * (num_minor > 1)}" if num_minor else ""
    return (
        f"all numbers{notes}: breakeven show {name} --wide\n"
        f"where the time goes: breakeven explain {name}"
    )


def _continue_line(comparison: Comparison, planned: Plan, data_dir: DataDir) -> str:
    """The command that times it further, if that may decide the plan, or why it cannot be."""
    run = data_dir.run_dir(comparison.results[0].run_id)
    may_decide = planned.is_open and (comparison.unsure or comparison.lacks_turns)
    is_over = all(RunState(result.state).is_final for result in comparison.results)
    if not may_decide or not is_over or not run.spec_file.exists():
        return ""
    if why := why_not_continued(comparison.spec):
        instead = instead_of_continuing(comparison.spec, run)
        return wrapped(f"it cannot be continued: {why}. {instead}")
    steps, starts = planned.num_steps, planned.starts
    length = f" --plan '{write_length(steps, starts)}'" if steps else ""
    more = f"{comparison.experiment_id} --budget 10m{length}{data_dir.option}"
    return f"to time it further: breakeven resume {more}"


def _use_lines(planned: Plan, comparison: Comparison, store: Store) -> str:
    """How to train as the plan recommends. The diff is not indented: `git apply` reads it."""
    use = how_to_use(store, comparison, planned)
    if use is None:
        return ""
    further = FURTHER if use.diff and use.lines else ""
    parts = [
        wrapped(use.intro),
        textwrap.indent(use.command, "    "),
        use.diff,
        further,
        textwrap.indent(use.lines, "    "),
    ]
    return "\n".join(part.rstrip("\n") for part in parts if part)


def _print_diff(planned: Plan, comparison: Comparison, store: Store) -> int:
    """Prints the change of the script and nothing else, because `git apply` follows every text
    that looks like a diff."""
    use = how_to_use(store, comparison, planned)
    if use is None or not use.diff:
        raise StoreError(f"{comparison.experiment_id} has no script that a diff changes")
    print(use.diff, end="")  # noqa: T201
    return 0


def _plan_line(planned: Plan, store: Store) -> str:
    """What the answer leaves out: doubts, costs, other lengths."""
    details = plan_details(planned, read_settings(store.data_dir.path).prices)
    return f"plan: {details}" if details else ""


def print_explanation(data_dir: DataDir, options: argparse.Namespace) -> int:
    """Prints why each backend is faster or slower; for a ladder, which stage is the cause."""
    with open_store(data_dir) as store:
        options.experiment = queries.id_named(store, options.experiment)
        if options.ladder:
            climbed = find_ladder(store, options.experiment)
            if climbed is None:
                raise StoreError(NO_LADDER.format(options.experiment))
            print(wrapped(ladder_report(climbed)))  # noqa: T201
            if slower(compare(store, options.experiment)) is not None:
                print(f"\n{has_issue(options.experiment, data_dir)}")  # noqa: T201
            return 0
        explanation = explain(store, options.experiment)
    print(explanation_json(explanation) if options.json else wrapped(explain_report(explanation)))  # noqa: T201
    return 0


def print_list(data_dir: DataDir, options: argparse.Namespace) -> int:
    """Prints experiments as a table or as JSON."""
    with open_store(data_dir) as store:
        rows = listed(store, read_filter(options))
    in_words = wide_list if options.wide else list_table
    print(list_json(rows) if options.json else in_words(rows))  # noqa: T201
    lack = lacks_room(data_dir.runs)
    if lack and rows["state"].isin(ACTIVE_EXPERIMENTS).any():
        print(f"what runs or is queued waits for disk space: {lack}", file=sys.stderr)  # noqa: T201
    return 0


def print_trend(data_dir: DataDir, options: argparse.Namespace) -> int:
    """Prints numbers over time, and why a nightly job fails."""
    with open_store(data_dir) as store:
        wanted = read_filter(options)
        rows = backend_rows(store, listed(store, wanted), wanted.facets.get("environment", ()))
    if options.fail_if:  # A gate judges only experiments of this installation, no examples.
        rows = rows[rows["origin"] != "example"]
    series = trends(rows, options.of)
    print(trend_report.as_json(series) if options.json else wrapped(trend_report.report(series)))  # noqa: T201
    alone = failures_without_series(rows, series)
    refused = trend_report.reasons(series, options.fail_if, options.within, alone)
    unjudged = trend_report.unjudged(series, options.fail_if)
    for reason in filter(None, [*refused, unjudged]):
        print(f"FAIL {reason}", file=sys.stderr if options.json else sys.stdout)
    if refused:
        return REFUSED
    return UNFINISHED if unjudged else FINISHED


def print_difference(data_dir: DataDir, options: argparse.Namespace) -> int:
    """Prints experiments compared with the first one; for two runs, the compiler differences."""
    if all("." in side for side in options.sides):
        return print_compile_difference(data_dir, options.sides)
    with open_store(data_dir) as store:
        sides = load_sides(store, [queries.id_named(store, side) for side in options.sides])
        if len(sides) < 2:
            raise StoreError("a difference needs two experiments at least")
        print(wrapped(difference_report(sides, scalings(sides))))  # noqa: T201
    return 0


def print_compile_difference(data_dir: DataDir, runs: Sequence[str]) -> int:
    """Prints the compiler differences between two runs."""
    if len(runs) != 2:
        raise StoreError("what the compiler did is compared of two runs, EXPERIMENT.LABEL each")
    with open_store(data_dir) as store:
        first, second = (load_compiled(store, run) for run in runs)
        kept = [kept_of(store, run.record) for run in (first, second)]
    code = [name for name, _ in code_difference(*kept)] if all(kept) else []
    print(wrapped(compile_report(first, second, code)))  # noqa: T201
    return 0


def print_suite(store: Store, options: argparse.Namespace) -> int:
    """Prints the results of a suite run, and the changes since an earlier one."""
    results = outcomes(store, options.experiment)
    if options.against:
        options.against = queries.id_named(store, options.against)
    earlier = options.against and outcomes(store, options.against)
    runs = queries.list_suite_runs(store)
    text = suite_report.suite_report(options.experiment, results)
    compared = suite_changes(results, earlier) if earlier else None
    if compared is not None:
        conditions = other_conditions(runs, options.experiment, options.against)
        text += f"\n\n{suite_report.against_report(options.against, compared, conditions)}"
    print(wrapped(text))  # noqa: T201
    if options.markdown:
        write_summary(options.markdown, fenced(text))
    return suite_report.exit_status(results, compared)


def export(data_dir: DataDir, options: argparse.Namespace) -> int:
    """Writes a report with whole experiments, or an experiment or a suite run in a format of
    PyTorch's benchmarks."""
    if options.format == HTML:
        return write_report(data_dir, options)
    if len(options.experiments) > 1:
        raise StoreError(f"--format {options.format} takes one experiment or suite run")
    with open_store(data_dir) as store:
        experiment = queries.id_named(store, options.experiments[0])
        text = FORMATS[options.format](store, experiment)
    options.output.write_text(text)
    if options.format in NOTES:
        print(f"note: {NOTES[options.format]}", file=sys.stderr)  # noqa: T201
    return 0


def write_report(data_dir: DataDir, options: argparse.Namespace) -> int:
    """Writes whole experiments into one HTML file."""
    if options.output.suffix.lower() != ".html":
        hint = "must end in .html; for a PDF, open the report in a browser and print it"
        print(f"--output {options.output}: {hint}", file=sys.stderr)  # noqa: T201
        return BAD_INPUT
    # `views` draws the charts, and `storage` must not import `views`.
    command = [
        sys.executable,
        "-m",
        "breakeven.views.report",
        *options.experiments,
        "--output",
        str(options.output.resolve()),
        "--data-folder",
        str(data_dir.path),
    ]
    return subprocess.run(command, cwd=PROJECT_ROOT).returncode


def import_files(data_dir: DataDir, options: argparse.Namespace) -> int:
    """Imports reports, archives and results."""
    for file in options.files:
        print(wrapped(import_text(import_any(data_dir, file, EXAMPLES))))  # noqa: T201
    return 0


def exit_status(comparison: Comparison, conditions: Sequence[Condition] = ()) -> int:
    """What docs/suites.md says of `run`, `compare` and `show`. Without conditions parity is judged,
    where losses are compared."""
    judged = conditions or [PARITY] * comparison.spec.compares_losses
    if PARITY in judged and _breaks_parity(comparison):
        return BROKEN
    if gate.reasons(comparison, [condition for condition in judged if condition != PARITY]):
        return REFUSED
    if gate.unfinished(comparison):
        return UNFINISHED
    return PROVES_NOTHING if gate.reasons(comparison, judged) else FINISHED


def _breaks_parity(comparison: Comparison) -> bool:
    parities = [result.parity for result in comparison.results]
    parities += [pair.parity for pair in comparison.across]
    return any(parity is not None and parity.is_wrong for parity in parities)


def open_store(data_dir: DataDir) -> Store:
    """Opens a store with all run folders: the team's store, if the settings name one; else the data
    folder's database, or a database in memory if that is locked or cannot be written."""
    with ExitStack() as opened:
        try:
            store = team.open_store(data_dir, EXAMPLES)
            opened.callback(store.close)
            store.ingest_all()
        except TeamStoreUnusable:
            raise
        except StoreError:
            return Store.in_memory(data_dir, EXAMPLES)
        opened.pop_all()
        return store
