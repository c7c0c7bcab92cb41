"""Checkpoints of which each rank writes its part (`torch.distributed.checkpoint`).

A folder with the tensors by the names of parameters, which do not depend on the number of ranks,
and `rest.pt` with all other values. Loading runs no code: the one pickle of torch's format may name
only a few classes of its own.
"""

import io
import os
import pickle
import re
import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.distributed.checkpoint.api import CheckpointException
from torch.distributed.checkpoint.filesystem import FileSystemReader, _StorageInfo
from torch.distributed.checkpoint.metadata import Metadata, StorageMeta, TensorStorageMetadata
from torch.distributed.checkpoint.state_dict import (
    StateDictOptions,
    get_model_state_dict,
    get_optimizer_state_dict,
    set_model_state_dict,
    set_optimizer_state_dict,
)
from torch.distributed.checkpoint.state_dict_loader import load
from torch.distributed.checkpoint.state_dict_saver import save
from torch.distributed.tensor import DTensor, distribute_tensor

from breakeven.runner.errors import WorkloadError
from breakeven.runner.folders.run_dir import UNFINISHED
from breakeven.runner.worker.group import RankGroup, on_rank_0

REST = "rest.pt"
PART = re.compile(r"[\w.-]+\.distcp")
"""The name of a file with tensors, which the index is not."""
FLAT = StateDictOptions(flatten_optimizer_state_dict=True)
METADATA = "torch.distributed.checkpoint.metadata"
KNOWN_NAMES = {
    *((METADATA, name) for name in ("Metadata", "MetadataIndex", "StorageMeta",
        "TensorStorageMetadata", "ChunkStorageMetadata", "TensorProperties",
        "_MEM_FORMAT_ENCODING")),
    ("torch.distributed.checkpoint.filesystem", "_StorageInfo"),
    ("torch", "Size"), ("torch", "device"), ("torch.serialization", "_get_layout"),
    ("collections", "OrderedDict"), ("pathlib", "PosixPath"), ("pathlib", "Path"),
    ("pathlib._local", "PosixPath"),
}  # fmt: skip
"""What torch's index of a checkpoint is made of, besides element types: each by its whole name, as
a module of torch's leads to most others (`torch.ctypes.util.subprocess.Popen`), and some of its
classes start processes."""


def save_sharded(
    folder: Path,
    model: nn.Module,
    optimizers: Sequence[torch.optim.Optimizer],
    rest: dict[str, Any],
    group: RankGroup,
) -> int:
    """Writes a folder completely or not at all; returns its size in bytes. All ranks call it;
    `rest` is rank 0's."""
    unfinished = folder.with_suffix(UNFINISHED)

    def begin() -> None:
        shutil.rmtree(unfinished, ignore_errors=True)
        unfinished.mkdir(parents=True)

    on_rank_0(group, begin)
    tensors, values = _taken_apart(model, optimizers)
    # One process that loads alone needs no group, so nothing but tensors goes through it.
    save(tensors, checkpoint_id=unfinished)

    def end() -> None:
        with (unfinished / REST).open("wb") as stream:
            torch.save({**rest, "optimizer_values": values}, stream)
            stream.flush()
            os.fsync(stream.fileno())
        os.replace(unfinished, folder)

    on_rank_0(group, end)
    return sum(file.stat().st_size for file in folder.iterdir())


def load_sharded(
    folder: Path, model: nn.Module, optimizers: Sequence[torch.optim.Optimizer]
) -> dict[str, Any]:
    """Restores weights and optimizers, on any number of ranks; returns the rest.

    Raises `WorkloadError` for a folder that is no such checkpoint.
    """
    try:
        rest: dict[str, Any] = torch.load(folder / REST, map_location="cpu", weights_only=True)
        tensors, _ = _taken_apart(model, optimizers)
        load(tensors, storage_reader=_SafeReader(folder))
    except CheckpointException as error:  # which is no `Exception`
        causes = "; ".join(str(cause) for cause, _ in error.failures.values())
        raise WorkloadError(f"{folder} cannot be read as a checkpoint: {causes}") from error
    except (OSError, pickle.UnpicklingError, RuntimeError) as error:
        raise WorkloadError(f"{folder} cannot be read as a checkpoint: {error}") from error
    set_model_state_dict(model, _under(tensors, "model."))
    state = {**_under(tensors, "optimizer."), **rest["optimizer_values"]}
    set_optimizer_state_dict(model, optimizers, state, options=FLAT)
    return rest


