"""What a peer is, and which peers there are.

A peer is a class built from a `Sizes` that says by `peer` what it stands beside. Packages are used as published, at the sizes
that lra's defaults have; where there is none, plain eager PyTorch.
"""

import dataclasses

from torch import nn


@dataclasses.dataclass
class Sizes:
    dim: int
    heads: int
    length: int
    layers: int = 2
    mlp: int = 128
    dropout: float = 0.0
    attention_dropout: float = 0.0

    @property
    def width(self):
        return self.dim // self.heads


class Peer(nn.Module):
    """Maps (B, L, D) to (B, L, D), with projections. Those beside padded sequences take a mask (B, L), true where a token is real."""

    # Whether the block around it has a feed-forward network.
    FEED_FORWARD = True
    # The norm of its blocks, and of what the last one gives.
    NORM = nn.LayerNorm
    # Whether the model around it adds learned positions.
    POSITIONS = True
    # Whether it stands for all blocks: (B, L, D) to (B, L', D).
    WHOLE = False
    # What it adds to the cross-entropy, set by each forward pass.
    loss = 0.0


@dataclasses.dataclass
class Entry:
    build: type
    # Whether it takes masks.
    masked: bool
    # Whether it needs the packages of requirements-older.txt.
    older: bool


# By lra's model, with options if need be, and what it is set beside.
PEERS = {}

# Steps that neither side times at the start of a round, and the fewest that both time: a median of two would be their mean.
WARM_UP, LEAST = 2, 3


def peer(model, beside, masked=False, older=False):
    def register(build):
        PEERS[model, beside] = Entry(build, masked, older)
        return build

    return register


def load():
    """Registers all peers. Packages are imported when one is built."""
    import eager  # noqa: F401
    import hugging_face  # noqa: F401
    import packages  # noqa: F401
    import state_spaces  # noqa: F401

    return PEERS
