"""Records the compiler's work while it happens. On request, saves its graphs and generated code,
and names torch's trace in the journal.

Graphs, code and trace come from torch's structured log, which costs time during compilation. So
nothing listens unless the specification requires this. The trace is torch's own file
(`TORCH_TRACE`), for `tlparse` and other tools.
"""

import logging
import re
import sysconfig
import threading
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import wraps
from pathlib import Path
from traceback import FrameSummary
from typing import Any, TypedDict, TypeVar, cast

import torch
import torch._dynamo
import torch._inductor.config
import torch._logging._internal
from torch._dynamo import utils as dynamo_utils
from torch._dynamo.callback import callback_handler
from torch._dynamo.utils import counters
from torch._guards import CompileContext
from torch._inductor.runtime.cache_dir_utils import triton_cache_dir

from breakeven.runner.project import PACKAGE, PROJECT_ROOT
from breakeven.runner.protocol.run_dir import RunDir
from breakeven.runner.specs.experiment import ExperimentSpec
from breakeven.runner.worker.compiler.refusals import Refusals, operator_in
from breakeven.runner.worker.event_log import EventLog

RUNNER = f"{PACKAGE / 'runner'}/"
TORCH = f"{Path(torch.__file__).parent}/"
PACKAGES = f"{Path(torch.__file__).parent.parent}/"
STANDARD_LIBRARY = f"{sysconfig.get_path('stdlib')}/"
COUNTERS = {
    "fx_graph": ("inductor", "fxgraph_cache_hit", "fxgraph_cache_miss", "fxgraph_cache_bypass"),
    "aot_autograd": (
        "aot_autograd",
        "autograd_cache_hit",
        "autograd_cache_miss",
        "autograd_cache_bypass",
    ),
}
"""For each layer, the group and names of torch's counters of hits, misses and bypasses."""
CAME_COMPILED = "triton_bundler_load_static_autotuner"
"""Torch's counter of compiled Triton kernels that a cached graph contained."""
BINARIES = ("*/*.cubin", "*/*.hsaco")
"""Files of a kernel in Triton's cache, for CUDA and for ROCm."""
Layers = dict[str, dict[str, int]]
"""For each layer, the number of look-ups by result: `hit`, `miss` or `bypass`."""
MAX_REASON_CHARACTERS = 2000
MAX_FRAMES = 10_000
"""Compiled frames whose metrics torch holds until they are reported."""
STAGES = {
    "entire_frame_compile": "dynamo",
    "build_guards": "guards",
    "create_aot_dispatcher_function": "aot",
    "entire_backward_compile": "aot",
    "inductor_compile": "lowering",
    "code_gen": "code",
    "async_compile.wait": "kernels",
    "compile_file": "kernels",
    "CachingAutotuner.benchmark_all_configs": "autotuning",
    "CachingAutotuner.coordinate_descent_tuning": "autotuning",
}
"""For each of torch's names, its stage. Most stages lie within the stages listed before them."""
AUTOTUNING = ("_template_autotuning", "_template_precompiling")
"""Suffixes of names that begin with the tuned operation: `mm_template_autotuning`."""
MAX_SPANS = 2_000
"""Most spans in memory before a report, since a model may have very many kernels."""
NO_ID = "None"
"""Torch's compilation id outside of compilations."""
Function = TypeVar("Function", bound=Callable[..., None])
SAVED = {
    "dynamo_output_graph": "graph of Dynamo",
    "aot_joint_graph": "joint graph",
    "aot_forward_graph": "forward graph",
    "aot_backward_graph": "backward graph",
    "aot_inference_graph": "inference graph",
    "inductor_post_grad_graph": "graph before lowering",
    "inductor_output_code": "generated code",
}
"""For torch's name of each saved output, its title."""
MAX_FILES = 400
MAX_BYTES = 64 * 2**20
"""Largest total of a run's files; later outputs are left out, and the run goes on."""
CODE_FOLDER = "artifacts/code"
TRACE_FOLDER = "artifacts/trace"
"""Torch writes here, because `runner/worker/before_torch.py` sets this folder."""


