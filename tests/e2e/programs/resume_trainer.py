"""resume_trainer.py STEPS: Hugging Face's Trainer on two ranks, with report_to TensorBoard and a checkpoint every five steps."""
import os
import sys
import time

os.environ["TENSORBOARD_LOGGING_DIR"] = os.environ["TRAINYARD_TENSORBOARD"]
import torch
import transformers

transformers.set_seed(1)


class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = torch.nn.Linear(2, 1)

    def forward(self, x, labels=None):
        time.sleep(0.03)
        y = self.layer(x).squeeze(-1)
        return {"loss": (y - labels).square().mean(), "logits": y}


data = [{"x": torch.tensor([i / 50, 1.0]), "labels": torch.tensor(i / 25)} for i in range(64)]
args = transformers.TrainingArguments(output_dir=os.environ["TRAINYARD_CHECKPOINTS"], max_steps=int(sys.argv[1]),
                                      per_device_train_batch_size=4, save_strategy="steps", save_steps=5,
                                      logging_steps=1, report_to="tensorboard", use_cpu=True, disable_tqdm=True)
trainer = transformers.Trainer(model=Net(), args=args, train_dataset=data)
trainer.train(resume_from_checkpoint=os.environ["TRAINYARD_RESUME"] or None)
