"""Putting a step under a backend, and watching what the compiler does."""

import difflib
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any, cast

import torch
import torch._dynamo
import torch._inductor.config
from torch._dynamo import utils as dynamo_utils
from torch._dynamo.callback import CallbackArgs, callback_handler

from breakeven.runner.errors import WorkloadError
from breakeven.runner.specs.variants import QUICK_COMPILERS, Variant
from breakeven.runner.worker.compiler.caches import CompileCaches, Layers
from breakeven.runner.worker.compiler.source_lines import innermost_line, short_path, users_line
from breakeven.runner.worker.compiler.spans import CompileSpans
from breakeven.runner.worker.event_log import EventLog

MAX_REASON_CHARACTERS = 2000
MAX_FRAMES = 10_000
"""Compiled frames whose metrics are kept until they are reported."""
Compile = Callable[[Callable[..., Any]], Callable[..., Any]]
"""Puts a function under a backend."""

OnCompiling = Callable[[Any, CallbackArgs], None]
not_compiled = cast(Callable[[OnCompiling], OnCompiling], torch._dynamo.disable)
"""A backward that compiles calls its observers within compiled code. Dynamo would compile them as
well, and wait for ever for the lock under which they are called."""


def make_compiler(variant: Variant) -> Compile:
    """What puts a function under the variant's backend; it compiles when it is first called.

    Raises `WorkloadError` for a backend that torch does not know here.
    """
    if variant.backend is None:
        return leave_alone
    known = torch._dynamo.list_backends(exclude_tags=None)
    if variant.backend not in known:
        near = difflib.get_close_matches(variant.backend, known, n=1)
        hint = f" Did you mean {near[0]!r}?" if near else ""
        message = f"backend {variant.backend!r} is not registered here.{hint}"
        usual = dict.fromkeys([*torch._dynamo.list_backends(), *QUICK_COMPILERS])
        raise WorkloadError(f"{message} Known: {', '.join(usual)}")
    # Draw random numbers as eager does, so that dropout agrees between backends.
    torch._inductor.config.fallback_random = True
    return cast(Compile, partial(torch.compile, **compile_arguments(variant)))


def set_ddp_mode(variant: Variant) -> None:
    """What Dynamo does with DistributedDataParallel, which asks for it when it is made."""
    torch._dynamo.config.optimize_ddp = variant.optimize_ddp or True
    # The reducer in Python is compiled as a part of the backward pass.
    torch._dynamo.config.compiled_autograd = variant.optimize_ddp == "python_reducer"


def leave_alone(function: Callable[..., Any]) -> Callable[..., Any]:
    """Stands for a compiler where nothing is to be compiled."""
    return function


def compile_arguments(variant: Variant) -> dict[str, Any]:
    """Keyword arguments of `torch.compile` for a variant with a backend.

    It refuses a mode beside options; a mode is but a set of options, which torch itself names.
    """
    mode, options = variant.mode, dict(variant.options)
    if mode is not None and options:
        by_mode = torch._inductor.list_mode_options(mode, variant.dynamic)
        mode, options = None, {**by_mode, **options}
    return {
        "backend": variant.backend,
        "mode": mode,
        "fullgraph": variant.fullgraph,
        "dynamic": variant.dynamic,
        "options": options or None,
    }


@dataclass
class _Pending:
    args: CallbackArgs
    since: float


