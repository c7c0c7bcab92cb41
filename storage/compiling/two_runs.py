"""Compares the compiler's work and its stored outputs in two runs, of the same experiment or of
two: graphs, generated code, torch's trace.

Compile times are shown separately and are no difference, because each was measured only once.
"""

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from difflib import SequenceMatcher, unified_diff
from pathlib import PurePath

import pandas as pd

from breakeven.runner.errors import RunnerError
from breakeven.runner.protocol.run_dir import RunDir
from breakeven.runner.specs.arm_fields import WHICH_RUN
from breakeven.storage import queries
from breakeven.storage.comparison.evidence import RESUMED
from breakeven.storage.compiling.timeline import PHASES, exclusive_phase_seconds
from breakeven.storage.index.store import Store
from breakeven.storage.numbers.formats import DASH
from breakeven.storage.queries import RunRecord
from breakeven.storage.side_by_side.sides import (
    Differing,
    environment_of,
    facts_of,
    settings_of,
    unequal,
)

LINE = re.compile(r"(?P<file>.*):(?P<line>\d+)")
Sources = Mapping[str, Sequence[str]]
"""The user's own files as a run executed them: path to lines."""
NEW = "\N{NULL}"
"""Prefix of a place that the other run does not have."""
RESULT_KINDS = ("graph break", "recompilation", "failure", "frame", "graphs", "cache", "kernel")
"""Kinds of the compiler's results; the other kinds are its inputs."""
MAX_KERNELS = 40
"""Number of different kernels that are shown, the slowest ones."""
MAX_SOURCE_BYTES = 1_000_000
ADDRESS = re.compile(r"0x[0-9a-fA-F]+|\b\d+/\d+(_\d+)?\b")
"""Parts of a reason that differ in every process: addresses, ids of compilations."""
Placed = Mapping[tuple[str, str], str]
"""Line and event to a description of its amount."""


class LineMap:
    """Maps places (`file:line` texts) of the other run to places of the first run."""

    def __init__(self, first: Sources, other: Sources) -> None:
        self._files = dict(_pairs(first, other))
        self._lines = {
            there: _same_lines(first[here], other[there]) for there, here in self._files.items()
        }

    def knows(self, place: str) -> bool:
        """Whether both runs have a copy of the file of a place."""
        match = LINE.fullmatch(place)
        return match is not None and self._file(match["file"]) is not None

    def __call__(self, place: str) -> str:
        """The place in the first run; a line that only the other run has gets the prefix `NEW`."""
        match = LINE.fullmatch(place)
        file = None if match is None else self._file(match["file"])
        if match is None or file is None:
            return place
        line = self._lines[file].get(int(match["line"]))
        return f"{NEW}{place}" if line is None else f"{self._files[file]}:{line}"

    def _file(self, named: str) -> str | None:
        """The copied file of a place, which may have only the name of the file."""
        name = PurePath(named).name
        return next(
            (file for file in self._files if file == named or PurePath(file).name == name), None
        )


def _pairs(first: Sources, other: Sources) -> list[tuple[str, str]]:
    """Pairs of a file of the other run and one of the first: files of equal names, then the rest in
    order."""
    names = {PurePath(file).name: file for file in first}
    pairs = [(file, names[PurePath(file).name]) for file in other if PurePath(file).name in names]
    taken_there, taken_here = {there for there, _ in pairs}, {here for _, here in pairs}
    rest_there = [file for file in other if file not in taken_there]
    rest_here = [file for file in first if file not in taken_here]
    return pairs + list(zip(rest_there, rest_here, strict=False))


def _same_lines(first: Sequence[str], other: Sequence[str]) -> dict[int, int]:
    """Line of the other text to the equal line of the first text, both counted from 1."""
    blocks = SequenceMatcher(None, other, first, autojunk=False).get_matching_blocks()
    return {
        block.a + offset + 1: block.b + offset + 1
        for block in blocks
        for offset in range(block.size)
    }


