"""What is found in a profile, and not found in one that has it not: each rule both ways."""

from dataclasses import replace
from typing import Any

import pandas as pd
import pytest

from breakeven.runner.specs.experiment import DataSpec, ExperimentSpec, ModelSpec
from breakeven.storage.profile.findings import Case, CostFinding, findings
from breakeven.storage.words.findings import finding_words, remedy_words
from breakeven.storage.words.profile import profile_words
from tests.helpers.profiles.recorded import case_of, make_profile, recorded

BERT, BERT_INDUCTOR = "BertForMaskedLM.baseline", "BertForMaskedLM.inductor"


def kinds(*cases: Case) -> dict[str, CostFinding]:
    return {finding.kind: finding for finding in findings(cases)}


def frame(*rows: tuple[Any, ...]) -> pd.DataFrame:
    return pd.DataFrame(rows, columns=["name", "op", "phase", "dtype", "calls", "seconds"])


GEMM = ("nvjet_sm90_tst_1", "aten::mm", "forward", "bf16", 10.0, 0.009)


def test_attention_that_left_the_fused_kernel_is_found_with_what_it_costs() -> None:
    """BERT under Inductor in bf16. The finding says so once: not again as float32 products."""
    by_kind = kinds(case_of(recorded(BERT_INDUCTOR), recorded(BERT)))
    finding = by_kind["attention_unfused"]
    assert "float32_products" not in by_kind
    by_class = recorded(BERT_INDUCTOR).by_class
    assert finding.facts["softmax_seconds"] == pytest.approx(by_class["attention_math"])
    assert finding.facts["float32_seconds"] == pytest.approx(by_class["matmul_float32"])
    assert (
        finding.remedy is not None and finding.remedy.backend == "inductor:math_attention=reduced"
    )
    assert "left the fused kernel" in str(finding_words(finding))
    assert "inductor:math_attention=reduced" in remedy_words(finding)


def test_attention_that_stays_fused_is_not() -> None:
    fused = recorded("deit_base_distilled_patch16_224.inductor")
    by_kind = kinds(case_of(fused, recorded("deit_base_distilled_patch16_224.baseline")))
    assert "attention_unfused" not in by_kind


def test_products_in_float32_under_half_precision_are_found() -> None:
    """T5 adds a bias to attention, which no fused kernel takes, without a compiler either."""
    by_kind = kinds(case_of(recorded("T5Small.baseline")))
    assert by_kind["float32_products"].seconds == pytest.approx(
        recorded("T5Small.baseline").by_class["matmul_float32"]
    )
    assert "float32_products" not in kinds(case_of(recorded(BERT)))
    exact = case_of(recorded("T5Small.baseline"), precision="float32")
    assert "float32_products" not in kinds(exact)


def test_tf32_that_is_off_is_found_where_float32_was_asked_for() -> None:
    case = case_of(recorded("DistilBertForMaskedLM.baseline"), precision="float32")
    finding = kinds(case)["tf32_off"]
    assert finding.remedy.fields == (("training.precision", "tf32"),)
    settings = replace(case.spec, settings="harness")
    assert "tf32_off" not in kinds(replace(case, spec=settings))


def test_a_device_that_waits_is_found_and_one_that_does_not_is_not() -> None:
    """The baseline's kernels took 31.6 of 44.2 ms; DistilBERT's in float32 98 % of a step."""
    idle = kinds(case_of(recorded(BERT)))["device_idle"]
    assert idle.seconds == pytest.approx(0.04415 - 0.03156, abs=2e-5)
    busy = case_of(recorded("DistilBertForMaskedLM.baseline"), precision="float32")
    assert "device_idle" not in kinds(busy)
    waits = kinds(case_of(recorded("MobileBertForMaskedLM.inductor"), recorded(BERT)))
    remedy = waits["device_idle"].remedy
    assert remedy is not None and remedy.backend == "inductor:mode=reduce-overhead"


def test_kernels_that_leave_the_device_empty_are_found() -> None:
    empty = make_profile(frame(GEMM), 0.010, underfilled_seconds=0.005)
    finding = kinds(case_of(empty, batch_size=4))["underfilled"]
    assert finding.remedy is not None and finding.remedy.fields == (("training.batch_size", 8),)
    assert "underfilled" not in kinds(case_of(make_profile(frame(GEMM), 0.010)))


