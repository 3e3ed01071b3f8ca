"""torch's tutorial of DistributedDataParallel with torchrun: a Trainer, DistributedSampler, and TensorBoard's writer."""
import os

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, Dataset
from torch.utils.data.distributed import DistributedSampler
from torch.utils.tensorboard import SummaryWriter


class MyTrainDataset(Dataset):
    def __init__(self, size):
        self.size = size
        generator = torch.Generator().manual_seed(0)
        self.data = [(torch.rand(20, generator=generator), torch.rand(1, generator=generator)) for _ in range(size)]

    def __len__(self):
        return self.size

    def __getitem__(self, index):
        return self.data[index]


class Trainer:
    def __init__(self, model, train_data, optimizer):
        self.rank = int(os.environ["RANK"])
        self.model = DDP(model)
        self.train_data, self.optimizer = train_data, optimizer
        self.writer = SummaryWriter() if self.rank == 0 else None
        self.step = 0

    def _run_batch(self, source, targets):
        self.optimizer.zero_grad()
        loss = torch.nn.functional.mse_loss(self.model(source), targets)
        loss.backward()
        self.optimizer.step()
        self.step += 1
        if self.writer:
            self.writer.add_scalar("train/loss", loss.item(), self.step)

    def train(self, max_epochs):
        for epoch in range(max_epochs):
            self.train_data.sampler.set_epoch(epoch)
            print(f"[rank {self.rank}] epoch {epoch} | steps {len(self.train_data)}", flush=True)
            for source, targets in self.train_data:
                self._run_batch(source, targets)
        if self.writer:
            self.writer.close()


def main():
    dist.init_process_group(backend="gloo")
    torch.manual_seed(0)
    model = torch.nn.Linear(20, 1)
    dataset = MyTrainDataset(64)
    train_data = DataLoader(dataset, batch_size=8, shuffle=False, sampler=DistributedSampler(dataset))
    trainer = Trainer(model, train_data, torch.optim.SGD(model.parameters(), lr=1e-2))
    trainer.train(5)
    total = sum(p.sum().item() for p in model.parameters())
    print(f"[rank {trainer.rank}] parameters {total:.6f}", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
