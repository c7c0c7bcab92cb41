"""The page of figures: what the harness timed, what Breakeven timed, and whether they agree."""

from collections.abc import Iterable, Iterator, Sequence
from statistics import geometric_mean, mean
from typing import Any

from benchmarks.harness_figures.figures import NEAR, RUNS, Figure, reason

Record = dict[str, Any]
PARTS = {"training": "Training", "inference": "Inference"}
SUITES = {"huggingface": "transformers", "timm": "timm"}
VERSIONS = ("torch", "transformers", "triton", "timm", "harness")
HEAD = (
    "| model | harness, twice | by itself | ours | ours / harness | kernels | |\n"
    "|---|---:|---:|---:|---:|---:|---|"
)
INTRO = """# The harness's figures beside ours

Made by `python -m benchmarks.harness_figures write` from what `record` measured; how to repeat it
is at the end.

{environment}

Each model in both tools on one device within half a minute: the harness, then Breakeven, then the
harness again, while everything else that was being prepared on the machine stood still. Medians, in
ms a step, bf16. *Harness, twice*: its own timing before and after ours; what it does with compiled
steps is its `abs_latency`, and uncompiled ones are that times its speedup. *By itself*: the same
steps by the harness's own clock, but ten of one kind in a row, before and after. *Ours*: steps with
the device waited for after each ([waited_seconds](metrics.md#waited_seconds)). *Kernels*: what the
device works in a step, from the profile of ours, and behind it, where it was recorded, of the
harness's. Bold: further than 3 % apart. A model that was recorded more than once stands here with
its newest record, and with all of them in a table of its own; they are in
`benchmarks/harness_figures/h100.jsonl`.
"""
REPEATED = """
## Recorded more than once

Compiled, since steps alternate. Most of these were recorded again *because* they lay further apart,
so their newest records alone would flatter: the mean of all of a model's records counts here. By it
{agreeing} of all {count} figures are within 3 %.

| model | | ours / harness, each time | mean | harness to itself | more | of it kernels |
|---|---|---|---:|---|---:|---:|"""
READING = """
## Why figures differ

* **Alternating.** The harness makes an uncompiled step before every compiled one, Breakeven five
  or ten of a kind in a row. A compiled step of a few ms then begins with caches that another has
  filled. Timed by the harness's own function, but in a row, its compiled steps take less. Under the
  harness's settings Breakeven, too, makes an uncompiled step before each compiled one that is
  waited for, since 2026-11-23; all rows are from after that.
* **Kernels.** Inductor tries several launch configurations of a Triton kernel while it compiles and
  takes the fastest, and both tools compile each for itself, while other models compile beside them.
  So the same kernels, by name and number, do not take the same time: one of DistilBertForMaskedLM's
  forward pass 0.23 ms there and 0.72 here, the gradient of T5Small's embeddings 10.2 ms there and
  8.05 here. That is what T5Small's compiled training differs by; it is built as the harness builds
  it, and on a CPU the compiler gets the same graphs of both.
* **The host.** Without a compiler, kernels are shorter than the host takes to start them, so a
  step takes what the host's Python takes, and on these virtual machines that changes within
  seconds by up to a factor of two: the harness's own two runs differ by as much. Two figures agree
  there by chance; the time of the kernels and the spread of steps stand in the table. Whether what
  all together differ by is more than that, so few models cannot tell.
* **The order of work.** In every training step the harness copies its inputs, and clears gradients
  before the forward pass; Breakeven copied nothing, and cleared them at the end, while the device
  still works. So the harness has more graphs to start, one after the other, and the device stands
  still between them: by its own clock, in its own process, GPT2ForSequenceClassification,
  repvgg_a2 and mobilenetv2_100 took 2 to 5 % longer in its order (`apart` in earlier records of
  these models). Under the harness's settings a suite's training steps follow its order since
  2026-11-23, and the trainings recorded since agree where the harness agrees with itself.
* **What is asked for differs a little.** Models that the harness trains by SGD are trained by SGD
  here, but it does not compile that optimizer, and Breakeven does. For image models it takes the
  mean of what they answer for a loss, Breakeven cross-entropy.
* **Two models were not the same.** The harness's kernels took 17.1 ms for DistillGPT2 and 13.8
  here: Breakeven had named GPT-2's loss, which otherwise is settled in the forward pass with a
  warning that breaks the compiler's graph, so that the harness writes out its logits. Built as the
  harness builds it, both take 17.1 ms, and the steps agree.
* **Open**: forward passes of 3 to 5 ms of three models (mobilenetv2_100, OPTForCausalLM,
  GPT2ForSequenceClassification) take 0.17 to 0.31 ms longer here, in the mean of three to five
  records each, with kernels that take the same time to 0.05 ms. How the model is called does not
  tell why: on a CPU (torch 2.13.0, medians of 400 calls in turns) a GPT-2 of as many tensors and
  hardly any work answers in 1,213 us our way, with autocast around what is compiled, and in 1,212
  to 1,229 the harness's way, with autocast in it. Other forward passes as short agree.
"""
STATUSES = """\
Where they differ:

* **T5Small, inference.** The harness first compares two uncompiled runs. Their answers hold a cache
  of keys and values, a type that its comparison does not know: it raises "unsupported type:
  EncoderDecoderCache" (seen so on a CPU, transformers 5.23), which counts as *two runs differ*.
  Nothing was compared.

Three that once differed were found to be wrong here, mended and recorded again: OPTForCausalLM and
T5Small in training (operations were not asked strictly to repeat themselves), and TrOCRForCausalLM
in training (gradients that are rounding and nothing else, of biases of attention's keys, may be
rounded otherwise: [accuracy_rule](metrics.md#accuracy_rule)).
"""
REPEAT = """## To repeat it

`CHECKOUT` is `benchmarks/dynamo` of pytorch/pytorch, or `userbenchmark/dynamo/dynamobench` of
pytorch/benchmark with the file `timm_models.yaml` of the former; nothing of it is copied into this
repository. Beside Breakeven's own packages the harness needs pandas, scipy, psutil, tabulate,
tqdm, PyYAML, and timm and torchvision for image models. No network is needed: configurations that
the harness fetches are replaced by the same ones made by hand, and image models have random
weights.

    python -m benchmarks.harness_figures record CHECKOUT --at-once 4 --training-at-once 2
    python -m benchmarks.harness_figures record CHECKOUT --accuracy --at-once 4 --training-at-once 2
    python -m benchmarks.harness_figures write

Nearly all of the two to four minutes that a model takes is compiling, so several are prepared at
once, as many as the device's memory holds: five trainings and three forward passes at the
harness's batch sizes did not fit 80 GB. What fails beside others is tried again beside fewer.
Records are appended one by one, and what is there is not measured again.
"""


