"""Linear attention. fast-transformers does not build on current PyTorch; its full (non-causal) form is a published formula:
y_i = phi(q_i) (sum_j phi(k_j) v_j^T) / (phi(q_i) . sum_j phi(k_j) + 1e-6), phi(x) = elu(x) + 1 (Katharopoulos et al., 2020, equations 5 and 7; the 1e-6 is that package's)."""

import torch
from torch.nn import functional as F

from case import lengths_mask, merge, normal, projections, split, write

SOURCE = f"arXiv:2006.16236 equations 5 and 7, torch {torch.__version__.split('+')[0]} elu and einsum"


def linear(heads, mask=None):
    def forward(params, x):
        q, k, v = (split(x @ params[f"{name}.weight"].T, heads) for name in ("query", "key", "value"))
        q, k = F.elu(q) + 1, F.elu(k) + 1
        if mask is not None:
            k = k * mask[:, None, :, None]
        sums = torch.einsum("bhjm,bhje->bhme", k, v)
        scale = 1 / (torch.einsum("bhim,bhm->bhi", q, k.sum(2)) + 1e-6)
        return merge(torch.einsum("bhim,bhme,bhi->bhie", q, sums, scale)) @ params["output.weight"].T

    return forward


for index, (batch, length, dim, heads) in enumerate([(2, 16, 16, 4), (1, 37, 12, 3), (3, 3, 8, 2)], 1):
    write(f"linear-{index}", mixer="linear", heads=heads, source=SOURCE, params=projections(10 * index, dim, dim),
          x=normal(index, batch, length, dim), forward=linear(heads))
mask = lengths_mask([29, 11, 1], 29)
write("linear-4", mixer="linear", heads=2, source=SOURCE, params=projections(40, 16, 16), x=normal(4, 3, 29, 16),
      forward=linear(2, mask), mask=mask)