STACK_LINE = re.compile(r'^ *File "([^"]+)", line (\d+), in', re.MULTILINE)
CUT_PATH = re.compile(r"(?<=# )\S+(?=:\d+ in )")
"""A path in a guard's comment, `# x + 1  # path:7 in forward`; torch shows only its end."""


not_compiled = cast(Callable[[Function], Function], torch._dynamo.disable)
"""Prevents Dynamo from compiling an observer. A backward pass that compiles calls observers within
compiled code; Dynamo would compile them, too, and wait forever for the lock of this call."""


def users_line(stack: Sequence[FrameSummary], home: Path | None = None) -> str | None:
    """`file:line` of the innermost frame of the user's code; without one, of a library, such as
    transformers with its models; else of torch or this runner. None for an empty stack."""
    # Sorting keeps the order of frames of one kind.
    return innermost_line(sorted(stack, key=lambda frame: _ownership(frame.filename)), home)


def innermost_line(stack: Sequence[FrameSummary], home: Path | None = None) -> str | None:
    """`file:line` of the innermost frame, of any code; None for an empty stack."""
    return f"{short_path(stack[-1].filename, home)}:{stack[-1].lineno}" if stack else None


def short_path(path: str, home: Path | None = None) -> str:
    """The path within this project or the installed packages, since run folders may move; of a
    script's file, the path within `home`, the copy of its folder."""
    homes = () if home is None else (f"{home}/", f"{home.resolve()}/")
    for folder in (*homes, PACKAGES, f"{PACKAGE}/", f"{PROJECT_ROOT}/"):
        path = path.removeprefix(folder)
    return path


def without_home(text: str, home: Path | None) -> str:
    """A text of torch in which paths of the script's copy are relative to `home`, as are paths of
    which torch shows only the end."""
    if home is None:
        return text
    for folder in (home, home.resolve()):
        text = text.replace(f"{folder}/", "")
    return CUT_PATH.sub(lambda path: _within(path[0], str(home)), text)


def _within(path: str, home: str) -> str:
    """The end of a path that begins within `home` or at it; all of any other path."""
    cuts = [place for place, letter in enumerate(path) if letter == "/"]
    return next((path[cut + 1 :] for cut in cuts if cut and home.endswith(path[:cut])), path)


def _ownership(file: str) -> int:
    """2 for the user's own code, 1 for a library, 0 for torch and this runner."""
    if file.startswith((RUNNER, TORCH)):
        return 0
    return 1 if file.startswith((PACKAGES, STANDARD_LIBRARY)) else 2


def cache_counts(kernels_before: set[Path]) -> Layers:
    """Look-ups in compile caches so far, of every layer that has any. `kernels_before`: the
    compiled kernels that were there at first."""
    layers = {
        layer: {
            outcome: counters[group][name]
            for outcome, name in zip(("hit", "miss", "bypass"), names, strict=True)
        }
        for layer, (group, *names) in COUNTERS.items()
    }
    # Torch counts no misses of Triton; its counter of that name counts required kernels.
    layers["triton"] = {
        "hit": counters["inductor"][CAME_COMPILED],
        "miss": len(compiled_kernels() - kernels_before),
        "bypass": 0,
    }
    return {layer: counts for layer, counts in layers.items() if any(counts.values())}


def compiled_kernels() -> set[Path]:
    folder = Path(triton_cache_dir(0))
    return {file for pattern in BINARIES for file in folder.glob(pattern)}


class StageSpan(TypedDict):
    """One stage of one compilation."""

    stage: str
    name: str
    """Torch's name of it."""
    start: float
    """Seconds since the epoch."""
    seconds: float
    thread: int
    """0 is the compiling thread; parallel threads have numbers in the order of their appearance."""