def test_of_a_script_only_backends_can_be_changed_from_here() -> None:
    """Its batches, its precision and its optimizer are its author's: these remedies stay words."""
    spec = ExperimentSpec(
        name="mine",
        task="script",
        model=ModelSpec(source="script:/train.py"),
        data=DataSpec(source="script"),
        devices=("cuda:0",),
    )
    empty = make_profile(frame(GEMM), 0.010, underfilled_seconds=0.005)
    finding = kinds(replace(case_of(empty), spec=spec))["underfilled"]
    assert finding.remedy is None and "at this batch size" in str(finding_words(finding))
    assert "Make batches larger" in remedy_words(finding)
    waits = case_of(recorded("MobileBertForMaskedLM.inductor"), recorded(BERT))
    remedy = kinds(replace(waits, spec=spec))["device_idle"].remedy
    assert remedy is not None and remedy.backend == "inductor:mode=reduce-overhead"


def test_graph_breaks_are_found_with_their_lines() -> None:
    case = case_of(recorded(BERT_INDUCTOR), recorded(BERT))
    breaks = pd.DataFrame(
        {
            "location": ["train.py:7", "train.py:7", "model.py:9"],
            "reason": ["print", "print", "item"],
            "count": [1, 2, 1],
        }
    )
    finding = kinds(replace(case, breaks=breaks))["graph_breaks"]
    assert finding.facts["lines"] == ["train.py:7", "model.py:9"]
    assert finding.seconds is None, "recorded before it was known what lies between graphs"
    assert "graph_breaks" not in kinds(case)


@pytest.mark.parametrize(("works_by_itself", "cost"), [(False, 0.004), (True, 0.001)])
def test_graph_breaks_cost_what_nothing_hides(works_by_itself: bool, cost: float) -> None:
    """4 ms; a step of 10 ms with 9 ms of kernels leaves 1 ms idle where the device works beside."""
    profile = make_profile(frame(GEMM), 0.010, host_seconds={"between_graphs": 0.004})
    profile = replace(profile, works_by_itself=works_by_itself)
    breaks = pd.DataFrame({"location": ["a.py:7"], "reason": ["print"], "count": [1]})
    case = replace(case_of(profile, recorded(BERT)), breaks=breaks)
    finding = kinds(case)["graph_breaks"]
    assert finding.seconds == pytest.approx(cost)
    said = str(finding_words(finding))
    assert "4.00 ms of a step lie between the parts" in said
    assert "Potential saving: at least" in said


def test_recompilations_are_found_with_what_they_took() -> None:
    case = case_of(recorded(BERT_INDUCTOR), recorded(BERT))
    frames = pd.DataFrame(
        {
            "compile_id": ["0/0", "0/1"],
            "file": ["a.py", "a.py"],
            "function": ["step", "step"],
            "total_seconds": [9.0, 4.0],
            "recompile_reason": [None, "shape changed"],
        }
    )
    finding = kinds(replace(case, frames=frames))["recompiled"]
    assert finding.facts["times"] == 1 and finding.facts["total_seconds"] == 4.0
    assert "recompiled" not in kinds(case)


BINCOUNT = "Dynamic shape operator\n  Explanation: Operator `aten.bincount.default`'s output"
IN_LOOP = f"{BINCOUNT}\n\n*** While handling this ***\n\ngraph break in loop\n"


def frames(*rows: dict[str, Any]) -> pd.DataFrame:
    blank = dict.fromkeys(
        ("compile_id", "file", "function", "recompile_reason", "failure", "location", "operator")
    )
    return pd.DataFrame([blank | {"total_seconds": 1.0} | row for row in rows])


def without_profile(case: Case) -> Case:
    """The same run where no turn was profiled."""
    turns, kernels = case.profile.turns.iloc[:0], case.profile.kernels.iloc[:0]
    profile = replace(case.profile, turns=turns, kernels=kernels, step_seconds=None)
    return replace(case, profile=profile, baseline=None)


