"""Records when each stage of a compilation began and how long it took.

`dynamo_timed` reports the end of its context to `ChromiumEventLogger` of `torch._dynamo.utils`, in
every thread, with or without a trace. Only the stages that users distinguish are recorded; all
others lie within these.
"""

import threading
from collections import defaultdict
from collections.abc import Iterator
from functools import wraps
from typing import Any, TypedDict

import torch._dynamo
from torch._dynamo import utils as dynamo_utils

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
    """Records spans from its construction on; replaces any earlier object."""

    def __init__(self) -> None:
        self._recorded: list[tuple[str, StageSpan]] = []
        """Compilation ids and spans."""
        self._threads: dict[int, int] = {threading.get_ident(): 0}
        self._lock = threading.Lock()
        logger = dynamo_utils.get_chromium_event_logger()
        log = type(logger).log_event_end

        @wraps(log)
        def log_event_end(
            event_name: str, time_ns: int, metadata: dict[str, Any], start_time_ns: int,
            *rest: Any, **named: Any,
        ) -> None:  # fmt: skip
            log(logger, event_name, time_ns, metadata, start_time_ns, *rest, **named)
            stage = stage_of(event_name)
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
        with_id = [one for one in recorded if one[0] != NO_ID]
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
            span = StageSpan(stage=stage, name=name, start=start_ns / 1e9,
                        seconds=(end_ns - start_ns) / 1e9, thread=thread)  # fmt: skip
            self._recorded.append((compile_id, span))


def stage_of(name: str) -> str | None:
    """The stage of one of torch's names; None for a name within a stage."""
    return "autotuning" if name.endswith(AUTOTUNING) else STAGES.get(name)


def _around(span: StageSpan, others: list[tuple[str, StageSpan]]) -> str:
    """The id of the compilation during which another thread began a span without an id."""
    return next((compile_id for compile_id, other in others
                 if other["start"] <= span["start"] <= other["start"] + other["seconds"]),
                NO_ID)  # fmt: skip