class CompileSpans:
    """Records when each stage of a compilation began and how long it took, from its construction
    on; replaces any earlier object.

    `dynamo_timed` reports the end of its context to `ChromiumEventLogger` of
    `torch._dynamo.utils`, in every thread, with or without a trace. Only the stages that users
    distinguish are recorded; all others lie within these.
    """

    def __init__(self) -> None:
        self._recorded: list[tuple[str, StageSpan]] = []
        """Compilation ids and spans."""
        self._threads: dict[int, int] = {threading.get_ident(): 0}
        self._lock = threading.Lock()
        logger = dynamo_utils.get_chromium_event_logger()
        log = type(logger).log_event_end

        @wraps(log)
        def log_event_end(
            event_name: str,
            time_ns: int,
            metadata: dict[str, Any],
            start_time_ns: int,
            *rest: Any,
            **named: Any,
        ) -> None:
            log(logger, event_name, time_ns, metadata, start_time_ns, *rest, **named)
            tunes = event_name.endswith(AUTOTUNING)
            stage = "autotuning" if tunes else STAGES.get(event_name)
            if stage is not None:
                # `log` has just put the compilation's id there.
                compile_id = str(metadata.get("compile_id"))
                self._record(compile_id, stage, event_name, start_time_ns, time_ns)

        # Compiled code calls this, too; Dynamo must not compile it.
        logger.log_event_end = torch._dynamo.disable(log_event_end)  # type: ignore[method-assign,no-untyped-call]

    def take(self) -> Iterator[tuple[str, list[StageSpan]]]:
        """Yields each compilation's spans since the last call, in the order of their starts."""
        with self._lock:
            recorded, self._recorded = self._recorded, []
        with_id = [entry for entry in recorded if entry[0] != NO_ID]
        by_id: dict[str, list[StageSpan]] = defaultdict(list)
        for compile_id, span in recorded:
            by_id[_around(span, with_id) if compile_id == NO_ID else compile_id].append(span)
        for compile_id, spans in sorted(by_id.items()):
            yield compile_id, sorted(spans, key=lambda span: span["start"])

    def _record(self, compile_id: str, stage: str, name: str, start_ns: int, end_ns: int) -> None:
        with self._lock:
            if len(self._recorded) >= MAX_SPANS:
                return
            thread = self._threads.setdefault(threading.get_ident(), len(self._threads))
            span = StageSpan(
                stage=stage,
                name=name,
                start=start_ns / 1e9,
                seconds=(end_ns - start_ns) / 1e9,
                thread=thread,
            )
            self._recorded.append((compile_id, span))


def _around(span: StageSpan, others: list[tuple[str, StageSpan]]) -> str:
    """The id of the compilation during which another thread began a span without an id."""
    return next(
        (
            compile_id
            for compile_id, other in others
            if other["start"] <= span["start"] <= other["start"] + other["seconds"]
        ),
        NO_ID,
    )


