"""Clustered attention: ClusteredAttention and ImprovedClusteredAttention of fast-transformers, whose compiled parts are plain torch here: hashes, clusters, means over
clusters and back, products with chosen keys.

Planes, first centroids and new centroids of empty clusters are the case's. The package draws first centroids among padding too; here a sequence takes its own. The
package's compiled broadcast of the weight that is left to the chosen keys passes no gradient; here it does."""

import torch

import fast_transformers_python  # noqa: F401
from case import lengths_mask, normal, projections, write
from fast_transformers.attention import clustered_attention, improved_clustered_attention
from fast_transformers.masking import FullMask, LengthMask

SOURCE = "pytorch-fast-transformers 0.4.0"


def compute_hashes(x, planes):
    """(N, E) to (N), bit b in place b."""
    products = x.detach() @ planes[:, :-1].T - planes[:, -1]
    assert products.abs().min() > 1e-5, "a bit could be either"
    return ((products > 0).long() << torch.arange(len(planes))).sum(-1)


def cluster_with(starts, refills):
    """Lloyd's algorithm in Hamming space, as in the package's cluster_cpu.cpp."""

    def cluster(hashes, lengths, clusters, iterations, bits):
        places = torch.arange(bits)
        groups = torch.full(hashes.shape, clusters + 1)
        counts = torch.zeros(*hashes.shape[:2], clusters, dtype=torch.int64)
        for row, length in enumerate(lengths.tolist()):
            first = [start for start in starts.long().tolist() if start < length][:clusters]
            for head in range(hashes.shape[1]):
                own = hashes[row, head, :length]
                centroids = own[first]
                for round in range(iterations):
                    apart = ((own[:, None] ^ centroids[None, :])[:, :, None] >> places & 1).sum(-1)
                    # Of equal ones the first.
                    group = (apart * 1000 + torch.arange(len(centroids))).argmin(-1)
                    if round + 1 == iterations:
                        break
                    for k in range(len(centroids)):
                        members = own[group == k]
                        if len(members):
                            ones = (members[:, None] >> places & 1).sum(0)
                            centroids[k] = ((2 * ones > len(members)).long() << places).sum()
                        else:
                            centroids[k] = (refills[round, k].long() << places).sum()
                groups[row, head, :length] = group
                counts[row, head] = torch.bincount(group, minlength=clusters)
        return groups, counts

    return cluster


def clustered_aggregate(x, groups, factors, lengths):
    """(N, H, L, E) to (N, H, C, E), sums times factors."""
    member = groups[:, :, None, :] == torch.arange(factors.shape[2])[None, None, :, None]
    return (member.double() @ x) * finite(factors)[..., None]


def clustered_broadcast(y, groups, counts, factors):
    """(N, H, C, E) to (N, H, L, E); zeros for what is in no cluster."""
    member = groups[:, :, :, None] == torch.arange(y.shape[2])
    return member.double() @ (y * finite(factors)[..., None])


def finite(factors):
    """One over the size of a cluster: those of empty ones multiply nothing."""
    return factors.double().nan_to_num(posinf=0.0)


def chosen(x, topk, groups):
    """Rows of x (N, H, S, E) that the cluster of each query chose, (N, H, L, k, E)."""
    n, h, _, k = topk.shape
    index = torch.gather(topk, 2, groups.clamp(max=topk.shape[2] - 1)[..., None].expand(n, h, groups.shape[2], k))
    rows = torch.gather(x, 2, index.flatten(2)[..., None].expand(n, h, -1, x.shape[3]))
    return rows.view(*index.shape, x.shape[3])


def clustered_sparse_dot_product(q, k, topk, groups, counts, lengths):
    return (q[:, :, :, None, :] * chosen(k, topk, groups)).sum(-1)


def clustered_sparse_weighted_average(weights, v, topk, groups, counts):
    return (weights[..., None] * chosen(v, topk, groups)).sum(3)


for module in (clustered_attention, improved_clustered_attention):
    module.compute_hashes = compute_hashes
    module.clustered_aggregate = clustered_aggregate
    module.clustered_broadcast = clustered_broadcast
improved_clustered_attention.clustered_sparse_dot_product = clustered_sparse_dot_product
improved_clustered_attention.clustered_sparse_weighted_average = clustered_sparse_weighted_average


def forward_of(heads, options, draws, lengths):
    options = dict(options)
    improved = options.pop("improved")
    module = improved_clustered_attention if improved else clustered_attention
    kind = module.ImprovedClusteredAttention if improved else module.ClusteredAttention
    if not improved:
        options.pop("topk")

    def forward(params, x):
        batch, length, dim = x.shape
        module.cluster = cluster_with(draws["starts"], draws["refills"])
        module.normal_ = lambda planes: planes.copy_(draws["planes"])
        q, k, v = ((x @ params[f"{name}.weight"].T).view(batch, length, heads, -1) for name in ("query", "key", "value"))
        rows = LengthMask(torch.tensor(lengths or [length] * batch), max_len=length)
        y = kind(attention_dropout=0.0, **options)(q, k, v, FullMask(length, length), rows, rows)
        return y.reshape(batch, length, dim) @ params["output.weight"].T

    return forward


def case(index, heads, shape, lengths=None, clusters=3, bits=8, iterations=4, hash_bias=True, improved=False, topk=3):
    batch, length, dim = shape
    generator = torch.Generator().manual_seed(900 + index)
    draws = {
        "planes": normal(800 + index, bits, dim // heads + 1),
        "starts": torch.randperm(length, generator=generator).double(),
        "refills": torch.randint(0, 2, (iterations - 1, clusters, bits), generator=generator).double(),
    }
    options = {"clusters": clusters, "bits": bits, "iterations": iterations, "hash_bias": hash_bias, "improved": improved, "topk": topk}
    name = "ImprovedClusteredAttention" if improved else "ClusteredAttention"
    write(f"clustered-{index}", mixer="clustered", heads=heads, source=f"{SOURCE}, {name}, changed: its extensions are torch operations, its draws the case's", options=options,
          params=projections(10 * index, dim, dim), x=normal(index, batch, length, dim), draws=draws,
          mask=None if lengths is None else lengths_mask(lengths, length), forward=forward_of(heads, options, draws, lengths))


case(1, 2, (2, 16, 8))
case(2, 3, (3, 23, 12), [23, 11, 5], clusters=4, bits=11)
case(3, 2, (2, 19, 8), [19, 7], clusters=5, bits=3, iterations=6, hash_bias=False)
case(4, 2, (2, 16, 8), improved=True)
case(5, 3, (3, 23, 12), [23, 11, 6], clusters=4, bits=11, improved=True, topk=5)
case(6, 2, (1, 13, 8), clusters=2, bits=5, iterations=1, hash_bias=False, improved=True, topk=20)
