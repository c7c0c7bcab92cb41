"""Lightning's Trainer fits a curve. Nothing is changed.

python lightning_module.py --epochs 2       as ever
breakeven run --backends inductor examples/scripts/lightning_module.py --epochs 2
"""

import argparse

import lightning
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset


class Curve(lightning.LightningModule):
    def __init__(self) -> None:
        super().__init__()
        self.net = nn.Sequential(nn.Linear(1, 64), nn.Tanh(), nn.Linear(64, 64), nn.Tanh())
        self.head = nn.Linear(64, 1)

    def training_step(self, batch, batch_idx):
        loss = self.error(batch)
        self.log("train_loss", loss)
        return loss

    def validation_step(self, batch, batch_idx):
        self.log("val_loss", self.error(batch))

    def error(self, batch):
        places, heights = batch
        return nn.functional.mse_loss(self.head(self.net(places)), heights)

    def configure_optimizers(self):
        return torch.optim.Adam(self.parameters(), lr=1e-2)


def curve(count: int, seed: int) -> TensorDataset:
    places = 3 * torch.randn(count, 1, generator=torch.Generator().manual_seed(seed))
    return TensorDataset(places, places.sin())


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--epochs", type=int, default=2)
    parser.add_argument("--accumulate", type=int, default=2)
    options = parser.parse_args()

    lightning.seed_everything(0)
    trainer = lightning.Trainer(
        max_epochs=options.epochs,
        accumulate_grad_batches=options.accumulate,
        logger=False,
        enable_progress_bar=False,
    )
    train = DataLoader(curve(640, seed=1), batch_size=16, shuffle=True)
    trainer.fit(Curve(), train, DataLoader(curve(160, seed=2), batch_size=16))
    print(trainer.callback_metrics)


if __name__ == "__main__":
    main()