class CompileObserver:
    """Writes compile events as they happen, with the `step` and `phase` that the loop sets."""

    def __init__(self, log: EventLog, home: Path | None = None) -> None:
        """`home`: the copy of a script's folder, in which its paths are relative."""
        self.step = 0
        self.phase = "training"
        self._log, self._home = log, home
        self._refusals = Refusals()
        self._pending: tuple[dict[str, str | None], float] | None = None
        """The current compilation, and its start."""
        self.num_compilations = 0
        """Compilations that have begun so far."""
        self.compile_seconds = 0.0
        """Time that those which have ended took."""
        self._num_reported = 0
        self._begun: dict[str | None, dict[str, Any]] = {}
        self._seen = 0
        self._breaks_seen = 0
        self._breaks_when: list[tuple[int, str]] = []
        """Step and phase of each graph break that is not yet reported."""
        self._kernels_before = compiled_kernels()
        self._spans = CompileSpans()
        self._caches_seen: Layers = {}
        # Torch keeps the metrics of 64 frames by default; one block may compile more.
        dynamo_utils.set_compilation_metrics_limit(MAX_FRAMES)
        callback_handler.register_start_callback(self._on_start)
        callback_handler.register_end_callback(self._on_end)

    @property
    def is_compiling(self) -> bool:
        return self._pending is not None

    def compiled_since_last_call(self) -> bool:
        """Whether a compilation began since the last call."""
        compiled = self.num_compilations > self._seen
        self._seen = self.num_compilations
        return compiled

    def report(self) -> None:
        """Writes the compiler's own metrics and the graph breaks since the last report."""
        if self.num_compilations == self._num_reported:
            return
        self._num_reported = self.num_compilations
        for metrics in dynamo_utils.get_compilation_metrics():
            when = self._begun.get(metrics.compile_id or "", self._now)
            self._log.append("compile_metrics", **when, **self._summary(metrics))
        dynamo_utils.clear_compilation_metrics()
        for compile_id, spans in self._spans.take():
            when = self._begun.get(compile_id, self._now)
            self._log.append("compile_spans", **when, compile_id=compile_id, spans=spans)
        self._report_caches()
        self._report_breaks()

    @property
    def _now(self) -> dict[str, Any]:
        return {"step": self.step, "phase": self.phase}

    def _report_breaks(self) -> None:
        """Writes the graph breaks since the last report; equal breaks of a step are one event."""
        self._date_breaks()
        counts = Counter(
            (
                *when,
                self._refusals.reason(graph_break.reason, graph_break.user_stack),
                users_line(graph_break.user_stack, self._home),
                innermost_line(graph_break.user_stack, self._home),
            )
            for when, graph_break in zip(
                self._breaks_when,
                dynamo_utils.graph_break_reasons[self._breaks_seen :],
                strict=True,
            )
        )
        self._breaks_seen += len(self._breaks_when)
        self._breaks_when.clear()
        for (step, phase, reason, location, stopped_at), count in counts.items():
            self._log.append(
                "graph_break",
                step=step,
                phase=phase,
                reason=self._reason(reason),
                operator=operator_in(reason),
                location=location,
                stopped_at=stopped_at,
                count=count,
            )

    def _date_breaks(self) -> None:
        """Stores the current step and phase for each graph break since the last call."""
        known = self._breaks_seen + len(self._breaks_when)
        fresh = len(dynamo_utils.graph_break_reasons) - known
        self._breaks_when += [(self.step, self.phase)] * fresh

    def _report_caches(self) -> None:
        """Writes all hits, misses and bypasses so far, for each layer of the compile cache."""
        counts = cache_counts(self._kernels_before)
        if counts != self._caches_seen:
            self._caches_seen = counts
            self._log.append("compile_cache", **self._now, layers=counts)

    @not_compiled
    def _on_start(self, *args: Any) -> None:
        self.num_compilations += 1
        compilation = _compilation(*args)
        self._begun.setdefault(compilation["compile_id"], self._now)
        self._pending = compilation, time.perf_counter()
        self._log.append("compile_started", **self._now, **compilation)
        # The dashboard shows the elapsed time of a running compilation.
        self._log.flush()

    @not_compiled
    def _on_end(self, *_: Any) -> None:
        self._date_breaks()
        if self._pending is None:
            return
        compilation, since = self._pending
        seconds = time.perf_counter() - since
        self.compile_seconds += seconds
        self._log.append("compile_ended", seconds=seconds, **self._now, **compilation)
        self._log.flush()
        self._pending = None

    def _summary(self, metrics: Any) -> dict[str, Any]:
        """The fields of torch's CompilationMetrics, in seconds; None for those that this version
        of torch does not have."""
        metrics = defaultdict(lambda: None, vars(metrics))
        failure, again = metrics["fail_reason"] or "", metrics["recompile_reason"] or ""
        file = metrics["co_filename"]
        return {
            "compile_id": metrics["compile_id"],
            "function": metrics["co_name"],
            "file": file and short_path(file, self._home),
            "line": metrics["co_firstlineno"],
            "dynamo_seconds": _seconds(metrics["dynamo_cumulative_compile_time_us"]),
            "aot_seconds": _seconds(metrics["aot_autograd_cumulative_compile_time_us"]),
            "inductor_seconds": _seconds(metrics["inductor_cumulative_compile_time_us"]),
            "code_seconds": _seconds(metrics["inductor_code_gen_cumulative_compile_time_us"]),
            # This includes C++, although torch names only Triton.
            "kernel_seconds": _seconds(metrics["triton_compile_time_us"]),
            "total_seconds": _seconds(metrics["duration_us"]),
            "graph_ops": metrics["graph_op_count"],
            "guards": metrics["guard_count"],
            "recompile_reason": self._reason(again) or None,
            "failure": self._reason(failure) or None,
            "location": self._failure_line(metrics) if failure else None,
            "operator": operator_in(failure),
        }

    def _failure_line(self, metrics: Mapping[str, Any]) -> str | None:
        """The user's line at which Dynamo gave up; at its limit of compilations, the line of the
        guard that failed. None if torch names no line."""
        file = metrics["fail_user_frame_filename"]
        if file is not None:
            stack = self._refusals.find_stack(file, metrics["fail_user_frame_lineno"])
            return users_line(stack, self._home)
        lines = STACK_LINE.findall(metrics["recompile_reason"] or "")
        return users_line([FrameSummary(name, int(line), "") for name, line in lines], self._home)

    def _reason(self, text: str) -> str:
        return without_home(text, self._home)[:MAX_REASON_CHARACTERS]


