"""Mega, and Mega-chunk: MegaBlock of transformers, bidirectional.

Its kernels are made as long as the sequence; cut ones are cut here, in a subclass, whose transforms are in float64. Chunks that do not fill up are padded with masked positions.
A row whose chunk has no key at all is run without that mask, as nobody reads it.
"""

import importlib.metadata
import math

import torch
from transformers.models.mega.configuration_mega import MegaConfig
from transformers.models.mega.modeling_mega import MegaBlock, MegaMultiDimensionDampedEma

from case import lengths_mask, normal, write_encoder

SOURCE = f"transformers {importlib.metadata.version('transformers')}, MegaBlock, changed: kernels end after `taps`, transforms in float64"


def names(layer, norm):
    """Their names by ours, for one block."""
    at = {
        "mixer.average.delta": "mega_layer.ema_gate.damping_factor",
        "mixer.average.alpha": "mega_layer.ema_gate.decay_factor",
        "mixer.average.beta": "mega_layer.ema_gate.ema_expansion_matrix",
        "mixer.average.gamma": "mega_layer.ema_gate.kernel_projection_matrix",
        "mixer.average.omega": "mega_layer.ema_gate.residual_weight",
        "mixer.attention.scale": "mega_layer.qk_weight",
        "mixer.attention.shift": "mega_layer.qk_bias",
        "mixer.attention.distance": "mega_layer.rel_pos_bias.rel_pos_bias",
    }
    for ours, theirs in (("values", "v_proj"), ("gates", "mx_proj"), ("hidden", "h_proj")):
        for kind in ("weight", "bias"):
            at[f"mixer.{ours}.{kind}"] = f"mega_layer.{theirs}.{kind}"
    for ours, theirs in (("inner", "fc1"), ("outer", "fc2")):
        for kind in ("weight", "bias"):
            at[f"feed.{ours}.{kind}"] = f"nffn.{theirs}.{kind}"
    for ours, theirs in (("mixer", "mega_layer"), ("feed", "nffn")):
        if norm == "layer":
            at[f"{ours}.norm.scale"] = f"{theirs}.norm.norm.weight"
            at[f"{ours}.norm.shift"] = f"{theirs}.norm.norm.bias"
        else:
            at[f"{ours}.norm.scale"] = f"{theirs}.norm.norm.scalar"
    return {f"{layer}.{ours}": theirs for ours, theirs in at.items()}


class Cut(MegaMultiDimensionDampedEma):
    """Kernels that end after `taps`, if there is such a number."""

    def get_ema_kernel(self, length):
        kernel = super().get_ema_kernel(length)
        keep = (torch.arange(kernel.shape[-1]) < (self.taps or length)).to(kernel)
        return kernel * keep

    def fft_convolution(self, inputs, kernel, length):
        spectra = torch.fft.rfft(inputs, n=2 * length) * torch.fft.rfft(kernel, n=2 * length)
        return torch.fft.irfft(spectra, n=2 * length)


def mega(layers, dim, values, shared, modes, taps, chunk, longest, attention, norm, place, lengths, length):
    filled = math.ceil(length / chunk) * chunk if 0 < chunk < length else length
    config = MegaConfig(
        hidden_size=dim, num_hidden_layers=layers, intermediate_size=values, ema_projection_size=modes, bidirectional=True,
        shared_representation_size=shared, use_chunking=chunk > 0, chunk_size=chunk if chunk else -1, truncation=None,
        normalize_before_mega=place == "pre", normalize_before_ffn=place == "pre",
        normalization_type={"layer": "layernorm", "scale": "scalenorm"}[norm], norm_affine=True,
        activation="silu", attention_activation=attention, dropout_prob=0.0, hidden_dropout_prob=0.0,
        attention_probs_dropout_prob=0.0, use_feature_dropout=False, relative_positional_bias="simple",
        max_positions=chunk if chunk else longest, use_normalized_ffn=True, nffn_hidden_size=values, nffn_activation_dropout_prob=0.0)

    def run(params, x, mask):
        for layer in range(layers):
            block = MegaBlock(config).eval()
            block.mega_layer.ema_gate.__class__ = Cut
            block.mega_layer.ema_gate.taps = taps
            weights = {}
            for ours, theirs in names(layer, norm).items():
                value = params[ours]
                if ours.endswith(("delta", "alpha", "beta")):
                    value = value[:, :, None]
                weights[theirs] = value
            missing = {name for name, _ in block.named_parameters()} - set(weights)
            assert not missing, missing
            x = torch.func.functional_call(block, weights, (x,), {"attention_mask": mask, "causal_mask": None})[0]
        return x

    def forward(params, x, mask):
        rows = []
        for row, real in enumerate(lengths):
            # The chunks that have a real position; what is behind them is padding that nobody sees.
            used = filled if chunk == 0 or filled == length and real > length - chunk else min(filled, math.ceil(real / chunk) * chunk)
            part = torch.nn.functional.pad(x[row, :real], (0, 0, 0, used - real))
            seen = (torch.arange(used) < real).double()[None]
            y = run(params, part.unsqueeze(1), seen).squeeze(1)
            rows.append(torch.nn.functional.pad(y[:real], (0, 0, 0, length - real)))
        hidden = torch.stack(rows)
        if place == "pre":
            hidden = torch.nn.functional.layer_norm(hidden, (dim,), params["last_norm.scale"], params["last_norm.shift"], eps=1e-5)
        return hidden, mask, {}

    return forward