def test_what_the_compiler_gave_up_is_found_without_a_profile_with_line_operator_and_advice() -> (
    None
):
    case = without_profile(case_of(recorded(BERT_INDUCTOR), recorded(BERT)))
    assert not case.profile.is_known
    breaks = pd.DataFrame(
        {
            "location": ["train.py:15"],
            "reason": [BINCOUNT],
            "count": [2],
            "operator": ["aten.bincount"],
        }
    )
    given_up = frames(
        {
            "function": "forward",
            "failure": IN_LOOP,
            "location": "train.py:15",
            "operator": "aten.bincount",
        }
    )
    by_kind = kinds(replace(case, frames=given_up, breaks=breaks))
    assert {*by_kind} == {"given_up"}, "the break at the same line is not told again"
    assert str(finding_words(by_kind["given_up"])) == (
        "forward runs without a compiler: Dynamo gave up at train.py:15 (aten.bincount)."
    )
    assert remedy_words(by_kind["given_up"]).startswith("Count with index_add_")
    assert "inside a loop" in remedy_words(by_kind["given_up"])
    elsewhere = breaks.assign(location="model.py:9")
    by_kind = kinds(replace(case, frames=given_up, breaks=elsewhere))
    assert "breaks at model.py:9 (aten.bincount)" in str(finding_words(by_kind["graph_breaks"]))


GROUPS = "3/0: self.param_groups[0]"
COMMENT = "                      # for group in self.param_groups:  # optim/adam.py:229 in step"


@pytest.mark.parametrize(
    ("reason", "what", "advice"),
    [
        (f"{GROUPS}['lr'] == 0.001{COMMENT}", "lr of the optimizer", "Make lr a tensor"),
        (f"{GROUPS}['betas'][1] == 0.999{COMMENT}", "betas of the optimizer", "betas a tensor"),
        (f"{GROUPS}['weight_decay'] == 0{COMMENT}", "weight_decay of the optimizer", "outside of"),
        ("1/0: len(self._forward_hooks) == 0", "the hooks of a module", "Register hooks once"),
        ("1/2: not self._modules['a']._backward_pre_hooks", "the hooks of a module", "hooks once"),
        ("0/0: tensor 'x' size mismatch at index 0. expected 64, actual 5", "a size", "dynamic"),
        ("0/7: s.k == 7   # s.k+=1  # train.py:22 in forward", "the number s.k", "tensor"),
        ("0/0: GLOBAL_STATE changed: grad_mode ", "the mode of gradients", "evaluation"),
        (
            "1/0: tensor 'x' requires_grad mismatch. expected requires_grad=0",
            "needs gradients",
            "Nothing",
        ),
        (
            "0/3: tensor 'x' dtype mismatch. expected Float, actual Double",
            "type of a tensor",
            "Convert",
        ),
        ("1/1: keys is queries   # alone  # train.py:15 in forward", "identity", "Create"),
    ],
)
def test_a_recompilation_says_what_changed_and_what_to_do_about_that(
    reason: str, what: str, advice: str
) -> None:
    case = without_profile(case_of(recorded(BERT_INDUCTOR), recorded(BERT)))
    again = frames({"function": "step"}, {"function": "step", "recompile_reason": reason})
    finding = kinds(replace(case, frames=again))["recompiled"]
    assert f"{what}" in str(finding_words(finding)).partition("changed")[0]
    assert advice in remedy_words(finding)
    assert ("dynamic=true" in remedy_words(finding)) == (what == "a size")


SIZE = "0/0: tensor 'x' size mismatch at index 1. expected 64, actual 5"
LENGTHS = {
    "distinct": 57,
    "calls": 80,
    "most_common": 5,
    "last_new": 78,
    "varying": [{"input": "ids", "dimension": 1, "sizes": 57, "least": 17, "most": 114}],
}


def with_shapes(shapes: object, *reasons: str) -> Case:
    """A run under Inductor that was compiled again for each of these reasons."""
    case = without_profile(case_of(recorded(BERT_INDUCTOR), recorded(BERT)))
    again = [{"function": "forward", "recompile_reason": reason} for reason in reasons]
    first = {"function": "forward"}
    return replace(case, frames=frames(first, *again), workload={"input_shapes": shapes})