def newest(records: Iterable[Record]) -> list[Record]:
    """Of what was recorded more than once, the last one, where the first one stood."""
    found = {}
    for one in records:
        if "lost" not in one:
            found[one["suite"], one["model"], one["part"], one["checks"]] = one
    return list(found.values())


def page(records: Sequence[Record]) -> str:
    """The whole document."""
    again = repeated(records)
    records = newest(records)
    timed = [one for one in records if not one["checks"]]
    checked = [one for one in records if one["checks"]]
    text = [INTRO.format(environment=_environments(timed)), _summary(timed)]
    for part, title in PARTS.items():
        for kind in RUNS:
            text.append(f"\n## {title}, {kind}\n\n{HEAD}")
            text += [row(one, kind) for one in timed if one["part"] == part]
    text += [*again, READING, *_statuses(checked), REPEAT]
    return "\n".join(text)


def repeated(records: Iterable[Record]) -> Iterator[str]:
    """What each record says of a cell that has several under the same order of steps."""
    figures: dict[tuple[str, str], list[Figure]] = {}
    for one in records:
        if "lost" not in one and not one["checks"]:
            figure = Figure.of(one, "compiled")
            if figure.alternates:
                figures.setdefault((one["model"], one["part"]), []).append(figure)
    ratios = [geometric_mean(one.ratio for one in found) for found in figures.values()]
    agreeing = sum(abs(ratio - 1) <= NEAR for ratio in ratios)
    yield REPEATED.format(agreeing=agreeing, count=len(figures))
    for (model, part), found in figures.items():
        if len(found) > 1:
            yield f"| {model} | {part} | {_of_several(found)} |"


