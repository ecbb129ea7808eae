"""Informer: the encoder's ProbSparse attention of arXiv:2012.07436, section 3.2, in torch operations, row by row.

No package can be used: that of the authors (zhouhaoyi/Informer2020) is on no registry and has no masks, and the class of transformers draws as many keys as there
are positions, the same for all queries. Here each query has its own draws, which the case hands over, and a row is computed on its real part alone. M is the
maximum less the mean of the sampled scores (`sample`), or less their sum over the number of keys, as in the authors' code (`keys`).
"""

import math

import torch

from case import lengths_mask, merge, normal, projections, split, write

SOURCE = "arXiv:2012.07436, section 3.2, in torch operations"


def prob_sparse(q, k, v, samples, factor, mean_over):
    """(H, n, E) each, and numbers in [0, 1) for all positions and draws, to (H, n, E)."""
    heads, n, width = q.shape
    u = min(n, max(1, factor * math.ceil(math.log(n))))
    keys = (samples[:n, :u] * n).long()
    scores = q @ k.transpose(1, 2) / width**0.5
    y = v.mean(1, keepdim=True).expand(heads, n, width).clone()
    for head in range(heads):
        sampled = scores[head].detach().gather(1, keys)
        measure = sampled.max(1).values - (sampled.mean(1) if mean_over == "sample" else sampled.sum(1) / n)
        ordered = measure.sort(descending=True)
        assert u == n or ordered.values[u - 1] - ordered.values[u] > 1e-4, "chosen by a hair"
        for query in ordered.indices[:u]:
            y[head, query] = scores[head, query].softmax(0) @ v[head]
    return y


def case(index, heads, shape, lengths=None, factor=5, mean_over="sample", qkv_dim=None):
    batch, length, dim = shape
    row = qkv_dim or dim
    most = min(length, max(1, factor * math.ceil(math.log(length))))
    generator = torch.Generator().manual_seed(600 + index)
    samples = torch.rand(length, most, generator=generator).clamp(max=0.99999).float().double()

    def forward(params, x):
        q, k, v = (split(x @ params[f"{name}.weight"].T, heads) for name in ("query", "key", "value"))
        rows = []
        for example, n in enumerate(lengths or [length] * batch):
            y = prob_sparse(q[example, :, :n], k[example, :, :n], v[example, :, :n], samples, factor, mean_over)
            rows.append(torch.nn.functional.pad(y, (0, 0, 0, length - n)))
        return merge(torch.stack(rows)) @ params["output.weight"].T

    write(f"informer-{index}", mixer="informer", heads=heads, source=SOURCE, options={"factor": factor, "mean_over": mean_over},
          params=projections(10 * index, dim, row), x=normal(index, *shape), draws={"samples": samples},
          mask=None if lengths is None else lengths_mask(lengths, length), forward=forward, qkv_dim=row)


case(1, 2, (2, 31, 8))
case(2, 2, (3, 43, 8), [43, 22, 1])
case(3, 3, (2, 53, 12), [53, 9], factor=2, mean_over="keys")
case(4, 2, (3, 19, 12), [19, 4, 7], factor=1, qkv_dim=8)
case(5, 4, (1, 25, 8), factor=1, mean_over="keys")
case(6, 2, (2, 17, 8), [17, 11])