@dataclass(frozen=True, kw_only=True)
class CompiledRun:
    """The compiler's data of one run, from training in its first process."""

    record: RunRecord
    breaks: pd.DataFrame
    frames: pd.DataFrame
    caches: pd.DataFrame
    kernels: pd.DataFrame
    """Kernels of a profiled step (on the CPU, operators); empty without a profile."""
    sources: Mapping[str, list[str]]

    @property
    def title(self) -> str:
        return f"{self.record.experiment_id}.{self.record.arm.label}"


def load_compiled(store: Store, run_id: str) -> CompiledRun:
    """The compiler's data of a run; raises `NotInStore`."""
    record = queries.run_record(store, run_id)

    def of_run(frame: pd.DataFrame) -> pd.DataFrame:
        return frame[frame["run_id"] == run_id]

    def of_first_process(frame: pd.DataFrame) -> pd.DataFrame:
        return frame[(frame["phase"] == "training") & (frame["attempt"] == 1)]

    experiment_id = record.experiment_id
    caches = of_run(queries.compile_caches(store, experiment_id))
    return CompiledRun(
        record=record,
        breaks=of_first_process(of_run(queries.graph_breaks(store, experiment_id))),
        frames=of_first_process(of_run(queries.compile_metrics(store, experiment_id))),
        caches=caches[~caches["starts_later"].to_numpy(bool)],
        kernels=of_run(queries.profile_kernels(store, experiment_id)),
        sources=_sources(record, of_run(queries.sources(store, experiment_id))),
    )


def compile_difference(first: CompiledRun, other: CompiledRun) -> list[Differing]:
    """All differences: the compiler's results first, then its inputs."""
    moved = LineMap(first.sources, other.sources)
    by_kind = [
        ("graph break", *_lined_up(_breaks(first), _breaks(other), moved)),
        ("recompilation", *_lined_up(_recompilations(first), _recompilations(other), moved)),
        ("failure", *_lined_up(_failures(first), _failures(other), moved)),
        ("graphs", _totals(first), _totals(other)),
        ("frame", *_lined_up(_frames(first), _frames(other), moved, in_order=True)),
        ("cache", _caches(first), _caches(other)),
        ("kernel", *_kernels(first, other)),
        ("backend", _backend(first), _backend(other)),
        ("setting", settings_of(first.record.spec), settings_of(other.record.spec)),
        ("environment", _environment(first), _environment(other)),
        ("data", facts_of(first.record.workload), facts_of(other.record.workload)),
    ]
    return [difference for kind, *both in by_kind for difference in unequal(kind, both)]


def phases(first: CompiledRun, other: CompiledRun) -> pd.DataFrame:
    """phase, run, other: seconds of each phase without its inner phases, over all frames."""
    seconds = [exclusive_phase_seconds(run.frames).sum() for run in (first, other)]
    return pd.DataFrame(
        {
            "phase": list(PHASES),
            "run": seconds[0].to_numpy(dtype=float),
            "other": seconds[1].to_numpy(dtype=float),
        }
    )


def _breaks(run: CompiledRun) -> Placed:
    """Distinct graph breaks, without counts: the counts depend on the number of compilations."""
    return {
        (row.location or DASH, _first_line(row.reason)): "breaks the graph"
        for row in run.breaks.itertuples()
    }


def _recompilations(run: CompiledRun) -> Placed:
    recompiled = run.frames[run.frames["recompile_reason"].notna()]
    counts = Counter(
        (_place(row), _constant(row.recompile_reason)) for row in recompiled.itertuples()
    )
    return {key: f"{count:,} x" for key, count in counts.items()}


def _failures(run: CompiledRun) -> Placed:
    failed = run.frames[run.frames["failure"].notna()]
    return {(_place(row), _first_line(row.failure)): "fails" for row in failed.itertuples()}