def test_shapes_that_vary_are_found_with_what_they_cost_and_what_to_measure() -> None:
    by_kind = kinds(with_shapes(LENGTHS, SIZE, SIZE))
    assert {*by_kind} == {"shapes_vary"}, "sizes are not told again as another reason"
    finding = by_kind["shapes_vary"]
    assert str(finding_words(finding)) == (
        "the model's inputs had 57 shapes in 80 calls (dimension 1 of ids: 57 sizes from 17 to "
        "114); the last new one came in call 78. For that it was compiled 2 times more, for 2.00 s."
    )
    assert "torch._dynamo.mark_dynamic(ids, 1)" in remedy_words(finding)
    assert finding.remedy is not None and finding.remedy.backend == "inductor:dynamic=true"


def test_code_compiled_again_for_another_reason_stays_a_finding_beside_shapes() -> None:
    by_kind = kinds(with_shapes(LENGTHS, SIZE, "1/0: len(self._forward_hooks) == 0"))
    assert {*by_kind} == {"shapes_vary", "recompiled"}
    assert by_kind["recompiled"].facts["times"] == by_kind["shapes_vary"].facts["times"] == 1
    assert "hooks" in str(finding_words(by_kind["recompiled"]))


def test_a_last_small_batch_is_to_be_dropped() -> None:
    last = LENGTHS | {"distinct": 2, "most_common": 79, "last_new": 80}
    assert "drop_last" in remedy_words(kinds(with_shapes(last, SIZE))["shapes_vary"])


def test_under_cuda_graphs_each_shape_costs_a_graph_though_nothing_is_compiled_again() -> None:
    case = with_shapes(LENGTHS)
    assert "shapes_vary" not in kinds(case)
    graphs = replace(case, arm=replace(case.arm, mode="reduce-overhead"))
    finding = kinds(graphs)["shapes_vary"]
    assert "a CUDA graph of its own" in str(finding_words(finding))
    assert "multiples of 64" in remedy_words(finding)
    assert finding.remedy is not None and finding.remedy.backend == "inductor:dynamic=true"


@pytest.mark.parametrize(
    "shapes", [None, float("nan"), LENGTHS | {"distinct": 1}, LENGTHS | {"calls": None}]
)
def test_without_known_shapes_a_changed_size_stays_a_compilation(shapes: object) -> None:
    assert {*kinds(with_shapes(shapes, SIZE))} == {"recompiled"}


def test_at_the_limit_of_compilations_the_function_runs_without_a_compiler() -> None:
    case = without_profile(case_of(recorded(BERT_INDUCTOR), recorded(BERT)))
    reason = f"{GROUPS}['lr'] == 0.001{COMMENT}"
    rows = [{"function": "step", "recompile_reason": reason}] * 8
    over = {"failure": "Dynamo recompile limit exceeded", "recompile_reason": reason}
    by_kind = kinds(replace(case, frames=frames({"function": "step"}, *rows, over)))
    assert {*by_kind} == {"recompiled"} and by_kind["recompiled"].facts["times"] == 9
    assert "until Dynamo's limit" in str(finding_words(by_kind["recompiled"]))


def test_an_optimizer_that_compiles_longer_than_all_else_is_found_with_what_to_do() -> None:
    """47 s and 0.1 s of it in `torch/optim`, one more in its kernels; 32 + 13 s of all else."""
    case = case_of(recorded(BERT_INDUCTOR), recorded(BERT))
    frames = pd.DataFrame(
        [
            ("0/0", "runner/worker/step/stepping.py", 32.0),
            ("0/0", None, 13.0),
            ("3/0", "torch/optim/optimizer.py", 0.1),
            ("4/0", "torch/optim/adam.py", 47.0),
            ("4/0", None, 1.0),
        ],
        columns=["compile_id", "file", "total_seconds"],
    ).assign(recompile_reason=None, function="step")
    finding = kinds(replace(case, frames=frames))["optimizer_compiled_long"]
    assert finding.facts == pytest.approx({"optimizer_seconds": 48.1, "rest_seconds": 45.0})
    assert finding.remedy is not None and finding.remedy.backend == "inductor:scope=forward"
    longer = frames.assign(total_seconds=[34.0, 15.0, 0.1, 47.0, 1.0])
    assert "optimizer_compiled_long" not in kinds(replace(case, frames=longer))


