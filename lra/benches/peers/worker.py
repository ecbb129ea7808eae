"""Trains one peer in a process that waits between rounds.

`go` on standard input makes one round, an empty line ends the process. Each round makes a few steps that are not timed, then
prints one JSON line: the seconds of each timed step, and the growth of resident memory, in bytes, from the base to the peak of
the round. The base is read after steps of
a small copy of the model, so that libraries, thread pools and, with `--compile`, the compiler are loaded before it. With
`--compile` another process compiles the model first, and this one reads the compiler's cache. On a GPU the memory is that of
PyTorch's allocator, and a step ends when the GPU has ended it.
"""

import argparse
import ctypes
import dataclasses
import gc
import itertools
import json
import pathlib
import random
import subprocess
import sys
import time

import torch
from torch import nn
from torch.nn import functional as F

from peer import LEAST, WARM_UP, Peer, Sizes, load


class Block(nn.Module):
    def __init__(self, mixer, sizes):
        super().__init__()
        self.mixer_norm = mixer.NORM(sizes.dim, eps=1e-5)
        self.mixer = mixer(sizes)
        self.drop = nn.Dropout(sizes.dropout)
        if not mixer.FEED_FORWARD:
            return
        self.feed_norm = mixer.NORM(sizes.dim, eps=1e-5)
        self.feed = nn.Sequential(
            nn.Linear(sizes.dim, sizes.mlp),
            nn.GELU(),
            nn.Dropout(sizes.dropout),
            nn.Linear(sizes.mlp, sizes.dim),
        )

    def forward(self, x, **mask):
        x = x + self.drop(self.mixer(self.mixer_norm(x), **mask))
        if not self.mixer.FEED_FORWARD:
            return x
        return x + self.drop(self.feed(self.feed_norm(x)))


class Classifier(nn.Module):
    """lra's: learned positions unless the peer has none, pre-norm blocks, mean over positions, a head with one hidden layer."""

    def __init__(self, mixer, sizes, arguments):
        super().__init__()
        self.tokens = nn.Embedding(arguments.vocabulary, sizes.dim)
        self.positions = None
        if mixer.POSITIONS:
            self.positions = nn.Parameter(0.02 * torch.randn(sizes.length, sizes.dim))
        blocks = [mixer(sizes)] if mixer.WHOLE else [Block(mixer, sizes) for _ in range(sizes.layers)]
        self.drop = nn.Dropout(sizes.dropout)
        self.blocks = nn.ModuleList(blocks)
        self.norm = mixer.NORM(sizes.dim, eps=1e-5)
        head = [nn.Linear(sizes.dim, arguments.head), nn.ReLU()]
        self.head = nn.Sequential(*head, nn.Linear(arguments.head, arguments.classes))

    def forward(self, ids, **mask):
        x = self.tokens(ids)
        if self.positions is not None:
            x = x + self.positions[: x.shape[1]]
        x = self.drop(x)
        for block in self.blocks:
            x = block(x, **mask)
        x = self.norm(x)
        if mask:
            x = x * mask["mask"][..., None]
        return self.head(x.mean(1))

    def loss(self):
        """What the peer added to the cross-entropy in the last forward pass."""
        return sum(module.loss for module in self.modules() if isinstance(module, Peer))


# Tokens of the steps before the base of memory is read: the least that no peer's blocks or windows exceed.
SMALL_LENGTH = 128


def random_batches(arguments):
    """The same batch of random tokens again and again: a step costs the same whatever is learned."""
    ids = torch.randint(arguments.vocabulary, (arguments.batch, arguments.length))
    labels = torch.randint(arguments.classes, (arguments.batch,))
    while True:
        yield ids, {}, labels


def batches_of(rows, arguments):
    """Batches of a split of lra's data: ids (0 is padding), masks, labels. With a bucket of n, n batches are cut from their examples in
    the order of their lengths and padded to their longest, as `train.bucket` of lra does; without, all are as long as the task allows.
    After the last ones it begins again."""
    tokens, offsets, labels = rows["tokens"], rows["offsets"].astype("int64"), rows["labels"]
    pool = arguments.batch * max(arguments.bucket, 1)
    starts = range(0, len(labels) - pool + 1, pool)
    for first in itertools.cycle(starts):
        order = list(range(first, first + pool))
        if arguments.bucket:
            order.sort(key=lambda example: offsets[example + 1] - offsets[example])
        batches = [order[start : start + arguments.batch] for start in range(0, pool, arguments.batch)]
        random.shuffle(batches)
        for examples in batches:
            texts = [tokens[offsets[example] : offsets[example + 1]][: arguments.length] for example in examples]
            length = max(map(len, texts)) if arguments.bucket else arguments.length
            ids = torch.zeros(arguments.batch, length, dtype=torch.long)
            for row, text in zip(ids, texts):
                row[: len(text)] = torch.from_numpy(text.astype("int64")) + 1
            yield ids, {"mask": ids > 0}, torch.from_numpy(labels[examples].astype("int64"))