def _compilation(args: Any = None) -> dict[str, str | None]:
    """Trigger and id of the compilation that torch starts. Older versions, such as 2.6, tell
    callbacks nothing."""
    if args is None:
        return {"trigger": None, "compile_id": str(CompileContext.current_compile_id())}
    return {"trigger": args.callback_trigger.name, "compile_id": args.compile_id}


def _seconds(microseconds: int | None) -> float | None:
    return None if microseconds is None else microseconds / 1e6


def save_outputs(spec: ExperimentSpec, run: RunDir, log: EventLog) -> None:
    """Begins to save the outputs that the specification lists."""
    trace_log: logging.Logger = torch._logging._internal.trace_log
    for handler in [handler for handler in trace_log.handlers if isinstance(handler, CodeWriter)]:
        trace_log.removeHandler(handler)  # of an earlier run in this process
    if spec.keep_code:
        trace_log.addHandler(CodeWriter(run, log))
    if spec.keep_trace:
        _record_trace_files(run, log)


class CodeWriter(logging.Handler):
    """Writes each graph and each piece of generated code to a file."""

    def __init__(self, run: RunDir, log: EventLog) -> None:
        super().__init__()
        self._run, self._log = run, log
        self._counts: Counter[str] = Counter()
        self._bytes = 0

    def emit(self, record: logging.LogRecord) -> None:
        """Writes an output. Dynamo must not trace this, although compiled code may log."""
        torch._dynamo.disable(self._write)(record)  # type: ignore[no-untyped-call]

    def _write(self, record: logging.LogRecord) -> None:
        metadata: dict[str, Any] = getattr(record, "metadata", {})
        payload = getattr(record, "payload", None)
        # The name is either the record's kind or an artifact's name.
        artifact = metadata.get("artifact")
        named = {*metadata, artifact.get("name") if isinstance(artifact, dict) else None}
        name = next((kind for kind in SAVED if kind in named), None)
        if name is None or not isinstance(payload, str):
            return
        content = payload.encode()
        is_full = self._bytes + len(content) > MAX_BYTES
        if is_full or self._counts.total() >= MAX_FILES:
            return
        frame, attempt = metadata.get("frame_id"), metadata.get("frame_compile_id")
        compile_id = None if frame is None else f"{frame}/{attempt}"
        stem = f"{re.sub('[^0-9]+', '-', compile_id or 'none')}-{name}"
        self._counts[stem] += 1
        number = f"-{self._counts[stem]}" if self._counts[stem] > 1 else ""
        file = f"{CODE_FOLDER}/{stem}{number}.py"
        path = self._run.path / file
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)
        self._bytes += len(content)
        self._log.append(
            "kept_file", what=SAVED[name], compile_id=compile_id, file=file, bytes=len(content)
        )


def _record_trace_files(run: RunDir, log: EventLog) -> None:
    """Records the name of each trace file once; torch creates the files when it compiles."""
    recorded: set[str] = set()

    @not_compiled
    def on_start(*_: Any) -> None:
        for path in sorted((run.path / TRACE_FOLDER).glob("*.log")):
            if path.name not in recorded:
                recorded.add(path.name)
                file = f"{TRACE_FOLDER}/{path.name}"
                log.append("kept_file", what="trace", compile_id=None, file=file)

    callback_handler.register_start_callback(on_start)
