import re

import pytest

from breakeven.runner.errors import InvalidSpec
from breakeven.runner.specs.arm_fields import Arm
from breakeven.runner.specs.backends import parse_backend
from breakeven.runner.specs.experiment import ExperimentSpec


@pytest.mark.parametrize(
    ("text", "label", "settings"),
    [
        ("inductor", "inductor", {}),
        ("baseline", "backend-baseline", {}),
        ("inductor:mode=max-autotune", "inductor-max-autotune", {"mode": "max-autotune"}),
        (
            "eager:scope=forward+fullgraph=true",
            "eager-forward-fullgraph_true",
            {"scope": "forward", "fullgraph": True},
        ),
        ("aot_eager:fullgraph=false", "aot_eager-fullgraph_false", {"allows_breaks": True}),
        ("aot_eager:dynamic=false", "aot_eager-dynamic_false", {"dynamic": False}),
        ("eager:batch_times=4", "eager-batch_times_4", {"batch_times": 4}),
        (
            "inductor:epilogue_fusion=false+max_fusion_size=8",
            "inductor-epilogue_fusion_false-max_fusion_size_8",
            {"options": {"epilogue_fusion": False, "max_fusion_size": 8}},
        ),
        (
            "inductor:mode=max-autotune+triton.cudagraphs=false",
            "inductor-max-autotune-triton.cudagraphs_false",
            {"mode": "max-autotune", "options": {"triton.cudagraphs": False}},
        ),
    ],
)
def test_a_backend_is_written_with_its_settings(
    text: str, label: str, settings: dict[str, object]
) -> None:
    expected = Arm(label=label, role="backend", backend=text.partition(":")[0], **settings)  # type: ignore[arg-type]
    assert parse_backend(text) == expected


@pytest.mark.parametrize(
    ("text", "backend", "label", "scope"),
    [
        (
            "thunder.dynamo:Compiler",
            "thunder.dynamo:Compiler",
            "thunder.dynamo.Compiler",
            "iteration",
        ),
        ("a.b:c:scope=forward", "a.b:c", "a.b.c-forward", "forward"),
        ("/my code/own.py:go:scope=forward", "/my code/own.py:go", "own.go-forward", "forward"),
        ("a.b:scope=forward", "a.b", "a.b-forward", "forward"),
    ],
)
def test_a_backend_is_named_by_path_if_a_name_without_a_value_follows_the_colon(
    text: str, backend: str, label: str, scope: str
) -> None:
    arm = parse_backend(text)
    assert (arm.backend, arm.label, arm.scope) == (backend, label, scope)
    assert arm.path_of_backend == (backend if ":" in backend else None)
    spec = ExperimentSpec(name="trial", backends=(text,))
    assert ExperimentSpec.from_json(spec.to_json()) == spec
    assert spec.paths_of_backends == ((backend,) if ":" in backend else ())


@pytest.mark.parametrize(
    ("text", "rule"),
    [
        ("in ductor", "name of a Dynamo backend"),
        ("inductor:mode", "must read name=value"),
        ("thunder:jit", "a path reads package.module:attribute"),
        ("a.b:c.d", "must read name=value"),
        ("a.b:c:d", "must read name=value"),
        ("a.b:c:mode=max-autotune", "only inductor has modes and options"),
        ("/my\ncode/own.py:go", "must read name=value"),
        ("inductor:mode=fast", "must be one of 'default'"),
        ("inductor:scope=all", "must be one of 'iteration'"),
        ("eager:mode=max-autotune", "only inductor has modes and options"),
        ("eager:epilogue_fusion=false", "only inductor has modes and options"),
        ("inductor:triton.=true", "must read name=value"),
        ("eager:triton.cudagraphs=true", "only inductor has modes and options"),
        ("inductor:fullgraph=true", "loss.backward.. breaks the iteration"),
        ("inductor:dynamic=maybe", "true or false"),
        ("inductor:fullgraph=1", "fullgraph must be true or false"),
        ("inductor:max_fusion_size=(8", "an unmatched parenthesis"),
    ],
)
def test_settings_that_cannot_be_are_refused_with_the_whole_text(text: str, rule: str) -> None:
    with pytest.raises(InvalidSpec, match=rule) as caught:
        parse_backend(text)
    assert caught.value.field == "backends"


@pytest.mark.parametrize(
    "text",
    [
        "inductor:cpp.cxx=/bin/false",
        "inductor:cpp.cxx=/opt/compilers/" + "deep/" * 40 + "g++",
        "inductor:trace.path=/tmp/Bäume und Wälder [neu]",
        "__:dynamic=true",
    ],
)
def test_a_label_can_name_a_folder_whatever_the_settings_are(text: str) -> None:
    spec = ExperimentSpec(name="trial", backends=(text,), controls=0)
    assert re.fullmatch(r"[A-Za-z0-9][\w.-]{,109}", spec.arms[1].label)
    assert ExperimentSpec.from_json(spec.to_json()).arms == spec.arms


@pytest.mark.parametrize(
    "texts",
    [
        ("inductor:cpp.cxx=/bin/false", "inductor:cpp.cxx=_bin_false"),
        ("inductor:cpp.cxx=/bin/false", "inductor:cpp.cxx=?bin?false"),
        ("inductor:cpp.cxx=G", "inductor:cpp.cxx=g"),
        ("inductor:a=1-b_2", "inductor:a=1+b=2"),
        ("inductor:x=/" + "a" * 200, "inductor:x=/" + "a" * 201),
        ("_eager", "eager", "eager:dynamic=true"),
        ("a.b:c", "a.b.c", "/there/b.py:c", "/here/b.py:c"),
    ],
)
def test_different_backends_have_different_labels(texts: tuple[str, ...]) -> None:
    spec = ExperimentSpec(name="trial", backends=texts, controls=0)
    assert len({arm.label for arm in spec.arms}) == 1 + len(texts)


def test_a_setting_may_end_in_the_sign_that_joins_settings() -> None:
    arm = parse_backend("inductor:cpp.cxx=/usr/bin/g+++cpp.simdlen=8")
    assert arm.options == {"cpp.cxx": "/usr/bin/g++", "cpp.simdlen": 8}
    assert parse_backend("inductor:cpp.cxx=g++").options == {"cpp.cxx": "g++"}


@pytest.mark.parametrize(
    ("backend", "captures", "effort"),
    [
        ("inductor:mode=reduce-overhead", True, 2),
        ("inductor:mode=max-autotune", True, 3),
        ("inductor:mode=max-autotune-no-cudagraphs", False, 3),
        ("inductor:triton.cudagraphs=true", True, 2),
        ("inductor:mode=default+triton.cudagraphs=true", True, 2),
        ("inductor:mode=max-autotune+triton.cudagraphs=false", False, 3),
        ("inductor:max_autotune=true", False, 3),
    ],
)
def test_modes_and_before_them_options_say_what_is_captured_and_what_compiling_takes(
    backend: str, captures: bool, effort: int
) -> None:
    arm = parse_backend(backend)
    assert (arm.captures_cuda_graphs, arm.compile_effort) == (captures, effort)
    assert ExperimentSpec(name="trial", backends=(backend,)).has_dropout is not captures
