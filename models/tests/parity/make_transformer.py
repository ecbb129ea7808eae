"""Transformer: torch.nn.functional.scaled_dot_product_attention, torch.nn.MultiheadAttention; a whole classifier of torch.nn modules with AdamW."""

import json

import torch
from torch import nn
from torch.nn import functional as F

from case import lengths_mask, merge, normal, projections, save, split, write

VERSION = f"torch {torch.__version__.split('+')[0]}"


def sdpa(heads, mask=None):
    def forward(params, x):
        q, k, v = (split(x @ params[f"{name}.weight"].T, heads) for name in ("query", "key", "value"))
        allowed = None if mask is None else mask[:, None, None, :].bool()
        return merge(F.scaled_dot_product_attention(q, k, v, attn_mask=allowed)) @ params["output.weight"].T

    return forward


def multihead(heads, dim, mask=None):
    """torch.nn.MultiheadAttention keeps the three input maps in one matrix."""
    module = nn.MultiheadAttention(dim, heads, bias=False, batch_first=True)

    def forward(params, x):
        weights = {
            "in_proj_weight": torch.cat([params[f"{name}.weight"] for name in ("query", "key", "value")]),
            "out_proj.weight": params["output.weight"],
        }
        padding = None if mask is None else mask == 0
        y, _ = torch.func.functional_call(module, weights, (x, x, x), {"key_padding_mask": padding})
        return y

    return forward


def mixers():
    for index, (batch, length, dim, heads, qkv_dim) in enumerate([(2, 16, 16, 4, 16), (1, 33, 12, 3, 24), (3, 1, 8, 2, 8)], 1):
        write(f"transformer-{index}", mixer="transformer", heads=heads, qkv_dim=qkv_dim,
              source=f"{VERSION}, torch.nn.functional.scaled_dot_product_attention",
              params=projections(10 * index, dim, qkv_dim), x=normal(index, batch, length, dim), forward=sdpa(heads))
    mask = lengths_mask([19, 7, 1], 19)
    write("transformer-4", mixer="transformer", heads=2, source=f"{VERSION}, torch.nn.functional.scaled_dot_product_attention",
          params=projections(40, 16, 16), x=normal(4, 3, 19, 16), forward=sdpa(2, mask), mask=mask)
    mask = lengths_mask([23, 11], 23)
    write("transformer-5", mixer="transformer", heads=4, source=f"{VERSION}, torch.nn.MultiheadAttention",
          params=projections(50, 16, 16), x=normal(5, 2, 23, 16), forward=multihead(4, 16, mask), mask=mask)


class Block(nn.Module):
    def __init__(self, dim, heads, hidden):
        super().__init__()
        self.mixer_norm = nn.LayerNorm(dim, eps=1e-6)
        self.mixer = nn.MultiheadAttention(dim, heads, bias=False, batch_first=True)
        self.feed_norm = nn.LayerNorm(dim, eps=1e-6)
        self.feed = nn.Sequential(nn.Linear(dim, hidden), nn.GELU(approximate="tanh"), nn.Linear(hidden, dim))

    def forward(self, x, padding):
        normed = self.mixer_norm(x)
        x = x + self.mixer(normed, normed, normed, key_padding_mask=padding, need_weights=False)[0]
        return x + self.feed(self.feed_norm(x))


