"""resume_lightning.py STEPS: Lightning's Trainer with DDP, its TensorBoard logger, and a checkpoint every five steps."""
import os
import sys
import time

import lightning as L
import torch


class Net(L.LightningModule):
    def __init__(self):
        super().__init__()
        self.layer = torch.nn.Linear(4, 1)

    def training_step(self, batch, index):
        time.sleep(0.03)
        loss = (self.layer(batch) - 3).square().mean()
        self.log("loss", loss)
        return loss

    def configure_optimizers(self):
        return torch.optim.Adam(self.parameters(), lr=1e-3)


L.seed_everything(1)
saver = L.pytorch.callbacks.ModelCheckpoint(dirpath=os.environ["TRAINYARD_CHECKPOINTS"], every_n_train_steps=5, save_top_k=-1)
trainer = L.Trainer(max_steps=int(sys.argv[1]), accelerator="cpu", devices=2, strategy="ddp", log_every_n_steps=1,
                    enable_progress_bar=False, callbacks=[saver])
trainer.fit(Net(), torch.utils.data.DataLoader(torch.ones(100000, 4), batch_size=4),
            ckpt_path=os.environ["TRAINYARD_RESUME"] or None, weights_only=False)
