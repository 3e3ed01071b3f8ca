"""Lightning's GAN: manual optimization of two optimizers that are toggled, here with accumulated gradients and DDP."""
import lightning as L
import torch
from torch import nn
from torch.nn import functional as F


class Generator(nn.Module):
    def __init__(self, latent_dim, img_shape):
        super().__init__()
        self.img_shape = img_shape
        self.model = nn.Sequential(nn.Linear(latent_dim, 32), nn.BatchNorm1d(32, 0.8), nn.LeakyReLU(0.2),
                                   nn.Linear(32, img_shape.numel()), nn.Tanh())

    def forward(self, z):
        return self.model(z).view(-1, *self.img_shape)


class Discriminator(nn.Module):
    def __init__(self, img_shape):
        super().__init__()
        self.model = nn.Sequential(nn.Linear(img_shape.numel(), 32), nn.LeakyReLU(0.2), nn.Linear(32, 1), nn.Sigmoid())

    def forward(self, img):
        return self.model(img.flatten(1))


class GAN(L.LightningModule):
    def __init__(self, shape=torch.Size((1, 8, 8)), latent_dim=16, lr=2e-4, accumulate=2):
        super().__init__()
        self.save_hyperparameters(ignore="shape")
        self.automatic_optimization = False
        self.generator, self.discriminator = Generator(latent_dim, shape), Discriminator(shape)

    def adversarial_loss(self, y_hat, y):
        return F.binary_cross_entropy(y_hat, y)

    def _optimize(self, optimizer, loss, batch_idx):
        self.manual_backward(loss / self.hparams.accumulate)
        if (batch_idx + 1) % self.hparams.accumulate == 0:
            optimizer.step()
            optimizer.zero_grad()
        self.untoggle_optimizer(optimizer)

    def training_step(self, batch, batch_idx):
        (imgs,) = batch
        optimizer_g, optimizer_d = self.optimizers()
        z = torch.randn(imgs.shape[0], self.hparams.latent_dim).type_as(imgs)

        self.toggle_optimizer(optimizer_g)
        valid = torch.ones(imgs.size(0), 1).type_as(imgs)
        g_loss = self.adversarial_loss(self.discriminator(self.generator(z)), valid)
        self.log("g_loss", g_loss, prog_bar=True)
        self._optimize(optimizer_g, g_loss, batch_idx)

        self.toggle_optimizer(optimizer_d)
        fake = torch.zeros(imgs.size(0), 1).type_as(imgs)
        real_loss = self.adversarial_loss(self.discriminator(imgs), valid)
        fake_loss = self.adversarial_loss(self.discriminator(self.generator(z).detach()), fake)
        d_loss = (real_loss + fake_loss) / 2
        self.log("d_loss", d_loss, prog_bar=True)
        self._optimize(optimizer_d, d_loss, batch_idx)

    def configure_optimizers(self):
        settings = {"lr": self.hparams.lr, "betas": (0.5, 0.999)}
        return [torch.optim.Adam(self.generator.parameters(), **settings),
                torch.optim.Adam(self.discriminator.parameters(), **settings)], []


if __name__ == "__main__":
    L.seed_everything(1)
    images = torch.utils.data.TensorDataset(torch.rand(128, 1, 8, 8))
    trainer = L.Trainer(accelerator="cpu", devices=2, strategy="ddp_find_unused_parameters_true", max_epochs=2,
                        log_every_n_steps=1, enable_progress_bar=False)
    trainer.fit(GAN(), torch.utils.data.DataLoader(images, batch_size=8))
    print(f"rank {trainer.global_rank} of {trainer.world_size} at step {trainer.global_step}", flush=True)
