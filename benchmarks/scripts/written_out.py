"""The training that a specification describes, written as a script: FILE is the specification.

`python -m runner script benchmarks/scripts/written_out.py -- FILE` (agreement.py calls it). Model,
samples and their order are those of the specification; the loop is a person's own.
"""

import json
import sys
from pathlib import Path

import torch

import breakeven
from runner.specs.experiment import ExperimentSpec
from runner.worker.data.batches import EpochBatches
from runner.worker.model.workload import load_workload


def main() -> None:
    spec = ExperimentSpec.from_dict(json.loads(Path(sys.argv[1]).read_text()))
    training = spec.training
    device = "cuda" if torch.cuda.is_available() else "cpu"
    workload = load_workload(spec)
    samples = workload.data.train.to(torch.device(device))
    model = breakeven.compile(workload.model.to(device).train())
    optimizer = torch.optim.AdamW(model.parameters(), lr=training.learning_rate)
    for epoch in range(training.epochs):
        batches = EpochBatches(samples, training, epoch, symbolic_size=False)
        for place in range(len(samples) // training.batch_size):
            (batch,) = batches.window(place)
            loss = model(**batch.inputs).loss
            loss.backward()
            optimizer.step()
            optimizer.zero_grad()
            breakeven.step(loss, samples=training.batch_size)


if __name__ == "__main__":
    main()
