"""One peer's training step, in a process that waits between rounds: `go` on standard input makes one round, an empty line
ends it. Prints one JSON line per round: seconds of each step, and the most memory beyond what Python and PyTorch had taken.
"""

import argparse
import json
import sys
import time

import torch
from torch import nn
from torch.nn import functional as F

from mixers import PEERS, Sizes


class Block(nn.Module):
    def __init__(self, mixer, sizes, hidden):
        super().__init__()
        self.mixer_norm = nn.LayerNorm(sizes.dim, eps=1e-6)
        self.mixer = mixer(sizes)
        self.feed_norm = nn.LayerNorm(sizes.dim, eps=1e-6)
        self.feed = nn.Sequential(
            nn.Linear(sizes.dim, hidden), nn.GELU(approximate="tanh"), nn.Linear(hidden, sizes.dim)
        )

    def forward(self, x):
        x = x + self.mixer(self.mixer_norm(x))
        return x + self.feed(self.feed_norm(x))


class Classifier(nn.Module):
    """lra's: learned positions, pre-norm blocks, mean over positions, a head with one hidden layer."""

    def __init__(self, mixer, sizes, arguments):
        super().__init__()
        self.tokens = nn.Embedding(arguments.vocabulary, sizes.dim)
        self.positions = nn.Parameter(0.02 * torch.randn(sizes.length, sizes.dim))
        blocks = [Block(mixer, sizes, arguments.mlp) for _ in range(arguments.layers)]
        self.blocks = nn.Sequential(*blocks, nn.LayerNorm(sizes.dim, eps=1e-6))
        head = [nn.Linear(sizes.dim, arguments.head), nn.ReLU()]
        self.head = nn.Sequential(*head, nn.Linear(arguments.head, arguments.classes))

    def forward(self, ids):
        x = self.tokens(ids) + self.positions
        return self.head(self.blocks(x).mean(1))


def kilobytes(name):
    with open("/proc/self/status", encoding="ascii") as status:
        return next(int(line.split()[1]) for line in status if line.startswith(name + ":"))


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--model", required=True)
    parser.add_argument("--peer", required=True)
    for name, default in [
        ("length", 1024),
        ("batch", 8),
        ("layers", 2),
        ("dim", 64),
        ("heads", 2),
        ("mlp", 128),
        ("head", 128),
        ("vocabulary", 256),
        ("classes", 2),
        ("threads", 2),
    ]:
        parser.add_argument(f"--{name}", type=int, default=default)
    parser.add_argument("--seconds", type=float, default=1.0)
    arguments = parser.parse_args()

    torch.manual_seed(0)
    torch.set_num_threads(arguments.threads)
    mixer, compiled = PEERS[arguments.model, arguments.peer]
    sizes = Sizes(arguments.dim, arguments.heads, arguments.length)
    ids = torch.randint(arguments.vocabulary, (arguments.batch, arguments.length))
    labels = torch.randint(arguments.classes, (arguments.batch,))
    mixer(sizes)  # imports its package, which is not the model's memory
    base = kilobytes("VmRSS")
    model = Classifier(mixer, sizes, arguments)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4, foreach=True)
    run = torch.compile(model) if compiled else model

    def step():
        start = time.perf_counter()
        optimizer.zero_grad(set_to_none=True)
        F.cross_entropy(run(ids), labels).backward()
        optimizer.step()
        return time.perf_counter() - start

    for _ in range(2):
        step()
    print("ready", flush=True)
    for line in sys.stdin:
        if not line.strip():
            break
        # Forget the peak of starting up (and, with torch.compile, of compiling).
        with open("/proc/self/clear_refs", "w", encoding="ascii") as marks:
            marks.write("5")
        times = [step(), step()]
        while sum(times) < arguments.seconds:
            times.append(step())
        peak = 1024 * (kilobytes("VmHWM") - base)
        print(json.dumps({"seconds": times, "peak_bytes": peak}), flush=True)


if __name__ == "__main__":
    main()
