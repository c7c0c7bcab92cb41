"""Classification of texts, by a transformers model."""

from breakeven.runner.specs.experiment import ExperimentSpec
from breakeven.runner.specs.workload import Task
from breakeven.runner.worker.data.samples import choose_texts, number_labels
from breakeven.runner.worker.data.splits import Dataset, make_split
from breakeven.runner.worker.model.loaded_workload import CLASS_METRICS, Workload, align_classes
from breakeven.runner.worker.model.transformers_models import (
    BERT_MODELS,
    classification_settings,
    import_model,
    make_model,
    make_tokenizer,
    text_shape,
    tokenize,
)

TASK = Task(
    learns="the label of a text",
    samples="texts",
    labels="sample",
    models=BERT_MODELS,
    data=("builtin:reviews",),
    metrics=CLASS_METRICS,
)
AUTO_CLASS = "AutoModelForSequenceClassification"


def import_packages(experiment: ExperimentSpec) -> None:
    """Imports what `load` imports."""
    import_model(experiment, AUTO_CLASS)


def load(experiment: ExperimentSpec) -> Workload:
    """Loads a workload; raises `RunnerError` for an unusable model or data."""
    samples = choose_texts(experiment.data, experiment.training.seed)
    tokenizer = make_tokenizer(experiment.model, samples["train"].samples)
    names, labels = number_labels(samples)
    length = experiment.data.sequence_length
    splits = {
        part: make_split(tokenize(tokenizer, content.samples, length), labels[part])
        for part, content in samples.items()
    }
    # Generative models find a text's end by the padding after it.
    settings = classification_settings(names) | {"pad_token_id": tokenizer.pad_token_id}
    return Workload(
        model=make_model(
            experiment,
            AUTO_CLASS,
            settings=settings,
            shape=text_shape(experiment, tokenizer),
        ),
        data=Dataset(**splits, labels=names, vocabulary_size=len(tokenizer)),
        metrics=TASK.metrics,
        align=align_classes,
    )