def parameters(seed, layers, dim, values, shared, modes, bias, norm, place):
    params = {}

    def norms(path, at):
        if norm == "layer":
            params[f"{path}.scale"] = 1 + normal(at, dim, scale=0.3)
            params[f"{path}.shift"] = normal(at + 1, dim, scale=0.3)
        else:
            params[f"{path}.scale"] = 1 + normal(at, 1, scale=0.3)

    for layer in range(layers):
        at, base = f"{layer}.mixer", seed + 50 * layer
        params |= {
            f"{at}.average.delta": normal(base, 2 * dim, modes),
            f"{at}.average.alpha": normal(base + 1, 2 * dim, modes),
            f"{at}.average.beta": normal(base + 2, 2 * dim, modes),
            f"{at}.average.gamma": normal(base + 3, 2 * dim, modes),
            f"{at}.average.omega": normal(base + 4, dim),
            f"{at}.attention.scale": normal(base + 5, 2, shared),
            f"{at}.attention.shift": normal(base + 6, 2, shared, scale=0.3),
            f"{at}.attention.distance": normal(base + 7, 2 * bias - 1, scale=0.5),
        }
        linears = [("mixer.values", dim, values), ("mixer.gates", dim, 2 * dim + shared + values), ("mixer.hidden", values, dim),
                   ("feed.inner", dim, values), ("feed.outer", values, dim)]
        for place_, (name, inputs, outputs) in enumerate(linears):
            params[f"{layer}.{name}.weight"] = normal(base + 10 + place_, outputs, inputs, scale=inputs**-0.5)
            params[f"{layer}.{name}.bias"] = normal(base + 20 + place_, outputs, scale=0.3)
        norms(f"{layer}.mixer.norm", base + 30)
        norms(f"{layer}.feed.norm", base + 32)
    if place == "pre":
        norms("last_norm", seed + 999)
    # Shifted numbers are rounded again.
    return {path: value.float().double() for path, value in params.items()}


CASES = [
    # name, length, longest, layers, D, v, s, modes, taps, chunk, attention, norm, place, lengths
    ("mega-1", 11, 11, 1, 6, 8, 3, 4, 0, 0, "softmax", "layer", "post", [11, 11]),
    ("mega-2", 13, 20, 2, 4, 5, 6, 2, 5, 0, "softmax", "scale", "post", [13, 6, 1]),
    ("mega-3", 9, 9, 1, 5, 6, 4, 16, 0, 0, "laplace", "layer", "pre", [9, 4]),
    ("mega-4", 10, 30, 1, 5, 6, 2, 3, 4, 4, "relu2", "layer", "pre", [10, 7]),
    ("mega_chunk-1", 12, 12, 1, 6, 8, 4, 4, 0, 4, "softmax", "layer", "post", [12, 12]),
    ("mega_chunk-2", 14, 20, 2, 4, 6, 2, 3, 6, 5, "softmax", "layer", "pre", [14, 7]),
    ("mega_chunk-3", 9, 9, 1, 5, 6, 4, 3, 0, 3, "laplace", "scale", "post", [9, 5]),
    ("mega_chunk-4", 7, 7, 1, 5, 6, 4, 3, 0, 16, "softmax", "layer", "post", [7, 3]),
]


def main():
    for index, (name, length, longest, layers, dim, values, shared, modes, taps, chunk, attention, norm, place, lengths) in enumerate(CASES, 1):
        bias = chunk or longest
        mask = None if min(lengths) == length else lengths_mask(lengths, length)
        run = mega(layers, dim, values, shared, modes, taps, chunk, longest, attention, norm, place, lengths, length)
        options = {"block": {"layers": layers, "dim": dim, "mlp_dim": values, "norm": norm, "norm_place": place},
                   "model": {"attention": attention, "shared": shared, "modes": modes, "taps": taps, "chunk": chunk}}
        write_encoder(name, mixer=name.split("-")[0], source=SOURCE, options=options, mask=mask, max_length=longest,
                      params=parameters(2000 * index, layers, dim, values, shared, modes, bias, norm, place),
                      x=normal(index, len(lengths), length, dim), forward=lambda params, x, run=run, mask=mask: run(params, x, mask))


if __name__ == "__main__":
    main()
