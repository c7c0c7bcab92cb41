"""The packages that Breakeven brings: locked with hashes, and under licences that allow it."""

import re
import subprocess
from importlib.metadata import PackageNotFoundError, distribution

import pytest
import yaml

from breakeven.runner.project import PROJECT_ROOT

DOCKERFILE = (PROJECT_ROOT / "Dockerfile").read_text()
LINE = re.compile(r"^([a-z0-9][a-z0-9._-]*)==(\S+?)(?: ;.*?)? \\$", re.M | re.I)
STRONG = re.compile(r"\b(A?GPL|LGPL|GNU|SSPL|BUSL|Proprietary|Commercial)", re.I)
"""Licences that oblige people who pass Breakeven on."""
EXPLAINED = re.compile(r"^(nvidia-|cuda-)")
"""NVIDIA's libraries, which torch for CUDA needs, come under NVIDIA's own licence: they may be used
and passed on with an application, and torch's own packages on PyPI ask for them."""


def entries() -> dict[str, str]:
    return dict(LINE.findall((PROJECT_ROOT / "requirements.lock").read_text()))


def plain(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()


def test_the_lock_has_what_is_asked_for_and_a_hash_for_everything() -> None:
    locked = entries()
    assert len(locked) > 80
    for file in ("requirements.txt", "requirements-team.txt"):
        for line in (PROJECT_ROOT / file).read_text().splitlines():
            if line and not line.startswith("#"):
                name, version = line.split("==")
                assert locked[plain(name)] == version, f"{line} of {file}: make lock"
    text = (PROJECT_ROOT / "requirements.lock").read_text()
    parts = re.split(r"\n(?=\S)", "\n".join(re.findall(r"^[^#].*", text, re.M)))
    assert len(parts) == len(LINE.findall(text))
    assert all("--hash=sha256:" in part for part in parts)
    assert "--no-deps --require-hashes -r /tmp/lock" in DOCKERFILE


@pytest.mark.heavy
def test_the_container_without_cuda_leaves_out_what_cuda_needs_and_nothing_else() -> None:
    (program,) = re.findall(r"awk '([^']+)' requirements\.lock", DOCKERFILE)
    command = ["awk", program, "requirements.lock"]
    kept = subprocess.run(command, cwd=PROJECT_ROOT, capture_output=True, text=True, check=True)
    left_out = entries().keys() - dict(LINE.findall(kept.stdout)).keys()
    assert {"torch", "triton", "nvidia-cudnn-cu13"} <= left_out
    assert {name for name in left_out if not EXPLAINED.match(name)} == {"torch", "triton"}
    assert kept.stdout.count("--hash") > 500


def test_the_container_may_load_what_runs_compile() -> None:
    services = yaml.safe_load((PROJECT_ROOT / "compose.yaml").read_text())["services"]
    assert services["cpu"]["tmpfs"] == ["/tmp:exec"] and services["gpu"]["extends"] == "cpu"
    assert "--tmpfs /tmp:exec" in DOCKERFILE
    assert [services[name]["build"]["args"]["TORCH"] for name in ("cpu", "gpu")] == ["cpu", "cuda"]


def test_no_licence_obliges_whoever_passes_breakeven_on() -> None:
    looked_at = 0
    for name in entries():
        try:
            meta = distribution(name).metadata
        except PackageNotFoundError:  # Of another system or another Python.
            continue
        looked_at += 1
        said = [meta.get("License-Expression") or "", (meta.get("License") or "")[:80]]
        said += [
            classifier
            for classifier in meta.get_all("Classifier") or ()
            if classifier.startswith("License")
        ]
        assert EXPLAINED.match(name) or not any(map(STRONG.search, said)), (name, said)
    assert looked_at > 50