def release():
    """Returns memory that nothing uses to the system."""
    gc.collect()
    ctypes.CDLL(None).malloc_trim(0)


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
    parser.add_argument("--dropout", type=float, default=0.0)
    parser.add_argument("--attention_dropout", type=float, default=0.0)
    parser.add_argument("--bucket", type=int, default=0, help="batches that are sorted by length together")
    parser.add_argument("--split", type=pathlib.Path, help="train on this file of lra's data")
    parser.add_argument("--seconds", type=float, default=1.0)
    parser.add_argument("--cpu", action="store_true", help="seconds of the processor instead of seconds")
    parser.add_argument("--precision", choices=["f32", "bf16"], default="f32", help="bf16: PyTorch's autocast")
    parser.add_argument("--compile", action="store_true", help="put torch.compile around the whole model")
    parser.add_argument("--device", default="cpu", help="cpu, or cuda:N")
    parser.add_argument("--compiled", action="store_true", help="the compiler has seen these sizes before: its cache has them")
    arguments = parser.parse_args()

    if arguments.compile and not arguments.compiled:
        # What the compiler leaves in memory would count as the model's: it works in another process, and this one reads its cache.
        command = [sys.executable, *sys.argv, "--compiled"]
        status = subprocess.run(command, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, check=False).returncode
        if status < 0:
            raise SystemExit(f"ChildProcessError: signal {-status} ended the process that compiles")
        if status:
            # That process has written the cause to standard error. Nothing may follow it there.
            raise SystemExit(status)

    clock = time.process_time if arguments.cpu else time.perf_counter
    device = torch.device(arguments.device)
    torch.set_default_device(device)
    gpu = device.type == "cuda"
    torch.manual_seed(0)
    random.seed(0)
    torch.set_num_threads(arguments.threads)
    entry = load()[arguments.model, arguments.peer]
    sizes = Sizes(**{field.name: getattr(arguments, field.name) for field in dataclasses.fields(Sizes)})
    batches = random_batches(arguments)
    if arguments.split:
        from safetensors.numpy import load_file

        batches = batches_of(load_file(arguments.split), arguments)

    def stepper(sizes, batches):
        """Builds the model for `sizes` and returns a function that makes one step and returns its seconds."""
        model = Classifier(entry.build, sizes, arguments)
        optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4, foreach=True)
        run = torch.compile(model) if arguments.compile else model

        def step():
            ids, mask, labels = next(batches)
            ids, labels = ids.to(device), labels.to(device)
            mask = {name: one.to(device) for name, one in mask.items()}
            start = clock()
            optimizer.zero_grad(set_to_none=True)
            with torch.autocast(device.type, dtype=torch.bfloat16, enabled=arguments.precision == "bf16"):
                loss = F.cross_entropy(run(ids, **mask), labels)
            (loss + model.loss()).backward()
            optimizer.step()
            if gpu:
                torch.cuda.synchronize(device)
            return clock() - start

        return step

    small = argparse.Namespace(**vars(arguments) | {"length": SMALL_LENGTH, "batch": 1})
    warm_up = stepper(dataclasses.replace(sizes, length=SMALL_LENGTH), random_batches(small))
    for _ in range(WARM_UP):
        warm_up()
    del warm_up
    if arguments.compile:
        torch.compiler.reset()
    release()
    base = torch.cuda.memory_allocated(device) if gpu else 1024 * kilobytes("VmRSS")
    step = stepper(sizes, batches)
    for _ in range(WARM_UP):
        step()
    release()
    print("ready", flush=True)
    for line in sys.stdin:
        if not line.strip():
            break
        # These steps, and no timed one, pay for the pages that `release` gave back.
        for _ in range(WARM_UP):
            step()
        # Forget the peak of starting up (and, with torch.compile, of compiling).
        if gpu:
            torch.cuda.reset_peak_memory_stats(device)
        else:
            with open("/proc/self/clear_refs", "w", encoding="ascii") as marks:
                marks.write("5")
        times = [step() for _ in range(LEAST)]
        while sum(times) < arguments.seconds:
            times.append(step())
        peak = torch.cuda.max_memory_allocated(device) if gpu else 1024 * kilobytes("VmHWM")
        print(json.dumps({"seconds": times, "resident_bytes": peak - base}), flush=True)


if __name__ == "__main__":
    main()
