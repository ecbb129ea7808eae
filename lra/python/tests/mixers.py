"""Mixers in PyTorch for the tests."""

import os

import torch


class Mean(torch.nn.Module):
    """A linear layer over the mean of all real positions, beside x itself, with dropout."""

    def __init__(self, dim, dropout):
        super().__init__()
        self.own = torch.nn.Linear(dim, dim)
        self.mean = torch.nn.Linear(dim, dim, bias=False)
        self.dropout = torch.nn.Dropout(dropout)

    def forward(self, x, mask):
        real = mask.unsqueeze(2).to(x.dtype)
        mean = (x * real).sum(1, keepdim=True) / real.sum(1, keepdim=True).clamp(min=1)
        return self.dropout(self.own(x) + self.mean(mean))


def mean(dim, dropout):
    print("a print goes to standard error")
    return Mean(dim, dropout)



def plain(dim):
    return Mean(dim, 0.0)


class Doubled(torch.nn.Module):
    """No __init__, so the class itself is a factory without arguments."""

    def forward(self, x, mask):
        return 2 * x


class Identity(torch.nn.Module):
    """No parameters."""

    def forward(self, x, mask):
        return x


def identity():
    return Identity()


class Wrong(Identity):
    """Fails in every forward pass of a training step, as `kind` says."""

    def __init__(self, kind):
        super().__init__()
        self.kind = kind
        self.register_buffer("count", torch.zeros(1))

    def forward(self, x, mask):
        if self.kind == "shape":
            return x[:, :-1]
        if self.kind == "raise":
            raise RuntimeError("a fault of the mixer")
        if self.kind == "exit":
            os._exit(7)
        self.count += 1
        return x * 1


def shape():
    return Wrong("shape")


def raises():
    return Wrong("raise")


def exits():
    return Wrong("exit")


def buffers():
    return Wrong("buffers")


def nothing():
    return None
