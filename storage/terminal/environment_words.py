"""The comparison of environments in sentences, for terminal and pages."""

from collections.abc import Callable, Iterator, Sequence
from itertools import groupby
from operator import attrgetter

from breakeven.runner.texts import printable
from breakeven.storage.comparison.environments import Across
from breakeven.storage.numbers.formats import format_verdict
from breakeven.storage.numbers.metrics import METRICS
from breakeven.storage.statistics.speedups import ratio_text
from breakeven.storage.terminal.parity_words import parity_text, parity_words

NO_COMPILER = "without a compiler"


def by_environment(found: Sequence[Across]) -> Iterator[tuple[str, list[Across]]]:
    """The runs of each further environment, backends first."""
    for name, runs in groupby(found, key=attrgetter("environment")):
        yield name, sorted(runs, key=lambda one: one.backend is None)


def environment_headline(found: Sequence[Across], *, is_inference: bool = False) -> str:
    """A sentence or two for each further environment; empty without one."""
    does = "answers" if is_inference else "trains"
    return " ".join(_headline(runs, does) for _, runs in by_environment(found))


def environment_lines(found: Sequence[Across]) -> list[str]:
    """For each further environment what differs in it, then a line for each run."""
    lines = []
    for name, runs in by_environment(found):
        first = runs[0].first_environment
        changes = [
            f"{package} {_plain(runs[0].versions[package])} instead of "
            f"{_plain(runs[0].first_versions[package])}"
            for package in runs[0].versions
        ]
        what = ", ".join(changes) or "all recorded versions are the same"
        lines.append(f"{name} beside {first}: {what}")
        lines += [f"  {_line(one)}" for one in runs]
    return lines


def _headline(runs: Sequence[Across], does: str) -> str:
    timed = [one for one in runs if one.speedup is not None]
    name, first = runs[0].environment, runs[0].first_environment
    if not timed:
        return f"{name} cannot be compared with {first}: no round was timed in both."
    speeds = [f"{ratio_text(one.speedup)} {_of(first, number)}{_under(one)}"
              for number, one in enumerate(timed)]  # fmt: skip
    compiled = max(timed, key=lambda one: one.first_compile_seconds or 0.0)
    head = f"{name} {does} this at {', '.join(speeds)}"
    if text := _compiling(compiled):
        head += f"; {_under(compiled)} {text}"
    return f"{head}. {_outcome(runs)}"


def _of(first: str, number: int) -> str:
    return f"the speed of {first} " if number == 0 else ""


def _under(one: Across) -> str:
    return NO_COMPILER if one.backend is None else f"under {one.backend}"


def _compiling(one: Across) -> str | None:
    if one.compile_seconds is None or one.first_compile_seconds is None:
        return None
    seconds = METRICS["compile_seconds"].format
    return f"compiling takes {_instead(seconds, one.compile_seconds, one.first_compile_seconds)}"


def _instead(written: Callable[[float], str], value: float, first: float) -> str:
    """Two numbers; one where both read the same."""
    if written(value) == written(first):
        return f"{written(value)} in both"
    return f"{written(value)} instead of {written(first)}"


def _outcome(runs: Sequence[Across]) -> str:
    """What is lost by changing to the environment, or why that is not known."""
    name = runs[0].environment
    broken = [one for one in runs if one.parity is not None and one.parity.verdict == "broken"]
    slower = [one for one in runs if one.verdict == "slower"]
    if broken or slower:
        losses = [f"{_under(one)} it computes something else" for one in broken]
        losses += [f"{_under(one)} it is slower" for one in slower if one not in broken]
        return f"{_begin(_and(losses))}."
    unsure = [_under(one) for one in runs if one.verdict not in ("faster", "same")]
    unknown = [_under(one) for one in runs if one.parity and one.parity.verdict != "holds"]
    if not unsure and not unknown:
        return f"Nothing is lost with {name}."
    doubts = [f"{_and(unsure)} it is open whether it is as fast"] if unsure else []
    doubts += [f"{_and(unknown)} it is open whether it learns the same"] if unknown else []
    return f"{_begin(_and(doubts))}."


def _line(one: Across) -> str:
    parts = [f"{ratio_text(one.speedup)}, {format_verdict(one.verdict or 'unsure')}"]
    parts += [text for text in [_compiling(one), _memory(one)] if text]
    if one.parity is not None:
        parts.append(f"parity: {parity_text(one.parity)}; {parity_words(one.parity)}")
    return f"{one.backend or NO_COMPILER}: {'; '.join(parts)}"


def _memory(one: Across) -> str | None:
    if one.peak_memory_bytes is None or one.first_peak_memory_bytes is None:
        return None
    size: Callable[[float], str] = METRICS["peak_memory_bytes"].format
    return f"memory {_instead(size, one.peak_memory_bytes, one.first_peak_memory_bytes)}"


def _plain(version: str | None) -> str:
    return "none" if version is None else printable(version)


def _and(texts: Sequence[str]) -> str:
    *first, last = texts
    return f"{', '.join(first)} and {last}" if first else last


def _begin(text: str) -> str:
    return text[:1].upper() + text[1:]
