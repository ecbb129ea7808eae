"""Writes parity cases: the format is described in models/src/parity/mod.rs.

Everything is computed in float64 on inputs that float32 can hold, so that what is committed is right to the last digit that is compared.
"""

import json

import torch
from safetensors.torch import save as serialize

import file

torch.set_default_dtype(torch.float64)


def normal(seed, *shape, scale=1.0):
    """N(0, scale^2) numbers, exactly representable in float32."""
    generator = torch.Generator().manual_seed(seed)
    return (torch.randn(*shape, generator=generator) * scale).float().double()


def lengths_mask(lengths, longest):
    """(B, L), 1 for the first lengths[b] positions."""
    return (torch.arange(longest)[None, :] < torch.tensor(lengths)[:, None]).double()


def write(name, *, mixer, heads, source, params, x, forward, options=None, mask=None, draws=None,
          atol=1e-5, rtol=1e-4, seed=7, **metadata):
    """One case: y = forward(params, x), and the gradients of sum(y * seed).

    params: our path -> tensor, the leaves that gradients are taken of. forward(params, x) must build on exactly these.
    mask: (B, L), 1 = real; the seed is zero at padded positions, which nobody reads.
    draws: name -> random tensor that the mixer must use in place of its own.
    metadata: qkv_dim, max_length, cls where they are not D, L, false; block (JSON) for options of the block.
    """
    leaves, x = variables(params, x)
    y = forward(leaves, x)
    tensors = compared(leaves, x, y, mask, seed)
    tensors["out/y"] = tensors.pop("out/hidden")
    if mask is not None:
        tensors["in/mask"] = mask
    for draw, value in (draws or {}).items():
        tensors[f"draw/{draw}"] = value
    save(name, tensors, mixer=mixer, heads=heads, options=json.dumps(options or {}), source=source,
         atol=atol, rtol=rtol, **metadata)


def write_encoder(name, *, mixer, source, params, x, forward, options=None, mask=None, draws=None, atol=1e-5, rtol=1e-4, seed=7, **metadata):
    """One case of everything between embedding and pooling: forward(params, x) gives the hidden states, their mask (None where all are real) and
    a dict of losses, which are part of what gradients are taken of.

    options: of the whole classifier, laid over the model's; dropout is off.
    metadata: max_length and cls where they are not L, false; train=True for a pass in training.
    """
    off = {"block": {"dropout": 0.0, "attention_dropout": 0.0}}
    options = {**(options or {}), "block": {**off["block"], **(options or {}).get("block", {})}}
    leaves, x = variables(params, x)
    hidden, hidden_mask, losses = forward(leaves, x)
    tensors = compared(leaves, x, hidden, hidden_mask, seed, sum(losses.values()))
    if mask is not None:
        tensors["in/mask"] = mask
    if hidden_mask is not None and hidden_mask is not mask:
        tensors["out/mask"] = hidden_mask
    for loss, value in losses.items():
        tensors[f"out/loss/{loss}"] = value
    for draw, value in (draws or {}).items():
        tensors[f"draw/{draw}"] = value
    metadata = {key: str(value).lower() for key, value in metadata.items()}
    save(name, tensors, kind="encoder", mixer=mixer, options=json.dumps(options), source=source, atol=atol, rtol=rtol, **metadata)


def variables(params, x):
    return {path: value.detach().clone().requires_grad_(True) for path, value in params.items()}, x.detach().clone().requires_grad_(True)


def compared(leaves, x, y, mask, seed, losses=0.0):
    """What every case has: input, output, parameters, and the gradients of sum(y * seed) + losses."""
    out_seed = normal(seed, *y.shape)
    if mask is not None:
        out_seed = out_seed * mask[:, :, None]
        y = torch.where(mask[:, :, None] > 0, y, torch.zeros_like(y))
    ((y * out_seed).sum() + losses).backward()
    tensors = {"in/x": x, "out/hidden": y, "out/seed": out_seed, "grad/x": x.grad}
    for path, leaf in leaves.items():
        tensors[f"param/{path}"] = leaf
        tensors[f"grad/param/{path}"] = torch.zeros_like(leaf) if leaf.grad is None else leaf.grad
    return tensors


def save(name, tensors, **metadata):
    tensors = {key: narrow(value.detach()).contiguous() for key, value in tensors.items()}
    assert all(torch.isfinite(value).all() for value in tensors.values() if value.is_floating_point()), name
    file.write(name, serialize, tensors, metadata)


def narrow(tensor):
    return tensor.float() if tensor.is_floating_point() else tensor.to(torch.uint8)


def projections(seed, dim, qkv_dim, names=("query", "key", "value"), output=True):
    """The linear maps of multi-head attention, without biases, by our paths."""
    params = {
        f"{name}.weight": normal(seed + index, qkv_dim, dim, scale=dim**-0.5)
        for index, name in enumerate(names)
    }
    if output:
        params["output.weight"] = normal(seed + 9, dim, qkv_dim, scale=qkv_dim**-0.5)
    return params


def split(x, heads):
    """(B, L, H E) -> (B, H, L, E)."""
    batch, length, width = x.shape
    return x.view(batch, length, heads, width // heads).transpose(1, 2)


def merge(x):
    """(B, H, L, E) -> (B, L, H E)."""
    batch, heads, length, width = x.shape
    return x.transpose(1, 2).reshape(batch, length, heads * width)