class Classifier(nn.Module):
    def __init__(self, vocabulary, length, dim, heads, hidden, head, classes, layers):
        super().__init__()
        self.tokens = nn.Embedding(vocabulary, dim)
        self.positions = nn.Embedding(length, dim)
        self.blocks = nn.ModuleList(Block(dim, heads, hidden) for _ in range(layers))
        self.last_norm = nn.LayerNorm(dim, eps=1e-6)
        self.head = nn.Sequential(nn.Linear(dim, head), nn.ReLU(), nn.Linear(head, classes))

    def forward(self, ids, mask):
        x = self.tokens(ids) + self.positions.weight[: ids.shape[1]]
        for block in self.blocks:
            x = block(x, mask == 0)
        x = self.last_norm(x)
        pooled = (x * mask[:, :, None]).sum(1) / mask.sum(1, keepdim=True)
        return self.head(pooled)

    def ours(self, read):
        """Our paths -> read(parameter), the packed input projection cut in three."""
        found = {"embed.tokens": read(self.tokens.weight), "embed.positions": read(self.positions.weight)}

        def norm(path, module):
            found[f"{path}.scale"], found[f"{path}.shift"] = read(module.weight), read(module.bias)

        def linear(path, module):
            found[f"{path}.weight"], found[f"{path}.bias"] = read(module.weight), read(module.bias)

        for index, block in enumerate(self.blocks):
            at = f"encoder.{index}"
            norm(f"{at}.mixer_norm", block.mixer_norm)
            norm(f"{at}.feed_norm", block.feed_norm)
            packed = read(block.mixer.in_proj_weight).chunk(3)
            for name, part in zip(("query", "key", "value"), packed):
                found[f"{at}.mixer.{name}.weight"] = part
            found[f"{at}.mixer.output.weight"] = read(block.mixer.out_proj.weight)
            linear(f"{at}.feed.inner", block.feed[0])
            linear(f"{at}.feed.outer", block.feed[2])
        norm("encoder.last_norm", self.last_norm)
        linear("head.0", self.head[0])
        linear("head.1", self.head[2])
        return found


def training():
    torch.manual_seed(3)
    batch, length, vocabulary, classes = 6, 21, 13, 4
    model = Classifier(vocabulary, length, 16, 2, 24, 20, classes, 2)
    with torch.no_grad():
        for index, parameter in enumerate(model.parameters()):
            parameter.copy_((parameter + normal(index, *parameter.shape, scale=0.05)).float().double())
    mask = lengths_mask([21, 20, 9, 1, 15, 4], length)
    generator = torch.Generator().manual_seed(5)
    ids = torch.randint(1, vocabulary, (batch, length), generator=generator) * mask.long()
    labels = torch.arange(batch) % classes
    settings = {"rate": 3e-3, "beta1": 0.9, "beta2": 0.98, "epsilon": 1e-8, "weight_decay": 0.1}
    optimizer = torch.optim.AdamW(model.parameters(), lr=settings["rate"], betas=(settings["beta1"], settings["beta2"]),
                                  eps=settings["epsilon"], weight_decay=settings["weight_decay"])
    tensors = {f"param/{path}": value.clone() for path, value in model.ours(lambda p: p.detach()).items()}
    losses = []
    for step in range(20):
        optimizer.zero_grad()
        logits = model(ids, mask)
        loss = F.cross_entropy(logits, labels)
        loss.backward()
        losses.append(loss.detach())
        if step == 0:
            tensors |= {f"grad/param/{path}": value.clone() for path, value in model.ours(lambda p: p.grad).items()}
            tensors["out/logits"] = logits
        optimizer.step()
    tensors |= {"in/ids": ids, "in/mask": mask, "in/labels": labels, "out/losses": torch.stack(losses)}
    options = {
        "embed": {"positions": "learned", "dropout": 0.0},
        "block": {"layers": 2, "dim": 16, "qkv_dim": 16, "heads": 2, "mlp_dim": 24, "activation": "gelu",
                  "norm_epsilon": 1e-6, "norm_place": "pre", "dropout": 0.0, "attention_dropout": 0.0},
        "head": {"pooling": "mean", "hidden": 20},
    }
    save("transformer-training", tensors, kind="training", mixer="transformer", options=json.dumps(options),
         shape=json.dumps({"vocabulary": vocabulary, "classes": classes, "max_length": length}),
         optimizer=json.dumps(settings), source=f"{VERSION}, torch.nn modules and torch.optim.AdamW", atol=1e-4, rtol=1e-4)


mixers()
training()
