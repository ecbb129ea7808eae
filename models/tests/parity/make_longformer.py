"""Longformer: LongformerSelfAttention of transformers; dilation, which it does not have, from the paper's section 3.1."""

import importlib.metadata
from types import SimpleNamespace

import torch

from case import lengths_mask, merge, normal, projections, split, write

from transformers.models.longformer.modeling_longformer import LongformerSelfAttention

VERSION = f"transformers {importlib.metadata.version('transformers')}, LongformerSelfAttention"
OURS = {"query": "query", "key": "key", "value": "value",
        "query_global": "global.query", "key_global": "global.key", "value_global": "global.value"}


def package(dim, heads, window, count, mask):
    config = SimpleNamespace(hidden_size=dim, num_attention_heads=heads, attention_probs_dropout_prob=0.0, attention_window=[window])
    module = LongformerSelfAttention(config, 0).eval()

    def forward(params, x):
        batch, length, _ = x.shape
        # As LongformerModel does: filled up with padding to a multiple of the window.
        fill = -length % window
        x = torch.nn.functional.pad(x, (0, 0, 0, fill))
        real = torch.ones(batch, length) if mask is None else mask
        real = torch.nn.functional.pad(real, (0, fill))
        attention = (real - 1) * 10000.0
        attention[:, :count] = 10000.0
        weights = {}
        for theirs, ours in OURS.items():
            weights[f"{theirs}.bias"] = torch.zeros(dim)
            weights[f"{theirs}.weight"] = params.get(f"{ours}.weight", torch.zeros(dim, dim))
        y, = torch.func.functional_call(module, weights, (x,), {
            "attention_mask": attention, "is_index_masked": attention < 0,
            "is_index_global_attn": attention > 0, "is_global_attn": count > 0})
        return y[:, :length] @ params["output.weight"].T

    return forward


def equation(heads, window, dilation, dilated=None, mask=None):
    """The first `dilated` heads have the dilation, all if it is None."""
    dilations = torch.tensor([dilation if dilated is None or head < dilated else 1 for head in range(heads)])[:, None, None]

    def forward(params, x):
        q, k, v = (split(x @ params[f"{name}.weight"].T, heads) for name in ("query", "key", "value"))
        place = torch.arange(x.shape[1])
        gap = (place[:, None] - place[None, :]).abs()
        sees = (gap % dilations == 0) & (gap // dilations <= window // 2)
        if mask is not None:
            sees = sees & mask[:, None, None, :].bool()
        scores = (q @ k.transpose(-1, -2) / q.shape[-1] ** 0.5).masked_fill(~sees, -1e30)
        return merge(scores.softmax(-1) @ v) @ params["output.weight"].T

    return forward


CASES = [  # heads, window, global, (B, L, D), lengths
    (2, 4, 0, (2, 16, 12), None),
    (2, 4, 1, (2, 16, 12), None),
    (3, 6, 1, (2, 31, 12), [31, 14]),
    (2, 8, 3, (2, 21, 8), [21, 9]),
    # Without a global key the package's gradients are NaN as soon as a padded query sees padding only.
    (4, 6, 0, (2, 17, 16), [17, 15]),
]
for index, (heads, window, count, (batch, length, dim), lengths) in enumerate(CASES, 1):
    mask = None if lengths is None else lengths_mask(lengths, length)
    params = projections(20 * index, dim, dim)
    if count > 0:
        names = ("global.query", "global.key", "global.value")
        params |= projections(20 * index + 10, dim, dim, names=names, output=False)
    write(f"longformer-{index}", mixer="longformer", heads=heads, source=VERSION, options={"window": window, "global": count},
          params=params, x=normal(index, batch, length, dim), forward=package(dim, heads, window, count, mask), mask=mask)
write("longformer-6", mixer="longformer", heads=2, source="arXiv:2004.05150, section 3.1, in torch operations",
      options={"window": 4, "global": 0, "dilation": 3}, params=projections(200, 12, 12), x=normal(6, 2, 25, 12),
      forward=equation(2, 4, 3))
mask = lengths_mask([23, 10], 23)
write("longformer-7", mixer="longformer", heads=4, source="arXiv:2004.05150, section 3.1, in torch operations",
      options={"window": 4, "global": 0, "dilation": 3, "dilated_heads": 2}, params=projections(300, 12, 12), x=normal(7, 2, 23, 12),
      forward=equation(4, 4, 3, 2, mask), mask=mask)