class CompileObserver:
    """Writes compile events as they happen, and says whether a step compiled anything.

    `step` and `phase` are set by the training loop and stamped on every event.
    """

    def __init__(self, log: EventLog) -> None:
        self.step = 0
        self.phase = "training"
        self._log = log
        self._pending: _Pending | None = None
        self._num_started = 0
        self._num_reported = 0
        self._begun: dict[str, dict[str, Any]] = {}
        self._seen = 0
        self._breaks_seen = 0
        self._breaks_when: list[tuple[int, str]] = []
        """Step and phase of each graph break that is not reported yet."""
        self._caches = CompileCaches()
        self._spans = CompileSpans()
        self._caches_seen: Layers = {}
        # Torch keeps the metrics of 64 frames by default; one block may compile more.
        dynamo_utils.set_compilation_metrics_limit(MAX_FRAMES)
        callback_handler.register_start_callback(self._on_start)
        callback_handler.register_end_callback(self._on_end)

    @property
    def num_compilations(self) -> int:
        """That have begun so far."""
        return self._num_started

    @property
    def is_compiling(self) -> bool:
        return self._pending is not None

    def compiled_since_last_asked(self) -> bool:
        """Whether a compilation began since the last call."""
        compiled = self._num_started > self._seen
        self._seen = self._num_started
        return compiled

    def report(self) -> None:
        """Writes the compiler's own metrics and the graph breaks since the last report."""
        if self._num_started == self._num_reported:
            return
        self._num_reported = self._num_started
        for metrics in dynamo_utils.get_compilation_metrics():
            now = {"step": self.step, "phase": self.phase}
            when = self._begun.get(metrics.compile_id or "", now)
            self._log.append("compile_metrics", **when, **_summary(metrics))
        dynamo_utils.clear_compilation_metrics()
        self._report_spans()
        self._report_caches()
        self._report_breaks()

    def _report_spans(self) -> None:
        """Writes when each stage of the compilations since the last report began and ended."""
        now = {"step": self.step, "phase": self.phase}
        for compile_id, spans in self._spans.take():
            when = self._begun.get(compile_id, now)
            self._log.append("compile_spans", **when, compile_id=compile_id, spans=spans)

    def _report_breaks(self) -> None:
        """Writes the graph breaks since the last report, equal ones of a step as one."""
        self._date_breaks()
        counts = Counter(
            (*when, found.reason, users_line(found.user_stack), innermost_line(found.user_stack))
            for when, found in zip(
                self._breaks_when, dynamo_utils.graph_break_reasons[self._breaks_seen :],
                strict=True,
            )
        )  # fmt: skip
        self._breaks_seen += len(self._breaks_when)
        self._breaks_when.clear()
        for (step, phase, reason, location, stopped_at), count in counts.items():
            self._log.append(
                "graph_break",
                step=step,
                phase=phase,
                reason=reason[:MAX_REASON_CHARACTERS],
                location=location,
                stopped_at=stopped_at,
                count=count,
            )

    def _date_breaks(self) -> None:
        """Takes down the step of the graph breaks that have no step yet."""
        known = self._breaks_seen + len(self._breaks_when)
        fresh = len(dynamo_utils.graph_break_reasons) - known
        self._breaks_when += [(self.step, self.phase)] * fresh

    def _report_caches(self) -> None:
        """Writes how often each layer of the compile cache was hit, missed and passed by so far."""
        found = self._caches.counts()
        if found != self._caches_seen:
            self._caches_seen = found
            self._log.append("compile_cache", step=self.step, phase=self.phase, layers=found)

    @not_compiled
    def _on_start(self, args: CallbackArgs) -> None:
        self._num_started += 1
        self._begun.setdefault(args.compile_id, {"step": self.step, "phase": self.phase})
        self._pending = _Pending(args, time.perf_counter())
        self._log.append("compile_started", **self._stamp(args))
        # The dashboard shows the elapsed time of a compilation while it lasts.
        self._log.flush()

    @not_compiled
    def _on_end(self, args: CallbackArgs) -> None:
        self._date_breaks()
        if self._pending is None:
            return
        seconds = time.perf_counter() - self._pending.since
        self._log.append("compile_ended", seconds=seconds, **self._stamp(self._pending.args))
        self._log.flush()
        self._pending = None

    def _stamp(self, args: CallbackArgs) -> dict[str, Any]:
        return {
            "step": self.step,
            "phase": self.phase,
            "trigger": args.callback_trigger.name,
            "compile_id": args.compile_id,
        }


def _summary(metrics: dynamo_utils.CompilationMetrics) -> dict[str, Any]:
    """The fields of torch's CompilationMetrics that hold from 2.11 to 2.13, in seconds."""
    return {
        "compile_id": metrics.compile_id,
        "function": metrics.co_name,
        "file": metrics.co_filename and short_path(metrics.co_filename),
        "line": metrics.co_firstlineno,
        "dynamo_seconds": _seconds(metrics.dynamo_cumulative_compile_time_us),
        "aot_seconds": _seconds(metrics.aot_autograd_cumulative_compile_time_us),
        "inductor_seconds": _seconds(metrics.inductor_cumulative_compile_time_us),
        "code_seconds": _seconds(metrics.inductor_code_gen_cumulative_compile_time_us),
        # Of Triton's kernels and of C++; torch calls it Triton's alone.
        "kernel_seconds": _seconds(metrics.triton_compile_time_us),
        "total_seconds": _seconds(metrics.duration_us),
        "graph_ops": metrics.graph_op_count,
        "guards": metrics.guard_count,
        "recompile_reason": (metrics.recompile_reason or "")[:MAX_REASON_CHARACTERS] or None,
        "failure": (metrics.fail_reason or "")[:MAX_REASON_CHARACTERS] or None,
    }


def _seconds(microseconds: int | None) -> float | None:
    return None if microseconds is None else microseconds / 1e6
