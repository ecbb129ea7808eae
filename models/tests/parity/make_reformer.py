"""Reformer: reformer_pytorch's LSHAttention on heads, with rotations that the case hands over (`torch.randn` is replaced while it hashes).

The package takes lengths that are a multiple of two chunks, and puts padding into the chunks. So padded sequences are run on their real part, with the
number of buckets of the whole length."""

import importlib.metadata

import torch
from reformer_pytorch.reformer_pytorch import LSHAttention

from case import lengths_mask, merge, normal, projections, split, write

SOURCE = f"reformer-pytorch {importlib.metadata.version('reformer-pytorch')}, LSHAttention, changed: rotations and number of buckets are the case's"


class Given(LSHAttention):
    def __init__(self, rotations, buckets, **options):
        super().__init__(**options)
        self.rotations, self.buckets = rotations, buckets

    def hash_vectors(self, n_buckets, vecs, **kwargs):
        original = torch.randn
        torch.randn = lambda shape, **_: self.rotations.reshape(shape)
        try:
            return super().hash_vectors(self.buckets, vecs, **kwargs)
        finally:
            torch.randn = original


def forward_of(heads, chunk, rounds, across, rotations, buckets, lengths=None):
    attention = Given(rotations, buckets, bucket_size=chunk, n_hashes=rounds, attend_across_buckets=across).eval()

    def attend(qk, v):
        batch = qk.shape[0]
        flat = lambda t: t.reshape(batch * heads, *t.shape[2:])
        y, _, _ = attention(flat(qk), flat(v))
        return y.reshape(v.shape)

    def forward(params, x):
        qk, v = (split(x @ params[f"{name}.weight"].T, heads) for name in ("query", "value"))
        if lengths is None:
            return merge(attend(qk, v)) @ params["output.weight"].T
        rows = []
        for row, length in enumerate(lengths):
            y = attend(qk[row : row + 1, :, :length], v[row : row + 1, :, :length])
            rows.append(torch.nn.functional.pad(merge(y), (0, 0, 0, x.shape[1] - length)))
        return torch.cat(rows) @ params["output.weight"].T

    return forward


def case(index, batch, length, dim, heads, chunk, rounds, across, lengths=None):
    buckets = length // chunk
    rotations = normal(80 + index, dim // heads, rounds, buckets // 2)
    write(f"reformer-{index}", mixer="reformer", heads=heads, source=SOURCE,
          options={"chunk": chunk, "rounds": rounds, "across_buckets": across},
          params=projections(10 * index, dim, dim, ("query", "value")), x=normal(index, batch, length, dim),
          draws={"rotations": rotations}, mask=None if lengths is None else lengths_mask(lengths, length),
          forward=forward_of(heads, chunk, rounds, across, rotations, buckets, lengths))


case(1, 2, 24, 8, 2, 4, 1, True)
case(2, 1, 36, 12, 3, 3, 2, True)
case(3, 2, 40, 8, 2, 5, 1, False)
case(4, 1, 42, 8, 2, 7, 3, False)
case(5, 2, 24, 8, 2, 4, 2, False, lengths=[24, 16])
