"""The harness's files, as they must be changed to run without a network."""

import ast
import re
import shutil
from collections.abc import Callable
from pathlib import Path

NEEDED = ("common.py", "huggingface.py", "timm_models.py", "huggingface.yaml", "timm_models.yaml")
CONFIGURATIONS = {
    "t5-small": "__import__('transformers').T5Config()",
    "distilgpt2": "__import__('transformers').GPT2Config(n_layer=6)",
    "google/fnet-base": "__import__('transformers').FNetConfig()",
    "YituTech/conv-bert-base": "__import__('transformers').ConvBertConfig()",
}
"""What stands for configurations that `huggingface.py` fetches from the hub: the same by hand."""
FETCHED = re.compile(r'AutoConfig\.from_pretrained\("([^"]+)"\)')
NO_GENERATION = "HF_LLM_MODELS = {}\n"
"""In place of a module of models that generate text, with weights of the hub."""


class Checkout:
    """A copy of `userbenchmark/dynamo/dynamobench` of pytorch/benchmark, or of `benchmarks/dynamo`
    of pytorch/pytorch."""

    def __init__(self, source: Path, copy: Path, version: str = "") -> None:
        """`version` is for people: where it is from, and of when. Raises `FileNotFoundError` if a
        file is missing."""
        self.version = version or source.name
        for name in NEEDED:
            if not (source / name).is_file():
                raise FileNotFoundError(
                    f"{source / name}: the checkout has no such file; timm_models.yaml is in "
                    "benchmarks/dynamo of pytorch/pytorch alone"
                )
        self.path = copy
        shutil.copytree(source, copy, dirs_exist_ok=True)
        (copy / "huggingface_llm_models.py").write_text(NO_GENERATION)
        _change(
            copy / "huggingface.py",
            lambda text: FETCHED.sub(lambda found: CONFIGURATIONS.get(found[1], "None"), text),
        )
        # Weights are random in Breakeven, and decide neither speed nor sameness.
        _change(
            copy / "timm_models.py",
            lambda text: text.replace("pretrained=True)", "pretrained=False)"),
        )
        self._uses_sgd = _names(copy / "common.py", "BENCHMARK_USE_SGD")

    def optimizer(self, model: str) -> str:
        """What the harness trains a model with on a GPU."""
        return "SGD" if model in self._uses_sgd else "Adam"


def _change(file: Path, change: Callable[[str], str]) -> None:
    file.write_text(change(file.read_text()))


def _names(file: Path, variable: str) -> frozenset[str]:
    """The set of texts that a module assigns to a variable, without running it."""
    for node in ast.parse(file.read_text()).body:
        if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == variable:
            return frozenset(ast.literal_eval(node.value))
    raise ValueError(f"{file} does not assign {variable}")