def _frames(run: CompiledRun) -> Placed:
    """Compilations of each function, including recompilations."""
    names = [RESUMED.sub(r"rest of \1", str(name)) for name in run.frames["function"]]
    frames = run.frames.assign(function=names)
    frames = frames[frames["line"].notna()]
    sizes = {}
    for (file, line, name), compilations in frames.groupby(
        ["file", "line", "function"], sort=False
    ):
        size = (
            f"compiled {len(compilations):,} x, {compilations['graph_ops'].sum():,.0f} operations, "
            f"{compilations['guards'].sum():,.0f} guards"
        )
        sizes[f"{file}:{line:.0f}", str(name)] = size
    return sizes


def _totals(run: CompiledRun) -> Mapping[str, str]:
    if run.frames.empty:
        return {}
    named = run.frames[run.frames["function"].notna()]
    return {
        "compiled frames": f"{len(named):,}",
        "graphs": f"{(named['graph_ops'].fillna(0) > 0).sum():,}",
        "operations in graphs": f"{named['graph_ops'].sum():,.0f}",
        "guards": f"{named['guards'].sum():,.0f}",
        "distinct graph breaks": f"{len(_breaks(run)):,}",
    }


def _caches(run: CompiledRun) -> Mapping[str, str]:
    return {
        row.layer: f"{row.hits:,.0f} hits, {row.misses:,.0f} misses, {row.bypasses:,.0f} bypassed"
        for row in run.caches.itertuples()
    }


def _kernels(first: CompiledRun, other: CompiledRun) -> tuple[Mapping[str, str], Mapping[str, str]]:
    """Calls per step of each different kernel, if both runs were profiled."""
    if first.kernels.empty or other.kernels.empty:
        return {}, {}
    calls = [_calls(run.kernels) for run in (first, other)]
    seconds = pd.concat([first.kernels, other.kernels]).groupby("name")["seconds"].max()
    differing = [
        name
        for name in seconds.sort_values(ascending=False).index
        if calls[0].get(name) != calls[1].get(name)
    ]
    first_calls, other_calls = (
        {name: by_name[name] for name in differing[:MAX_KERNELS] if name in by_name}
        for by_name in calls
    )
    return first_calls, other_calls


def _calls(kernels: pd.DataFrame) -> dict[str, str]:
    """Median calls over the profiled turns; a kernel of several classes counts as one."""
    by_turn = kernels.groupby(["name", "round"])["calls"].sum()
    return {
        str(name): f"{calls:.3g} x a step"
        for name, calls in by_turn.groupby("name").median().items()
    }


def _backend(run: CompiledRun) -> Mapping[str, str]:
    arm = asdict(run.record.arm)
    settings = {name: value for name, value in arm.items() if name not in WHICH_RUN}
    return facts_of(settings)


def _environment(run: CompiledRun) -> Mapping[str, str]:
    return environment_of(run.record.environment, run.record.experiment_id)


def _lined_up(
    first: Placed, other: Placed, moved: LineMap, in_order: bool = False
) -> tuple[dict[str, str], dict[str, str]]:
    """Gives both sides the same names for the same lines, even if lines above have changed.

    In files without copies, such as those of another library version, remaining places are paired
    in the order of lines if their events are equal. `in_order`: pairs all remaining places this
    way, for functions that became longer.
    """
    keys = {(moved(place), what): (place, what) for place, what in other}
    paired = {keys[key]: key for key in keys if key in first}
    left_here = sorted(key for key in first if key not in paired.values())
    for key in sorted(key for key in other if key not in paired):
        if moved.knows(key[0]) and not in_order:
            continue
        same = [
            candidate
            for candidate in left_here
            if candidate[1] == key[1] and (in_order or _file(candidate[0]) == _file(key[0]))
        ]
        if same:
            paired[key] = same[0]
            left_here.remove(same[0])
    names = {key: _named(key) for key in first}
    first_values = {names[key]: value for key, value in first.items()}
    other_values = {
        names[paired[key]] if key in paired else _beside(_named(key), first_values): value
        for key, value in other.items()
    }
    return first_values, other_values


def _beside(name: str, taken: Mapping[str, str]) -> str:
    """A name for a new entry that differs from all names of the other run."""
    return f"{name} (new)" if name in taken else name


def _named(key: tuple[str, str]) -> str:
    return f"{key[0]}: {key[1]}"


