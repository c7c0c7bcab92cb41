"""A checkpoint of several ranks that came from elsewhere runs no code and reads no file outside."""

import pickle
from pathlib import Path

import pytest
import torch
from torch import nn
from torch.distributed.checkpoint.metadata import BytesStorageMetadata, MetadataIndex

from breakeven.runner.errors import WorkloadError
from breakeven.runner.worker.context import ALONE
from breakeven.runner.worker.training.sharded_checkpoints import load_sharded, save_sharded

pytestmark = pytest.mark.heavy


class Malice:
    """Creates a file when it is unpickled."""

    def __init__(self, proof: Path) -> None:
        self._proof = proof

    def __reduce__(self) -> tuple[object, tuple[object, ...]]:
        return Path.touch, (self._proof,)


@pytest.fixture
def model() -> nn.Module:
    return nn.Linear(2, 2)


@pytest.fixture
def checkpoint(tmp_path: Path, model: nn.Module) -> Path:
    folder = tmp_path / "step-00000001.sharded"
    save_sharded(folder, model, [torch.optim.SGD(model.parameters())], {}, ALONE)
    return folder


def load(checkpoint: Path, model: nn.Module) -> None:
    load_sharded(checkpoint, model, [torch.optim.SGD(model.parameters())])


def test_what_was_saved_here_is_loaded(checkpoint: Path, model: nn.Module) -> None:
    other = nn.Linear(2, 2)
    load(checkpoint, other)
    assert torch.equal(model.weight, other.weight)


@pytest.mark.parametrize(
    ("module", "name"),
    [
        ("torch.distributed.checkpoint.metadata", "torch.ctypes.util.subprocess.Popen"),
        ("torch.distributed.checkpoint.metadata", "os.system"),
        ("torch.distributed.checkpoint.filesystem", "ThreadPoolExecutor"),
        ("torch.distributed.checkpoint._async_process_executor", "_AsyncCheckpointProcess"),
        ("subprocess", "Popen"),
    ],
)
def test_an_index_names_nothing_but_the_few_classes_that_it_is_made_of(
    checkpoint: Path, model: nn.Module, tmp_path: Path, module: str, name: str
) -> None:
    proof = tmp_path / "proof"
    texts = [
        b"\x8c%c%s" % (len(text), text.encode()) for text in (module, name, "touch", str(proof))
    ]
    # The fourth protocol looks names with dots up part by part.
    call = b"\x80\x04" + texts[0] + texts[1] + b"\x93](" + texts[2] + texts[3] + b"e\x85R."
    (checkpoint / ".metadata").write_bytes(call)
    with pytest.raises(WorkloadError, match=f"its index names {module}.{name}"):
        load(checkpoint, model)
    assert not proof.exists()


def test_what_an_index_calls_no_tensor_is_not_unpickled(
    checkpoint: Path, model: nn.Module, tmp_path: Path
) -> None:
    index = pickle.loads((checkpoint / ".metadata").read_bytes())
    proof, evil = tmp_path / "proof", checkpoint / "__1_0.distcp"
    torch.save(Malice(proof), evil)
    index.state_dict_metadata["model.weight"] = BytesStorageMetadata()
    (key,) = (key for key in index.storage_data if key.fqn == "model.weight")
    part = index.storage_data.pop(key)
    part.relative_path, part.offset, part.length = evil.name, 0, evil.stat().st_size
    index.storage_data[MetadataIndex("model.weight")] = part
    (checkpoint / ".metadata").write_bytes(pickle.dumps(index))
    with pytest.raises(WorkloadError, match=r"its index names .*BytesStorageMetadata"):
        load(checkpoint, model)
    assert not proof.exists()


def test_a_tensor_that_lies_outside_is_not_read(
    checkpoint: Path, model: nn.Module, tmp_path: Path
) -> None:
    index = pickle.loads((checkpoint / ".metadata").read_bytes())
    (place,) = {stored.relative_path for stored in index.storage_data.values()}
    (checkpoint / place).rename(tmp_path / "outside.distcp")
    for part in index.storage_data.values():
        part.relative_path = "../outside.distcp"
    (checkpoint / ".metadata").write_bytes(pickle.dumps(index))
    with pytest.raises(WorkloadError, match="no part of it"):
        load(checkpoint, model)
