"""Transformer-XL: whole encoders segment after segment, layers by XLNetLayer (both ways in time) and by the deprecated TransfoXL (causal)."""

import torch

from case import lengths_mask, normal, write_encoder
from recurrent import VERSION, both_ways, forward_in_time, run, stack_parameters

DIM, HIDDEN = 8, 12


def behind(x, lengths):
    """The first of each row's positions behind its last real one, and where each came from."""
    order = torch.arange(x.shape[1]).expand(len(x), -1).clone()
    for row, n in enumerate(lengths):
        order[row, :n] = torch.cat([torch.arange(1, n), torch.zeros(1, dtype=torch.long)])
    return torch.gather(x, 1, order[..., None].expand_as(x)), order


def case(index, shape, *, segment, memory, layers=2, heads=2, width=DIM, causal=False, detach=True, untie=False, lengths=None, cls=False, model=None,
         **metadata):
    """`model` are the options that say so, all of them if it is left out."""
    batch, length = shape
    mask = None if lengths is None else lengths_mask(lengths, length)
    real = torch.ones(batch, length) if mask is None else mask
    layer = forward_in_time if causal else both_ways

    def forward(params, x):
        order = None
        if cls:
            x, order = behind(x, lengths or [length] * batch)
        y = run(layer, params, x, real, layers, segment, memory, detach, DIM, heads)
        if cls:
            y = torch.zeros_like(y).scatter(1, order[..., None].expand_as(y), y)
        return y, mask, {}

    if model is None:
        model = {"segment": segment, "memory": memory, "causal": causal, "detach": detach, "untie": untie}
    block = {"layers": layers, "dim": DIM, "qkv_dim": width, "heads": heads, "mlp_dim": HIDDEN, "activation": "relu" if causal else "gelu"}
    source = f"{VERSION}, {'RelPartialLearnableDecoderLayer, changed: float64 where it casts to float32' if causal else 'XLNetLayer'}"
    write_encoder(f"transformer_xl-{index}", mixer="transformer_xl", source=source, options={"block": block, "model": model},
                  params=stack_parameters(index, layers, DIM, heads, HIDDEN, not untie, width), x=normal(index, batch, length, DIM), mask=mask,
                  forward=forward, cls=cls, **metadata)


case(1, (2, 15), segment=4, memory=4)
case(2, (4, 17), segment=3, memory=7, heads=4, untie=True, lengths=[17, 12, 4, 1])
case(3, (2, 14), segment=6, memory=4, detach=False, lengths=[14, 9])
case(4, (3, 16), segment=5, memory=5, width=12, heads=3, causal=True, lengths=[16, 8, 3], model={"causal": True}, max_length=20)
case(5, (3, 13), segment=4, memory=6, cls=True, lengths=[13, 6, 2])
case(6, (2, 9), segment=64, memory=8, layers=1, heads=1, lengths=[9, 3])
