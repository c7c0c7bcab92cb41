"""Sharded checkpoints: each rank writes its part (`torch.distributed.checkpoint`).

A checkpoint is a folder. It has the tensors by parameter name, independent of the number of ranks,
and `rest.pt` with all other values. Loading runs no code: the pickle in torch's format may name
only a few classes.
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
from breakeven.runner.files import UNFINISHED
from breakeven.runner.worker.context import RankGroup, on_rank_0

REST = "rest.pt"
TENSOR_FILE = re.compile(r"[\w.-]+\.distcp")
"""Name of a file with tensors, as opposed to the index."""
FLAT = StateDictOptions(flatten_optimizer_state_dict=True)
METADATA = "torch.distributed.checkpoint.metadata"
KNOWN_NAMES = {
    *(
        (METADATA, name)
        for name in (
            "Metadata",
            "MetadataIndex",
            "StorageMeta",
            "TensorStorageMetadata",
            "ChunkStorageMetadata",
            "TensorProperties",
            "_MEM_FORMAT_ENCODING",
        )
    ),
    ("torch.distributed.checkpoint.filesystem", "_StorageInfo"),
    ("torch", "Size"),
    ("torch", "device"),
    ("torch.serialization", "_get_layout"),
    ("collections", "OrderedDict"),
    ("pathlib", "PosixPath"),
    ("pathlib", "Path"),
    ("pathlib._local", "PosixPath"),
}
"""Classes and functions that torch's index of a checkpoint may name, besides element types. Whole
modules would be unsafe: most modules can be reached from torch's
(`torch.ctypes.util.subprocess.Popen`), and some classes start processes."""


def save_sharded(
    folder: Path,
    model: nn.Module,
    optimizers: Sequence[torch.optim.Optimizer],
    rest: dict[str, Any],
    group: RankGroup,
) -> int:
    """Writes a checkpoint completely or not at all; returns its size in bytes. All ranks call this;
    only rank 0's `rest` is saved."""
    unfinished = folder.with_suffix(UNFINISHED)

    def begin() -> None:
        shutil.rmtree(unfinished, ignore_errors=True)
        unfinished.mkdir(parents=True)

    on_rank_0(group, begin)
    tensors, values = _taken_apart(model, optimizers)
    # Only tensors: a single process can load these without a group.
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
    """Restores weights and optimizers, on any number of ranks; returns the rest. Raises
    `WorkloadError` if the folder is no such checkpoint."""
    try:
        rest: dict[str, Any] = torch.load(folder / REST, map_location="cpu", weights_only=True)
        tensors, _ = _taken_apart(model, optimizers)
        load(tensors, storage_reader=_SafeReader(folder))
    except CheckpointException as error:  # not a subclass of `Exception`
        causes = "; ".join(str(cause) for cause, _ in error.failures.values())
        raise WorkloadError(f"{folder} cannot be read as a checkpoint: {causes}") from error
    except (OSError, pickle.UnpicklingError, RuntimeError) as error:
        raise WorkloadError(f"{folder} cannot be read as a checkpoint: {error}") from error
    set_model_state_dict(model, _with_prefix(tensors, "model."))
    state = {**_with_prefix(tensors, "optimizer."), **rest["optimizer_values"]}
    set_optimizer_state_dict(model, optimizers, state, options=FLAT)
    return rest


def divide(
    weights: dict[str, Any],
    states: Sequence[dict[str, Any]],
    model: nn.Module,
    optimizers: Sequence[torch.optim.Optimizer],
) -> None:
    """Replaces each tensor of a one-device checkpoint by this rank's part, in place, if ranks
    divide it. All ranks call this with the whole checkpoint."""
    for name, tensor in model.state_dict().items():
        weights[name] = _part(weights[name], tensor)
    for optimizer, state in zip(optimizers, states, strict=True):
        parameters = [
            parameter for group in optimizer.param_groups for parameter in group["params"]
        ]
        for number, values in state["state"].items():
            like = parameters[number]
            values.update({name: _part(value, like) for name, value in values.items()})


def _part(value: Any, like: Tensor) -> Any:
    """This rank's part of a value; values of another shape, such as step counts, stay whole."""
    if not isinstance(like, DTensor) or not isinstance(value, Tensor) or value.shape != like.shape:
        return value
    return distribute_tensor(value.to(like.device), like.device_mesh, like.placements)


def _taken_apart(
    model: nn.Module, optimizers: Sequence[torch.optim.Optimizer]
) -> tuple[dict[str, Tensor], dict[str, Any]]:
    """Returns all tensors by name, and the optimizers' other values."""
    weights = get_model_state_dict(model)
    state: Any = get_optimizer_state_dict(model, optimizers, options=FLAT)
    tensors: dict[str, Any] = {f"model.{name}": tensor for name, tensor in weights.items()}
    tensors |= {f"optimizer.{n}": value for n, value in state.items() if isinstance(value, Tensor)}
    return tensors, {n: value for n, value in state.items() if not isinstance(value, Tensor)}


def _with_prefix(tensors: dict[str, Tensor], prefix: str) -> dict[str, Any]:
    return {n.removeprefix(prefix): tensor for n, tensor in tensors.items() if n.startswith(prefix)}


class _SafeReader(FileSystemReader):
    """Reads the index without running any code in it."""

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
    """Raises `UnpicklingError` for tensors outside of the checkpoint's files, and for entries other
    than tensors, because torch would unpickle and so execute them."""
    for name, entry in metadata.state_dict_metadata.items():
        if not isinstance(entry, TensorStorageMetadata):
            raise pickle.UnpicklingError(f"{name!r} in its index is no tensor")
    for place in (metadata.storage_data or {}).values():
        if not isinstance(place, _StorageInfo) or not TENSOR_FILE.fullmatch(
            str(place.relative_path)
        ):
            raise pickle.UnpicklingError("its index names a file that is no part of it")


class _SafeUnpickler(pickle.Unpickler):
    def find_class(self, module: str, name: str) -> Any:
        is_type = module == "torch" and isinstance(getattr(torch, name, None), torch.dtype)
        if is_type or (module, name) in KNOWN_NAMES:
            return super().find_class(module, name)
        raise pickle.UnpicklingError(f"its index names {module}.{name}")