def test_random_numbers_drawn_as_eager_does_are_found_under_inductor() -> None:
    drawn = (
        "void fused_dropout_kernel_vec<float>",
        "aten::native_dropout",
        "forward",
        "bf16",
        12.0,
        0.001,
    )
    by_kind = kinds(case_of(make_profile(frame(GEMM, drawn), 0.010), recorded(BERT)))
    remedy = by_kind["random_as_eager"].remedy
    assert remedy is not None and remedy.backend == "inductor:fallback_random=false"
    assert "random_as_eager" not in kinds(case_of(make_profile(frame(GEMM), 0.01), recorded(BERT)))


def test_padding_is_found_from_a_fifth_of_the_tokens_on() -> None:
    """Of a step of 42.8 ms the device works 14.5, 10.5 of which grow with tokens: 7 + 2.5 + 1. What
    it idles, fetches and does to weights takes as long without padding."""
    profile = make_profile(
        frame(
            ("nvjet_sm90_tst_1", "aten::mm", "forward", "bf16", 10.0, 0.007),
            ("void elementwise_kernel<4>", "aten::add", "backward", None, 10.0, 0.0025),
            ("triton_poi_fused_add_0", None, None, None, 10.0, 0.001),
            (
                "void multi_tensor_apply_kernel<Adam>",
                "aten::_fused_adam_",
                "optimizer",
                None,
                2.0,
                0.002,
            ),
            ("void elementwise_kernel<4>", "aten::div_", "optimizer", None, 9.0, 0.001),
            ("Memcpy HtoD (Pinned -> Device)", None, None, None, 2.0, 0.001),
        ),
        0.0428,
    )
    case = case_of(profile)
    finding = kinds(replace(case, workload={"padding_share": 0.743}))["padding"]
    assert finding.seconds == pytest.approx(0.743 * 0.0105)
    assert finding.share == pytest.approx(0.743 * 0.0105 / 0.0428)
    assert "padding" not in kinds(replace(case, workload={"padding_share": 0.1}))


def test_the_work_of_an_optimizer_that_is_compiled_with_the_rest_is_none_of_tokens() -> None:
    """On the CPU nothing tells which operators of a compiled step are the optimizer's: of 12 ms as
    much grows with tokens as without a compiler at most, which is 7."""
    product = ("aten::mm", "aten::mm", "forward", "float32", 10.0, 0.007)
    before = make_profile(
        frame(product, ("aten::div", "aten::div", "optimizer", None, 41.0, 0.005)), 0.02
    )
    after = make_profile(
        frame(product, ("aten::div", "aten::div", "forward", None, 41.0, 0.005)), 0.02
    )
    case = replace(case_of(after, before), workload={"padding_share": 0.5})
    assert kinds(case)["padding"].seconds == pytest.approx(0.5 * 0.007)
    assert kinds(replace(case, baseline=None))["padding"].seconds == pytest.approx(0.5 * 0.012)


def test_many_small_kernels_are_found_by_their_operator() -> None:
    """Adam that can be captured divides 404 scalars one by one."""
    finding = kinds(case_of(recorded(BERT)))["small_kernels"]
    assert (finding.facts["op"], finding.facts["calls"]) == ("aten::div_", 404.0)
    busy = case_of(recorded("DistilBertForMaskedLM.baseline"), precision="float32")
    assert "small_kernels" not in kinds(busy)


def test_one_generated_kernel_that_takes_more_than_all_such_work_before_is_found() -> None:
    """T5's relative positions: the gradient of a small embedding, added up atom by atom."""
    by_kind = kinds(case_of(recorded("T5Small.inductor"), recorded("T5Small.baseline")))
    finding = by_kind["costly_kernel"]
    assert "embedding_dense_backward" in finding.facts["kernel"]
    assert finding.facts["work_class"] == "indexing"
    assert "costly_kernel" not in kinds(case_of(recorded(BERT_INDUCTOR), recorded(BERT)))