def divide(
    weights: dict[str, Any],
    states: Sequence[dict[str, Any]],
    model: nn.Module,
    optimizers: Sequence[torch.optim.Optimizer],
) -> None:
    """Replaces, in place, the tensors of one device's checkpoint by this rank's parts, except those
    that ranks do not share. All ranks call it, each with the whole checkpoint."""
    for name, tensor in model.state_dict().items():
        weights[name] = _part(weights[name], tensor)
    for optimizer, state in zip(optimizers, states, strict=True):
        parameters = [one for group in optimizer.param_groups for one in group["params"]]
        for number, values in state["state"].items():
            like = parameters[number]
            values.update({name: _part(value, like) for name, value in values.items()})


def _part(value: Any, like: Tensor) -> Any:
    """Step counts and the like, of another shape than the parameter, stay whole on every rank."""
    if not isinstance(like, DTensor) or not isinstance(value, Tensor) or value.shape != like.shape:
        return value
    return distribute_tensor(value.to(like.device), like.device_mesh, like.placements)


def _taken_apart(
    model: nn.Module, optimizers: Sequence[torch.optim.Optimizer]
) -> tuple[dict[str, Tensor], dict[str, Any]]:
    """All tensors by name, and the other values of the optimizers."""
    weights = get_model_state_dict(model)
    state: Any = get_optimizer_state_dict(model, optimizers, options=FLAT)
    tensors: dict[str, Any] = {f"model.{name}": tensor for name, tensor in weights.items()}
    tensors |= {f"optimizer.{n}": one for n, one in state.items() if isinstance(one, Tensor)}
    return tensors, {n: one for n, one in state.items() if not isinstance(one, Tensor)}


def _under(tensors: dict[str, Tensor], prefix: str) -> dict[str, Any]:
    return {n.removeprefix(prefix): one for n, one in tensors.items() if n.startswith(prefix)}


class _SafeReader(FileSystemReader):
    """Reads the index without running code that it may contain."""

    def read_metadata(self, *args: Any, **kwargs: Any) -> Metadata:
        index = Path(self.path, ".metadata").read_bytes()
        metadata = _SafeUnpickler(io.BytesIO(index)).load()
        if not isinstance(metadata, Metadata):
            raise pickle.UnpicklingError(f"its index is {type(metadata).__name__}")
        _require_tensors(metadata)
        storage = metadata.storage_meta or StorageMeta()
        storage.load_id, metadata.storage_meta = self.load_id, storage
        return metadata


def _require_tensors(metadata: Metadata) -> None:
    """Raises `UnpicklingError` for entries that are no tensors, which torch would unpickle and so
    execute, and for tensors outside of the checkpoint's files."""
    for name, entry in metadata.state_dict_metadata.items():
        if not isinstance(entry, TensorStorageMetadata):
            raise pickle.UnpicklingError(f"{name!r} in its index is no tensor")
    for place in (metadata.storage_data or {}).values():
        if not isinstance(place, _StorageInfo) or not PART.fullmatch(str(place.relative_path)):
            raise pickle.UnpicklingError("its index names a file that is no part of it")


class _SafeUnpickler(pickle.Unpickler):
    def find_class(self, module: str, name: str) -> Any:
        is_type = module == "torch" and isinstance(getattr(torch, name, None), torch.dtype)
        if is_type or (module, name) in KNOWN_NAMES:
            return super().find_class(module, name)
        raise pickle.UnpicklingError(f"its index names {module}.{name}")