def _of_several(found: Sequence[Figure]) -> str:
    ratio = geometric_mean(one.ratio for one in found)
    mark = "" if abs(ratio - 1) <= NEAR else "**"
    cells = [
        ", ".join(f"{one.ratio:.3f}" for one in found),
        f"{mark}{ratio:.3f}{mark}",
        ", ".join(f"{one.own_ratio:.3f}" for one in found),
        _more(one.ours - geometric_mean(one.harness) for one in found),
        _more(one.kernels - geometric_mean(one.harness_kernels)
              for one in found if one.harness_kernels),
    ]  # fmt: skip
    return " | ".join(cells)


def _more(seconds: Iterable[float]) -> str:
    found = list(seconds)
    return f"{mean(found) * 1e3:+.2f} ms" if found else ""


def row(record: Record, kind: str) -> str:
    """A model's line."""
    figure = Figure.of(record, kind)
    mark = "" if figure.agrees else "**"
    cells = [
        record["model"],
        ", ".join(map(_ms, figure.harness)),
        ", ".join(map(_ms, figure.alone)),
        _ms(figure.ours),
        f"{mark}{figure.ratio:.3f}{mark}",
        "; ".join([_ms(figure.kernels), *map(_ms, figure.harness_kernels[:1])]),
        "" if figure.agrees else reason(figure, kind),
    ]
    return "| " + " | ".join(cells) + " |"


def _summary(records: Sequence[Record]) -> str:
    lines = [f"Models so far: {', '.join(_counted(records))}.\n"]
    for kind in RUNS:
        figures = [Figure.of(record, kind) for record in records]
        agreeing = sum(one.agrees for one in figures)
        apart = [reason(one, kind) for one in figures if not one.agrees]
        unknown = sum(text.startswith("open") for text in apart)
        quiet = [one for one in figures if not one.is_restless]
        alone = [one for one in figures if one.alone]
        agreeing_alone = sum(one.agrees_alone for one in alone)
        lines.append(
            f"* **{kind.capitalize()}**: {agreeing} of {len(figures)} within 3 %, "
            f"{len(apart) - unknown} further apart with a reason, {unknown} without. Where the "
            f"harness's own two runs agree within 3 %: {sum(one.agrees for one in quiet)} of "
            f"{len(quiet)}. Against its steps by themselves {agreeing_alone} of {len(alone)} "
            "agree, or lie between its two. Of all together, ours take "
            f"{_mean(one.ratio for one in figures)} of the harness's time, and "
            f"{_mean(one.ratio_alone for one in alone)} of that of its steps by themselves."
        )
    return "\n".join(lines)


def _mean(ratios: Iterable[float]) -> str:
    found = list(ratios)
    return f"{geometric_mean(found):.3f}" if found else "no known part"


def _counted(records: Iterable[Record]) -> Iterator[str]:
    for suite, name in SUITES.items():
        for part in PARTS:
            models = {one["model"] for one in records
                      if one["suite"] == suite and one["part"] == part}  # fmt: skip
            yield f"{len(models)} of {name} in {part}"


def _statuses(records: Sequence[Record]) -> Iterator[str]:
    yield "## Accuracy statuses\n"
    if not records:
        yield "Not compared on a GPU yet.\n"
        return
    yield f"{_environments(records)}\n"
    same = sum(one["harness"] == one["ours"] for one in records)
    yield f"{same} of {len(records)} agree.\n"
    yield "| model | | harness | ours | what they said |\n|---|---|---|---|---|"
    for one in records:
        agree = one["harness"] == one["ours"]
        said = {} if agree else one.get("said", {})
        words = "; ".join(f"{who}: {text}" for who, text in said.items() if text)
        yield f"| {one['model']} | {one['part']} | {one['harness']} | {one['ours']} | {words} |"
    yield f"\n{STATUSES}"


def _environments(records: Iterable[Record]) -> str:
    found: dict[str, None] = {}
    for one in records:
        about = one["environment"]
        versions = ", ".join(f"{name} {version}" for name, version in about["versions"].items()
                             if name in VERSIONS)  # fmt: skip
        text = (
            f"{about['device_name']}, driver {about['driver']}, {about['num_cpus']} CPUs "
            f"({about['cpu_model']}), Python {about['python']}, {versions}, {one['date']}."
        )
        found[text] = None
    return "\n".join(found)


def _ms(seconds: float) -> str:
    return f"{seconds * 1e3:.4g}"