def test_an_operator_that_fell_back_to_a_kernel_of_torchs_own_is_found_by_its_name() -> None:
    """The gradient of XLNet's relative positions: 7.5 of 50 ms."""
    kernel = "void at::native::indexFuncLargeIndex<c10::BFloat16, at::native::ReduceAdd>"
    added = (kernel, "aten::index_add_", "backward", "bf16", 12.0, 0.0075)
    fused = ("triton_poi_fused_add_1", None, "forward", None, 30.0, 0.0335)
    case = case_of(make_profile(frame(GEMM, fused, added), 0.05), recorded(BERT))
    finding = kinds(case)["fell_back"]
    assert (finding.facts["op"], finding.facts["kernel"]) == ("aten::index_add_", kernel)
    assert finding.share == pytest.approx(0.15)
    assert "aten::index_add_ runs in no fused code" in str(finding_words(finding))
    # A kernel that no class knows falls back as well, one of less than 2 % is not worth a word, and
    # eager's kernels are all of torch's own.
    strange = ("strange", None, None, None, 1.0, 0.002)
    unknown = case_of(make_profile(frame(GEMM, strange), 0.05), recorded(BERT))
    assert kinds(unknown)["fell_back"].facts["op"] is None
    short = (*added[:-1], 0.0009)
    assert "fell_back" not in kinds(case_of(make_profile(frame(GEMM, short), 0.05), recorded(BERT)))
    eager = case_of(make_profile(frame(GEMM, added), 0.05), recorded(BERT), backend="eager")
    assert "fell_back" not in kinds(eager)
    assert "fell_back" not in kinds(case_of(recorded(BERT_INDUCTOR), recorded(BERT)))


def test_kernels_that_no_class_knows_are_listed_by_name_the_longest_first() -> None:
    strange = [(f"strange_{number}", None, None, None, 1.0, 0.001 * number) for number in range(6)]
    profile = make_profile(frame(GEMM, *strange), 0.05)
    assert profile.unknown_kernels == [f"strange_{number}" for number in (5, 4, 3, 2, 1, 0)]
    said = str(profile_words(profile))
    assert "unclassified: strange_5, strange_4, strange_3, and 3 more." in said
    assert " unclassified." in str(profile_words(make_profile(frame(GEMM), 0.05)))


def test_an_optimizer_of_many_kernels_is_found_and_a_fused_one_is_not() -> None:
    finding = kinds(case_of(recorded(BERT)))["optimizer_unfused"]
    assert finding.remedy.fields == (("training.optimizer_options", {"fused": True}),)
    fused = (
        "void multi_tensor_apply_kernel<FusedAdamMathFunctor>",
        "aten::_fused_adam_",
        "optimizer",
        None,
        2.0,
        0.001,
    )
    assert "optimizer_unfused" not in kinds(case_of(make_profile(frame(GEMM, fused), 0.010)))


def test_data_that_travel_in_every_step_are_found() -> None:
    copy = ("Memcpy DtoH (Device -> Pageable)", "aten::item", "forward", None, 1.0, 2e-6)
    finding = kinds(case_of(make_profile(frame(GEMM, copy), 0.010)))["copied_each_step"]
    assert finding.facts["waits"] == 1.0
    assert "copied_each_step" not in kinds(case_of(make_profile(frame(GEMM), 0.010)))


def test_the_same_in_several_runs_is_told_once_of_the_one_it_costs_most() -> None:
    baseline = recorded(BERT)
    first = case_of(recorded(BERT_INDUCTOR), baseline)
    second = case_of(
        recorded("BertForMaskedLM.inductor-reduce-overhead"),
        baseline,
        backend="inductor:mode=reduce-overhead",
    )
    (finding,) = (
        candidate
        for candidate in findings([second, first])
        if candidate.kind == "attention_unfused"
    )
    shares = {case.profile.label: finding.share for case in (first, second)}
    assert finding.label in shares and len(finding.also) == 1
    assert finding.also[0][0] != finding.label


def test_the_most_costly_comes_first() -> None:
    costs = findings([case_of(recorded(BERT_INDUCTOR), recorded(BERT)), case_of(recorded(BERT))])
    shares = [finding.share or 0.0 for finding in costs]
    assert shares == sorted(shares, reverse=True) and len(costs) >= 4
