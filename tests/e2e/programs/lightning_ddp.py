"""Lightning's Trainer with DDP, as in "Lightning in 15 minutes", with its own logger."""
import lightning as L
import torch
from torch import nn


class LitAutoEncoder(L.LightningModule):
    def __init__(self):
        super().__init__()
        self.encoder = nn.Sequential(nn.Linear(28 * 28, 64), nn.ReLU(), nn.Linear(64, 3))
        self.decoder = nn.Sequential(nn.Linear(3, 64), nn.ReLU(), nn.Linear(64, 28 * 28))

    def training_step(self, batch, batch_idx):
        x, _ = batch
        x = x.view(x.size(0), -1)
        loss = nn.functional.mse_loss(self.decoder(self.encoder(x)), x)
        self.log("train_loss", loss)
        return loss

    def configure_optimizers(self):
        return torch.optim.Adam(self.parameters(), lr=1e-3)


if __name__ == "__main__":
    L.seed_everything(1)
    dataset = torch.utils.data.TensorDataset(torch.rand(160, 1, 28, 28), torch.zeros(160))
    trainer = L.Trainer(accelerator="cpu", devices=2, strategy="ddp", max_epochs=2, log_every_n_steps=1,
                        enable_progress_bar=False)
    trainer.fit(LitAutoEncoder(), torch.utils.data.DataLoader(dataset, batch_size=8))
    print(f"rank {trainer.global_rank} of {trainer.world_size} at step {trainer.global_step}", flush=True)
