"""BigBird: BigBirdBlockSparseAttention of transformers, with random blocks drawn here and given to both sides."""

import importlib.metadata
from types import SimpleNamespace

import numpy as np
import torch

from blocks import DIM, hidden, pair, parameters, sizes, stack
from case import lengths_mask, normal, projections, write, write_encoder

from transformers.models.big_bird.modeling_big_bird import BigBirdBlockSparseAttention, BigBirdModel

VERSION = f"transformers {importlib.metadata.version('transformers')}, BigBirdBlockSparseAttention, changed: its random blocks are the case's"


def draw(seed, heads, blocks, count):
    """(heads, blocks - 2, count): for each block that is not global others that are neither global nor its neighbours."""
    generator = np.random.default_rng(seed)
    rows = [[generator.permutation([j for j in range(1, blocks - 1) if abs(i - j) > 1])[:count] for i in range(1, blocks - 1)]
            for _ in range(heads)]
    return np.array(rows)


def package(dim, heads, block, random, longest, mask):
    config = SimpleNamespace(max_position_embeddings=longest, hidden_size=dim, num_attention_heads=heads,
                             num_random_blocks=random.shape[-1], block_size=block, use_bias=False)
    module = BigBirdBlockSparseAttention(config, seed=0)
    module._bigbird_block_rand_mask_with_head = lambda **_: list(random)

    def forward(params, x):
        batch, length, _ = x.shape
        x = torch.nn.functional.pad(x, (0, 0, 0, longest - length))
        real = torch.ones(batch, length) if mask is None else mask
        real = torch.nn.functional.pad(real, (0, longest - length))
        blocked, band, from_mask, to_mask = BigBirdModel.create_masks_for_block_sparse_attn(real, block)
        weights = {f"{name}.weight": params[f"{name}.weight"] for name in ("query", "key", "value")}
        y, = torch.func.functional_call(module, weights, (x,), {
            "band_mask": band, "from_mask": from_mask, "to_mask": to_mask,
            "from_blocked_mask": blocked, "to_blocked_mask": blocked})
        return y[:, :length] @ params["output.weight"].T

    return forward


CASES = [  # heads, block, random, blocks, (B, L, D), lengths
    (2, 4, 2, 8, (2, 32, 12), None),
    (3, 4, 3, 10, (1, 40, 12), None),
    (2, 4, 2, 9, (2, 35, 8), [35, 18]),
    (2, 2, 1, 11, (3, 21, 8), [21, 10, 3]),
]
for index, (heads, block, count, blocks, (batch, length, dim), lengths) in enumerate(CASES, 1):
    mask = None if lengths is None else lengths_mask(lengths, length)
    random = draw(index, heads, blocks, count)
    write(f"bigbird-{index}", mixer="bigbird", heads=heads, source=VERSION, options={"block": block, "random": count},
          params=projections(10 * index, dim, dim), x=normal(index, batch, length, dim), max_length=block * blocks,
          forward=package(dim, heads, block, random, block * blocks, mask), mask=mask, draws={"blocks": torch.tensor(random)})


def external(layers, count, size, mask):
    """Tokens before the sequence that see everything and are seen by everything, and blocks that see their neighbours: section 2 of arXiv:2007.14062, ETC."""

    def forward(params, x):
        batch, length, _ = x.shape
        x = torch.cat([params["extra"].expand(batch, -1, -1), x], 1)
        place = (torch.arange(length) // size)[:, None]
        sees = torch.ones(count + length, count + length, dtype=torch.bool)
        sees[count:, count:] = (place - place.T).abs() <= 1
        real = None if mask is None else torch.nn.functional.pad(mask, (count, 0), value=1.0)

        def weights(params, block, x, before):
            scores = pair(params, f"{block}.mixer", x).masked_fill(~sees, -1e30)
            return torch.softmax(hidden(scores, real), -1), None

        y, _, losses = stack(layers, real, weights)(params, x)
        return y[:, count:], mask, losses

    return forward


for index, (layers, count, batch, length, lengths) in enumerate([(2, 3, 2, 14, None), (3, 1, 3, 19, [19, 8, 1])], len(CASES) + 1):
    mask = None if lengths is None else lengths_mask(lengths, length)
    params = parameters(800 + index, layers) | {"extra": normal(80 + index, count, DIM)}
    write_encoder(f"bigbird-{index}", mixer="bigbird", source="arXiv:2007.14062, section 2, in torch operations",
                  options={"block": sizes(layers) | {"norm_place": "post"}, "model": {"block": 4, "random": 0, "global_extra": count}},
                  params=params, x=normal(index, batch, length, DIM), mask=mask, forward=external(layers, count, 4, mask))
