"""The comparison of environments in sentences, for terminal and pages."""

from collections.abc import Callable, Iterator, Sequence
from itertools import groupby
from operator import attrgetter

from breakeven.runner.texts import capital, listed, printable
from breakeven.storage.comparison.results import Across, Comparison
from breakeven.storage.numbers.formats import format_verdict
from breakeven.storage.numbers.metrics import METRICS
from breakeven.storage.statistics.speedups import ratio_text
from breakeven.storage.words.parity import parity_text, parity_words

NO_COMPILER = "without a compiler"


def by_environment(across: Sequence[Across]) -> Iterator[tuple[str, list[Across]]]:
    """The runs of each further environment, backends first."""
    for name, runs in groupby(across, key=attrgetter("environment")):
        yield name, sorted(runs, key=lambda run: run.backend is None)


def environment_sentences(comparison: Comparison) -> list[str]:
    """A sentence or two for each further environment."""
    does = "answers" if comparison.spec.is_inference else "trains"
    return [_headline(runs, does) for _, runs in by_environment(comparison.across)]


def environment_lines(across: Sequence[Across]) -> list[str]:
    """For each further environment what differs in it, then a line for each run."""
    lines = []
    for name, runs in by_environment(across):
        lines.append(f"{name} beside {runs[0].first_environment}: {version_words(runs[0])}")
        lines += [f"  {_line(run)}" for run in runs]
    return lines


def version_words(run: Across) -> str:
    """The versions that differ between the two environments of a run."""
    if run.versions is None or run.first_versions is None:
        return "the versions of one of them are not known yet"
    changes = [
        f"{package} {_plain(run.versions[package])} instead of "
        f"{_plain(run.first_versions[package])}"
        for package in run.versions
    ]
    return ", ".join(changes) or "all recorded versions are the same"


def speed_words(run: Across) -> str:
    return f"{ratio_text(run.speedup)}, {format_verdict(run.verdict or 'unsure')}"


def compile_words(run: Across) -> str | None:
    """The compile latency in both environments; None if one is unknown."""
    seconds = METRICS["compile_seconds"].format
    return _both(seconds, run.compile_seconds, run.first_compile_seconds)


def memory_words(run: Across) -> str | None:
    """The memory needed in both environments; None if one is unknown."""
    size = METRICS["peak_memory_bytes"].format
    return _both(size, run.peak_memory_bytes, run.first_peak_memory_bytes)


def _headline(runs: Sequence[Across], does: str) -> str:
    timed = [run for run in runs if run.speedup is not None]
    name, first = runs[0].environment, runs[0].first_environment
    if not timed:
        return f"{name} cannot be compared with {first}: no round was timed in both."
    speeds = [
        f"{ratio_text(run.speedup)} {_of(first, number)}{_under(run)}"
        for number, run in enumerate(timed)
    ]
    compiled = max(timed, key=lambda run: run.first_compile_seconds or 0.0)
    head = f"{name} {does} this at {', '.join(speeds)}"
    if text := compile_words(compiled):
        head += f"; {_under(compiled)} compiling takes {text}"
    return f"{head}. {_outcome(runs)}"


def _of(first: str, number: int) -> str:
    return f"the speed of {first} " if number == 0 else ""


def _under(run: Across) -> str:
    return NO_COMPILER if run.backend is None else f"under {run.backend}"


def _both(written: Callable[[float], str], value: float | None, first: float | None) -> str | None:
    """Two numbers; one where both read the same. None if one is unknown."""
    if value is None or first is None:
        return None
    if written(value) == written(first):
        return f"{written(value)} in both"
    return f"{written(value)} instead of {written(first)}"


def _outcome(runs: Sequence[Across]) -> str:
    """What is lost by changing to the environment, or why that is not known."""
    name = runs[0].environment
    broken = [run for run in runs if run.parity is not None and run.parity.is_wrong]
    slower = [run for run in runs if run.verdict == "slower"]
    if broken or slower:
        losses = [f"{_under(run)} it computes something else" for run in broken]
        losses += [f"{_under(run)} it is slower" for run in slower if run not in broken]
        return f"{capital(listed(losses))}."
    unsure = [_under(run) for run in runs if run.verdict not in ("faster", "same")]
    unknown = [_under(run) for run in runs if run.parity and not run.parity.is_good]
    if not unsure and not unknown:
        return f"Nothing is lost with {name}."
    doubts = [f"{_where(unsure, runs)}it is open whether it is as fast"] if unsure else []
    doubts += [f"{_where(unknown, runs)}it is open whether it learns the same"] if unknown else []
    return f"{capital(listed(doubts))}."


def _where(under: Sequence[str], runs: Sequence[Across]) -> str:
    """In which runs; empty for all of several."""
    return "" if 1 < len(under) == len(runs) else f"{listed(under)} "


def _line(run: Across) -> str:
    parts = [speed_words(run)]
    if text := compile_words(run):
        parts.append(f"compiling takes {text}")
    if text := memory_words(run):
        parts.append(f"memory {text}")
    if run.parity is not None:
        parts.append(f"parity: {parity_text(run.parity)}; {parity_words(run.parity)}")
    return f"{run.backend or NO_COMPILER}: {'; '.join(parts)}"


def _plain(version: str | None) -> str:
    return "none" if version is None else printable(version)
