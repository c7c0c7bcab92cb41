"""What a release says of itself is the same wherever it is said."""

import re
import tomllib
from typing import Any

import yaml

import breakeven
from breakeven.runner.doctor.machine_checks import PYTHONS
from breakeven.runner.project import PROJECT_ROOT

PROJECT = tomllib.loads((PROJECT_ROOT / "pyproject.toml").read_text())["project"]
WORKFLOWS = PROJECT_ROOT / ".github/workflows"
HOME = PROJECT["urls"]["Homepage"]


def text_of(file: str) -> str:
    return (PROJECT_ROOT / file).read_text()


def workflow(name: str) -> dict[str, Any]:
    read: dict[str, Any] = yaml.safe_load((WORKFLOWS / f"{name}.yml").read_text())
    return read


def test_there_is_one_version() -> None:
    version = breakeven.__version__
    assert yaml.safe_load(text_of("CITATION.cff"))["version"] == version
    headings = re.findall(r"^## (\d\S*?),? ", text_of("CHANGELOG.md"), re.M)
    assert headings[0] == version


def test_the_same_pythons_are_named_everywhere() -> None:
    first, last = (".".join(map(str, python)) for python in PYTHONS)
    assert PROJECT["requires-python"] == f">={first},<3.{PYTHONS[1][1] + 1}"
    minors = range(PYTHONS[0][1], PYTHONS[1][1] + 1)
    named = [line for line in PROJECT["classifiers"] if "Python ::" in line]
    assert named == [f"Programming Language :: Python :: 3.{minor}" for minor in minors]
    for file in ("README.md", "Makefile", "action.yml", "docs/ci.md"):
        assert f"{first} to {last}" in text_of(file), file
    matrix = workflow("check")["jobs"]["check"]["strategy"]["matrix"]
    assert matrix["python"] == [first, last]


def test_workflows_run_what_ci_runs_before_anything_is_published() -> None:
    for name, job in (("check", "check"), ("release", "build")):
        steps = workflow(name)["jobs"][job]["steps"]
        assert "bash .ci/run" in [step.get("run") for step in steps], name
    publish = workflow("release")["jobs"]["publish"]
    assert publish["needs"] == "build" and publish["permissions"] == {"id-token": "write"}


def test_one_address_of_the_project_is_used() -> None:
    files = [
        "CITATION.cff",
        "CODE_OF_CONDUCT.md",
        "SECURITY.md",
        "pyproject.toml",
        ".github/ISSUE_TEMPLATE/config.yml",
    ]
    for file in files:
        addresses = re.findall(r"https://github\.com/[\w.-]+/[\w.-]+", text_of(file))
        assert {*addresses} == {HOME}, file
    owner = HOME.removeprefix("https://github.com/")
    assert f"uses: {owner}@" in text_of("docs/ci.md")


def test_whoever_reports_a_fault_is_asked_for_the_bundle() -> None:
    form = yaml.safe_load(text_of(".github/ISSUE_TEMPLATE/wrong.yml"))
    (bundle,) = (part for part in form["body"] if part.get("id") == "bundle")
    assert "breakeven doctor --bundle" in bundle["attributes"]["description"]
    assert "breakeven doctor --bundle" in text_of(".github/pull_request_template.md")