def _file(place: str) -> str:
    return place.rpartition(":")[0]


def _place(row) -> str:  # type: ignore[no-untyped-def]
    return f"{row.file}:{row.line:.0f}" if pd.notna(row.line) else str(row.file or DASH)


def _first_line(reason: str | None) -> str:
    return _constant((reason or DASH).strip().split("\n")[0])


def _constant(reason: str) -> str:
    return ADDRESS.sub("...", reason)


def _sources(record: RunRecord, kept: pd.DataFrame) -> dict[str, list[str]]:
    """The run's readable source files; of several versions the first, which was compiled."""
    lines_by_file: dict[str, list[str]] = {}
    for row in kept.itertuples():
        try:
            with RunDir(record.folder).open(str(row.file)) as copy:
                text = copy.read(MAX_SOURCE_BYTES).decode(errors="replace")
        except (RunnerError, OSError):
            continue
        lines_by_file.setdefault(str(row.source).rpartition(":")[0], text.splitlines())
    return lines_by_file


TRACE = "trace"
MAX_COMPARED_BYTES = 2_000_000
MAX_COMPARED_LINES = 20_000
"""Limit of a file: a comparison takes the square of the number of lines in the worst case."""
WORD = re.compile(r"[^\s'\"]+")
CACHE_FOLDER, TORCHS_OWN = "/compile_cache/", "/tmp/torchinductor_"
"""Parts of paths of compile caches, which differ in every run."""


@dataclass(frozen=True, kw_only=True)
class KeptFile:
    """One file of a run's artifacts."""

    folder: RunDir
    what: str
    compile_id: str | None
    file: str
    num_bytes: int | None
    """None if the file grew after its record was written."""

    @property
    def name(self) -> str:
        return self.file.rpartition("/")[2]

    def read(self, most: int) -> bytes:
        """The first `most` bytes; raises `InvalidRunFolder` or `OSError` if the folder has no such
        plain file."""
        with self.folder.open(self.file) as opened:
            return opened.read(most)


def kept_of(store: Store, record: RunRecord) -> list[KeptFile]:
    """The stored files of a run in the order of writing; the last one of a name counts."""
    kept = queries.kept_files(store, record.experiment_id)
    of_run = kept[kept["run_id"] == record.run_id].drop_duplicates("file", keep="last")
    folder = RunDir(record.folder)
    return [
        KeptFile(
            folder=folder,
            what=str(row.what),
            compile_id=None if pd.isna(row.compile_id) else str(row.compile_id),
            file=str(row.file),
            num_bytes=None if pd.isna(row.bytes) else int(row.bytes),
        )
        for row in of_run.itertuples()
    ]


def code_difference(first: Sequence[KeptFile], other: Sequence[KeptFile]) -> list[tuple[str, str]]:
    """Name and unified diff of each file that differs between two runs; a file of only one run
    differs in all lines. Raises the errors of `KeptFile.read`."""
    first_files = {file.name: file for file in first if file.what != TRACE}
    other_files = {file.name: file for file in other if file.what != TRACE}
    differences = []
    for name in dict.fromkeys([*first_files, *other_files]):
        before, after = _lines(first_files.get(name)), _lines(other_files.get(name))
        lines = unified_diff(before, after, "this run", "other run", lineterm="", n=2)
        difference = "\n".join(lines)
        if difference:
            differences.append((name, difference))
    return differences


def _lines(file: KeptFile | None) -> list[str]:
    if file is None:
        return []
    text = file.read(MAX_COMPARED_BYTES).decode(errors="replace")
    return WORD.sub(_without_cache, text).splitlines()[:MAX_COMPARED_LINES]


def _without_cache(word: re.Match[str]) -> str:
    """Replaces a path in a compile cache by a constant. It scans each word only once: texts are
    untrusted, and a regular expression for the path would retry at every slash of a long one."""
    text = word[0]
    at = text.find("/") if CACHE_FOLDER in text else text.find(TORCHS_OWN)
    return text if at < 0 else f"{text[:at]}<cache>"
