# SPDX-License-Identifier: Apache-2.0
"""roofline_job.py MODEL SHARE [WORKERS [STEPS [HOW...]]]: trains a small model of a real shape; its loader takes SHARE
of the time.

The model's step is filled up to STEP_S by sleep. Without workers a batch takes SHARE / (1 - SHARE) of what that took, so
SHARE is right whatever else the machine does; with workers each takes as long for one as makes them together so much
slower than the model. HOW: bare (the model's own time only), epochs (three of them), shuffle, writes (into its batches),
evaluates (between epochs), persistent (workers, which the evaluation uses, too).
"""
import sys
import time

import torch
from torch.utils.data import DataLoader, Dataset

STEP_S = 0.030
BATCH = 16


class Pace:
    """Makes pieces of work take as long as they shall on average: one that sleeps a bit too long shortens the next."""

    FORGOTTEN_S = 0.003  # what a busy machine took beyond that is nobody's to make good

    def __init__(self):
        self.owed = self.spent = 0.0

    def fill(self, began, seconds):
        self.owed = max(self.owed, self.spent - self.FORGOTTEN_S) + seconds
        left = self.owed - self.spent - (time.monotonic() - began)
        if left > 0:  # also a sleep of nothing gives the CPU away
            time.sleep(left)
        self.spent += time.monotonic() - began


class Data(Dataset):
    def __init__(self, shape, share, workers, batches):
        self.made = [shape(i) for i in range(min(batches, 64))]
        self.share, self.workers, self.batches = share, workers, batches
        self.model_s, self.pace = STEP_S, Pace()

    def __len__(self):
        return self.batches

    def __getitem__(self, i):
        """A whole batch."""
        began, pause = time.monotonic(), self.share / (1 - self.share) * self.model_s
        if self.workers:
            pause = self.workers * STEP_S / (1 - self.share) if self.share else 0
        batch = {k: v.clone() for k, v in self.made[i % len(self.made)].items()}
        self.pace.fill(began, pause)
        return batch


class Transformer(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.embed = torch.nn.Embedding(1000, 64)
        self.layers = torch.nn.ModuleList(
            torch.nn.TransformerEncoderLayer(64, 4, 128, batch_first=True) for _ in range(2))
        self.head = torch.nn.Linear(64, 10)

    def forward(self, x):
        x = self.embed(x)
        for layer in self.layers:
            x = layer(x)
        return self.head(x.mean(1))


class Tables(torch.nn.Module):
    """Most of it is tables, of which a batch touches a few rows."""

    def __init__(self):
        super().__init__()
        self.tables = torch.nn.ModuleList(torch.nn.EmbeddingBag(50000, 32, sparse=True, mode="sum") for _ in range(8))
        self.top = torch.nn.Sequential(torch.nn.Linear(256, 128), torch.nn.ReLU(), torch.nn.Linear(128, 10))

    def forward(self, x):
        return self.top(torch.cat([t(x[:, i]) for i, t in enumerate(self.tables)], 1))


def cnn():
    c = torch.nn.Conv2d
    return torch.nn.Sequential(c(3, 16, 3, 2, 1), torch.nn.BatchNorm2d(16), torch.nn.ReLU(), c(16, 32, 3, 2, 1),
                               torch.nn.ReLU(), torch.nn.AdaptiveAvgPool2d(1), torch.nn.Flatten(), torch.nn.Linear(32, 10))


def images(i):
    g = torch.Generator().manual_seed(i)
    return {"x": torch.randn(BATCH, 3, 64, 64, generator=g), "y": torch.randint(10, (BATCH,), generator=g)}


def words(i):
    g = torch.Generator().manual_seed(i)
    length = 16 + 16 * int(torch.randint(4, (1,), generator=g))  # batches of four lengths
    return {"x": torch.randint(1000, (BATCH, length), generator=g), "y": torch.randint(10, (BATCH,), generator=g)}


def ids(i):
    g = torch.Generator().manual_seed(i)
    return {"x": torch.randint(50000, (16 * BATCH, 8, 20), generator=g), "y": torch.randint(10, (16 * BATCH,), generator=g)}


def main(model, share, workers=0, steps=400, *how):
    share, workers, steps = float(share), int(workers), int(steps)
    torch.manual_seed(0)
    torch.set_num_threads(1)
    make, shape = {"cnn": (cnn, images), "transformer": (Transformer, words), "tables": (Tables, ids)}[model]
    net = make()
    optimizer = torch.optim.SGD(net.parameters(), 0.01)
    data = Data(shape, share, workers, max(steps // 3, 1) if "epochs" in how else steps)
    loader = DataLoader(data, batch_size=None, shuffle="shuffle" in how, num_workers=workers,
                        persistent_workers="persistent" in how)
    done, pace = 0, Pace()
    while done < steps:
        for batch in loader:
            began = time.monotonic()
            x, y = batch.pop("x"), batch.pop("y")
            if "writes" in how:
                x.add_(1)
                assert abs(x.mean().item() - 1) < 0.5, "it was written to before"
            loss = torch.nn.functional.cross_entropy(net(x), y)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            if "bare" not in how:
                pace.fill(began, STEP_S)
            data.model_s = time.monotonic() - began
            done += 1
            if done == steps:
                break
        if "evaluates" in how:
            with torch.no_grad():
                again = loader if "persistent" in how else DataLoader(data, batch_size=None, num_workers=workers)
                for i, batch in enumerate(again):
                    net(batch["x"])
                    if i == 20:
                        break
    print(done, loss.item().hex(), sum(p.detach().double().sum().item() for p in net.parameters()).hex())


if __name__ == "__main__":
    main(*sys.argv[1:])
