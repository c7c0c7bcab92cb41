"""Records the keys under which torch looks for graphs in its compile caches, and their parts, so
that a start that found nothing can be compared with the one before it.

Torch hashes each part of a key on its own and tells the hashes to whoever debugs its cache. These
are functions that torch may change: without them nothing is recorded.
"""

import re
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from functools import wraps
from typing import Any

from torch._functorch._aot_autograd import autograd_cache
from torch._inductor.codecache import FxGraphCache

from breakeven.runner.worker.compiler.observer import not_compiled
from breakeven.runner.worker.event_log import EventLog

PART = re.compile(r"\[(?P<hash>\w+)\] (?P<name>[\w.]+(\[[^\]]*\])?): (?P<value>.*)", re.DOTALL)
"""A line of torch: `[hash] inductor_config[max_autotune]: False`."""
SETTINGS = "inductor_config"
"""Beginning of the names of Inductor's settings, of which there are hundreds in each key."""
HASH_CHARACTERS = 12
MOST_CHARACTERS = 160
"""Of the value of a part."""
WITHOUT_VALUE = ("gm", "torch_version")
"""Parts whose values are code or bytes; their hashes suffice."""


class CacheKeys:
    """Writes an event for each look-up from its construction on."""

    def __init__(self, log: EventLog) -> None:
        self._log = log
        self._settings: dict[str, str] = {}
        """Those of the last written key."""
        with suppress(AttributeError):
            FxGraphCache.prepare_key = staticmethod(  # type: ignore[method-assign]
                self._watched(FxGraphCache.prepare_key, self._prepared)
            )
            autograd_cache.autograd_cache_key = self._watched(
                autograd_cache.autograd_cache_key, self._computed
            )

    def _watched(
        self, function: Callable[..., Any], write: Callable[[Any], None]
    ) -> Callable[..., Any]:
        """The function, after which its result, or the exception that it raised, is written."""
        original = getattr(function, "__wrapped__", function)

        @wraps(original)
        def call(*arguments: Any, **named: Any) -> Any:
            try:
                result = original(*arguments, **named)
            except Exception as error:
                write(error)
                raise
            write(result)
            return result

        return call

    def _prepared(self, result: Any) -> None:
        """Of Inductor: `((key, lines), info)`, or `(None, info)` with a reason."""
        with suppress(TypeError, ValueError, AttributeError):
            key, info = result
            if key is None:
                self._write("fx_graph", None, (), info.get("cache_bypass_reason"))
            else:
                self._write("fx_graph", key[0], key[1], None)

    def _computed(self, result: Any) -> None:
        """Of AOTAutograd: `(key, lines)`; an exception is the reason why nothing is looked up."""
        if isinstance(result, Exception):
            self._write("aot_autograd", None, (), str(result))
        else:
            with suppress(TypeError, ValueError):
                self._write("aot_autograd", result[0], result[1], None)

    @not_compiled
    def _write(self, layer: str, key: str | None, lines: Iterable[str], reason: str | None) -> None:
        parts = parts_of(lines)
        settings = {name: part for name, part in parts.items() if name.startswith(SETTINGS)}
        others = {name: part for name, part in parts.items() if name not in settings}
        changed = {
            name: part for name, part in settings.items() if self._settings.get(name) != part
        }
        self._settings |= changed
        reason = reason and reason[:MOST_CHARACTERS]
        self._log.append("cache_key", layer=layer, key=key, reason=reason, parts=others | changed)


def parts_of(lines: Iterable[str]) -> Mapping[str, str]:
    """By name, the beginning of the hash of each part of a key and of its value."""
    parts = {}
    for match in filter(None, map(PART.fullmatch, lines)):
        value = "" if match["name"] in WITHOUT_VALUE else " ".join(match["value"].split())
        parts[match["name"]] = f"{match['hash'][:HASH_CHARACTERS]} {value[:MOST_CHARACTERS]}"
    return parts
