"""Recurrences element by element, and those whose gates read the state, on each row's real part.

Griffin, RWKV-4: modules of transformers. minLSTM: minGRU-pytorch. xLSTM: the package of its authors. LSTM and GRU: torch.nn. All in float64, which
some of them have to be told. HGRN, LinOSS and RWKV-6 are programs of our own, one position after the other, from the papers' equations, with sizes
and gates as Doraemonzzz/hgru-pytorch@09f4ed2 (hgru/bihgru1d.py), tk-rusch/linoss@83e6318 (models/LinOSS.py) and BlinkDL/RWKV-LM@033ce84
(RWKV-v5/src/model.py) have them: the originals need a GPU, or JAX.
"""

import importlib.metadata
import json
from unittest import mock

import torch
import transformers
from minGRU_pytorch.minLSTM import minLSTM
from torch import nn
from torch.func import functional_call
from torch.nn.functional import gelu, layer_norm, sigmoid, silu
from transformers import RecurrentGemmaConfig, RwkvConfig
from transformers.models.recurrent_gemma.modeling_recurrent_gemma import RecurrentGemmaRecurrentBlock, RecurrentGemmaRglru
from transformers.models.rwkv.modeling_rwkv import RwkvSelfAttention
from xlstm.blocks.mlstm.layer import mLSTMLayer, mLSTMLayerConfig
from xlstm.blocks.slstm.layer import sLSTMLayer, sLSTMLayerConfig

from case import lengths_mask, normal, write
from ways import both_ways, directed

EQUATIONS = "equations, float64, one position after the other"
TRANSFORMERS = f"transformers {transformers.__version__}"


def linear(params, name, x):
    y = x @ params[f"{name}.weight"].T
    return y + params[f"{name}.bias"] if f"{name}.bias" in params else y


def hgrn(params, x, _, options, bound=0.0):
    re, im = silu(linear(params, "inner", x)).chunk(2, -1)
    decay = bound + (1 - bound) * sigmoid(linear(params, "decay", x))
    inputs = (1 - decay) * torch.complex(re, im)

    def walk(angle, decay, inputs):
        h, rows = torch.zeros_like(inputs[0]), []
        for a, u in zip(decay, inputs):
            h = a * torch.polar(torch.ones_like(angle), angle) * h + u
            rows.append(h)
        return torch.stack(rows)

    h = walk(params["theta"], decay, inputs)
    if options["direction"] == "both":
        h = h + walk(params["theta_back"], decay.flip(0), inputs.flip(0)).flip(0)
    y = layer_norm(torch.cat([h.real, h.imag], -1), (2 * x.shape[1],), params["norm.scale"], params["norm.shift"], 1e-5)
    return linear(params, "outer", y * silu(linear(params, "gate", x)))


class Float64Rglru(RecurrentGemmaRglru):
    """With states in float64."""

    def _rnn_scan(self, hidden_states, recurrent_gate, reset, recurrent_states, acc_dtype=torch.float64):
        return super()._rnn_scan(hidden_states, recurrent_gate, reset, recurrent_states, acc_dtype)


def griffin(params, x, heads, options):
    width = options["width"] or x.shape[1]
    blocks = options["blocks"] or heads
    config = RecurrentGemmaConfig(hidden_size=x.shape[1], lru_width=width, num_attention_heads=blocks, conv1d_width=options["taps"],
                                  hidden_activation="gelu_pytorch_tanh")
    block = RecurrentGemmaRecurrentBlock(config, 0)
    block.rg_lru = Float64Rglru(config)
    # Their matrices are (inputs, outputs).
    inward = lambda name: params[f"{name}.weight"].transpose(1, 2)
    theirs = {
        "conv_1d.weight": params["conv.weight"][:, None],
        "conv_1d.bias": params["conv.bias"],
        "rg_lru.recurrent_param": params["decay"],
        "rg_lru.recurrent_gate_weight": inward("forget"),
        "rg_lru.recurrent_gate_bias": params["forget.bias"].reshape(blocks, -1),
        "rg_lru.input_gate_weight": inward("input"),
        "rg_lru.input_gate_bias": params["input.bias"].reshape(blocks, -1),
    }
    for name, ours in (("linear_x", "inner"), ("linear_y", "gate"), ("linear_out", "outer")):
        theirs |= {f"{name}.{kind}": params[f"{ours}.{kind}"] for kind in ("weight", "bias")}
    positions = torch.arange(len(x))[None]
    return functional_call(block, theirs, (x[None], positions, None), {"use_cache": False})[0][0]


def min_lstm(params, x, _, options):
    module = minLSTM(x.shape[1], options["width"] / x.shape[1], proj_out=True)
    module.to_hidden_and_f_i_gate = nn.Linear(x.shape[1], 3 * options["width"])
    names = ("inner", "forget", "input")
    biases = [torch.zeros(options["width"]), params["forget.bias"], params["input.bias"]]
    theirs = {
        "to_hidden_and_f_i_gate.weight": torch.cat([params[f"{name}.weight"] for name in names]),
        "to_hidden_and_f_i_gate.bias": torch.cat(biases),
        "to_out.weight": params["outer.weight"],
    }
    return functional_call(module, theirs, (x[None],))[0]


def of_torch(kind):
    def run(params, x, _, options):
        two = options.get("direction") == "two"
        module = kind(x.shape[1], x.shape[1], batch_first=True, bidirectional=two)
        names = {"weight_ih_l0": "inner.weight", "bias_ih_l0": "inner.bias", "weight_hh_l0": "state.weight", "bias_hh_l0": "state.bias"}
        theirs = {name: params[ours] for name, ours in names.items()}
        if two:
            theirs |= {f"{name}_reverse": params[f"back.{ours}"] for name, ours in names.items()}
        y = functional_call(module, theirs, (x[None],))[0][0]
        # The module puts the two side by side.
        return sum(y.chunk(2, -1)) if two else y

    run.__name__ = kind.__name__.lower()
    return run


lstm, gru = of_torch(nn.LSTM), of_torch(nn.GRU)


def xlstm(params, x, heads, options):
    config = mLSTMLayerConfig(conv1d_kernel_size=options["taps"], qkv_proj_blocksize=options["group"], num_heads=heads, proj_factor=options["expand"],
                              embedding_dim=x.shape[1], context_length=len(x), round_proj_up_to_multiple_of=1)
    theirs = {
        "proj_up.weight": params["inner.weight"],
        "conv1d.conv.weight": params["conv.weight"][:, None],
        "conv1d.conv.bias": params["conv.bias"],
        "mlstm_cell.outnorm.weight": params["norm.scale"] - 1,
        "learnable_skip": params["skip"],
        "proj_down.weight": params["outer.weight"],
    }
    for name, ours in (("q", "query"), ("k", "key"), ("v", "value")):
        theirs[f"{name}_proj.weight"] = params[f"{ours}.weight"]
    for name, ours in (("f", "forget"), ("i", "input")):
        theirs |= {f"mlstm_cell.{name}gate.{kind}": params[f"{ours}.{kind}"] for kind in ("weight", "bias")}
    return functional_call(mLSTMLayer(config), theirs, (x[None],))[0]


def slstm(params, x, heads, options):
    """The package calls the layer of its first gate, i, `fgate`, and that of f `igate`."""
    config = sLSTMLayerConfig(embedding_dim=x.shape[1], num_heads=heads, conv1d_kernel_size=options["taps"], backend="vanilla", dtype="float32")
    module = sLSTMLayer(config).double()
    names = (("fgate", "input"), ("igate", "forget"), ("zgate", "cell"), ("ogate", "output"))
    theirs = {f"{theirs}.weight": params[f"{ours}.weight"] for theirs, ours in names}
    theirs |= {"conv1d.conv.weight": params["conv.weight"][:, None], "conv1d.conv.bias": params["conv.bias"], "group_norm.weight": params["norm.scale"] - 1}
    cell = module.slstm_cell
    # Outputs first here; the package keeps (H, E, 4, E).
    width = x.shape[1] // heads
    weight = params["state.weight"].reshape(heads, 4, width, width).permute(0, 3, 1, 2)
    theirs["slstm_cell._recurrent_kernel_"] = cell._recurrent_kernel_ext2int(weight)
    theirs["slstm_cell._bias_"] = cell._bias_ext2int(params["bias"].reshape(heads, 4, width))
    return functional_call(module, theirs, (x[None],))[0]


def rwkv4(params, x, _, options):
    module = RwkvSelfAttention(RwkvConfig(hidden_size=x.shape[1], attention_hidden_size=x.shape[1], num_hidden_layers=2))
    theirs = {"time_decay": params["decay"], "time_first": params["bonus"], "output.weight": params["output.weight"]}
    for name in ("receptance", "key", "value"):
        theirs |= {f"time_mix_{name}": params[f"{name}.share"][None, None], f"{name}.weight": params[f"{name}.weight"]}
    with mock.patch.object(torch.Tensor, "float", torch.Tensor.double):
        return functional_call(module, theirs, (x[None],))[0][0]


def linoss(params, x, _, options):
    stiffness, step = params["stiffness"].relu(), sigmoid(params["step"])
    force = x.to(torch.complex128) @ torch.complex(params["b_re"], params["b_im"]).T
    z = y = torch.zeros_like(force[0])
    rows = []
    for f in force:
        if options["scheme"] == "im":
            # The position behind the step solves an equation of its own.
            y = (y + step * z + step**2 * f) / (1 + step**2 * stiffness)
            z = z + step * (f - stiffness * y)
        elif options["scheme"] == "damped":
            loss = 1 + step * params["damping"].relu()
            low, high = ((2 + loss - 1 + sign * 2 * loss.sqrt()) / step**2 for sign in (-1, 1))
            z = (z + step * (f - torch.minimum(torch.maximum(params["stiffness"], low), high) * y)) / loss
            y = y + step * z
        else:
            z = z + step * (f - stiffness * y)
            y = y + step * z
        rows.append(y)
    out = (torch.stack(rows) @ torch.complex(params["c_re"], params["c_im"]).T).real + params["d"] * x
    value, gate = linear(params, "output", gelu(out, approximate="tanh")).chunk(2, -1)
    return value * sigmoid(gate)


def rwkv6(params, x, heads, options):
    change = torch.cat([torch.zeros_like(x[:1]), x[:-1]]) - x
    low = torch.tanh(linear(params, "mix", x + change * params["share"])).chunk(5, -1)
    mixed = lambda index, name: x + change * linear(params, f"mix.{name}", low[index])
    by_head = lambda y: y.reshape(len(x), heads, -1)
    decay = linear(params, "decay.outer", torch.tanh(linear(params, "decay.inner", mixed(0, "decay"))))
    decay = by_head(torch.exp(-torch.exp(decay)))
    k, v, r = (by_head(linear(params, name, mixed(index, name))) for index, name in ((1, "key"), (2, "value"), (3, "receptance")))
    gate = silu(linear(params, "gate", mixed(4, "gate")))
    state, rows = x.new_zeros(heads, k.shape[2], v.shape[2]), []
    for t in range(len(x)):
        added = k[t][:, :, None] * v[t][:, None, :]
        rows.append(((state + params["bonus"][:, :, None] * added) * r[t][:, :, None]).sum(1))
        state = decay[t][:, :, None] * state + added
    y = layer_norm(torch.stack(rows), (v.shape[2],), eps=64e-5).flatten(1)
    return linear(params, "output", (y * params["norm.scale"] + params["norm.shift"]) * gate)


def shapes(model, dim, heads, options):
    """Parameters of a layer, with the deviation of each; vectors lie around the third number."""
    weight = lambda inputs, outputs: ((outputs, inputs), inputs**-0.5, 0)
    vector = lambda count, mean=0.0: ((count,), 0.4, mean)
    both = lambda name, inputs, outputs: {f"{name}.weight": weight(inputs, outputs), f"{name}.bias": vector(outputs)}
    if model == "hgrn":
        angles = ["theta", "theta_back"][: 2 if options["direction"] == "both" else 1]
        return (
            both("inner", dim, 2 * dim)
            | both("decay", dim, dim)
            | {name: vector(dim, 0.5) for name in angles}
            | {"norm.scale": vector(2 * dim, 1), "norm.shift": vector(2 * dim)}
            | both("gate", dim, 2 * dim)
            | both("outer", 2 * dim, dim)
        )
    if model == "griffin":
        inner = options["width"] or dim
        blocks = options["blocks"] or heads
        block = inner // blocks
        gates = {}
        for name in ("forget", "input"):
            gates |= {f"{name}.weight": ((blocks, block, block), block**-0.5, 0), f"{name}.bias": vector(inner)}
        conv = {"conv.weight": ((inner, options["taps"]), 0.6, 0), "conv.bias": vector(inner)}
        return both("inner", dim, inner) | both("gate", dim, inner) | conv | gates | {"decay": vector(inner, -3)} | both("outer", inner, dim)
    if model == "min_lstm":
        inner = options["width"]
        gates = both("forget", dim, inner) | both("input", dim, inner)
        return {"inner.weight": weight(dim, inner)} | gates | {"outer.weight": weight(inner, dim)}
    if model == "xlstm":
        inner, group = options["expand"] * dim, options["group"]
        blocks = {f"{name}.weight": ((inner // group, group, group), group**-0.5, 0) for name in ("query", "key", "value")}
        gates = both("forget", 3 * inner, heads) | both("input", 3 * inner, heads)
        gates["forget.bias"] = vector(heads, 2)
        conv = {"conv.weight": ((inner, options["taps"]), 0.6, 0), "conv.bias": vector(inner)}
        rest = {"norm.scale": vector(inner, 1), "skip": vector(inner, 1), "outer.weight": weight(inner, dim)}
        return {"inner.weight": weight(dim, 2 * inner)} | conv | blocks | gates | rest
    if model == "slstm":
        width = dim // heads
        gates = {f"{name}.weight": ((heads, width, width), width**-0.5, 0) for name in ("input", "forget", "cell", "output")}
        conv = {"conv.weight": ((dim, options["taps"]), 0.6, 0), "conv.bias": vector(dim)}
        state = {"state.weight": ((heads, 4 * width, width), width**-0.5, 0), "bias": ((heads, 4 * width), 1.0, 0)}
        return gates | conv | state | {"norm.scale": vector(dim, 1)}
    if model == "rwkv4":
        mixed = {}
        for name in ("receptance", "key", "value"):
            mixed |= {f"{name}.share": vector(dim, 0.5), f"{name}.weight": weight(dim, dim)}
        return mixed | {"decay": vector(dim, -1), "bonus": vector(dim), "output.weight": weight(dim, dim)}
    if model == "linoss":
        states = options["state"]
        b = {f"b_{part}": weight(dim, states) for part in ("re", "im")}
        c = {f"c_{part}": weight(states, dim) for part in ("re", "im")}
        rates = {"stiffness": vector(states, 0.5), "step": vector(states)}
        if options["scheme"] == "damped":
            # Some above and some below the bounds.
            rates |= {"stiffness": ((states,), 5.0, 4.0), "damping": ((states,), 0.8, 0.4)}
        return rates | b | c | {"d": vector(dim)} | both("output", dim, 2 * dim)
    if model == "rwkv6":
        mixes = {}
        for name in ("decay", "key", "value", "receptance", "gate"):
            mixes |= both(f"mix.{name}", options["mix_rank"], dim)
        low = {"share": vector(dim, 0.5), "mix.weight": weight(dim, 5 * options["mix_rank"])}
        decay = {"decay.inner.weight": weight(dim, options["decay_rank"])} | both("decay.outer", options["decay_rank"], dim)
        linears = {f"{name}.weight": weight(dim, dim) for name in ("key", "value", "receptance", "gate", "output")}
        rest = {"bonus": ((heads, dim // heads), 0.4, 0), "norm.scale": vector(dim, 1), "norm.shift": vector(dim)}
        return low | mixes | decay | linears | rest
    rows = {"lstm": 4, "gru": 3}[model] * dim
    return both("inner", dim, rows) | both("state", dim, rows)


MIN_LSTM = f"minGRU-pytorch {importlib.metadata.version('minGRU-pytorch')}, minLSTM, changed: biases of the gates"
XLSTM = f"xlstm {importlib.metadata.version('xlstm')}, mLSTMLayer"
SLSTM = f"xlstm {importlib.metadata.version('xlstm')}, sLSTMLayer, backend vanilla"
TORCH = f"torch {torch.__version__.split('+')[0]}"

# Source, and length, width, heads, options, lengths of the rows.
CASES = {
    hgrn: (EQUATIONS, [
        (19, 8, 1, {"direction": "both"}, [19, 7]),
        (33, 5, 1, {"direction": "forward"}, [33]),
        (17, 6, 1, {"direction": "both"}, [17, 1, 16]),
    ]),
    griffin: (f"{TRANSFORMERS}, RecurrentGemmaRecurrentBlock, changed: states in float64", [
        (19, 8, 2, {"width": 0, "blocks": 0, "taps": 4}, [19, 7]),
        (33, 5, 1, {"width": 6, "blocks": 3, "taps": 2}, [33]),
        (17, 6, 3, {"width": 12, "blocks": 0, "taps": 3}, [17, 1, 16]),
    ]),
    min_lstm: (MIN_LSTM, [
        (19, 8, 1, {"width": 12, "memory": 0.0}, [19, 7]),
        (33, 5, 1, {"width": 3, "memory": 9.0}, [33]),
        (17, 6, 1, {"width": 7, "memory": 0.0}, [17, 2, 16]),
    ]),
    lstm: (f"{TORCH}, nn.LSTM", [
        (37, 8, 1, {}, [37, 7]),
        (70, 5, 1, {"forget_bias": 1.0}, [70]),
        (17, 6, 1, {}, [17, 1, 16]),
        (13, 5, 1, {"direction": "two"}, [13, 1, 6]),
    ]),
    gru: (f"{TORCH}, nn.GRU", [
        (37, 8, 1, {}, [37, 7]),
        (70, 5, 1, {}, [70]),
        (17, 6, 1, {}, [17, 1, 16]),
        (13, 5, 1, {"direction": "two"}, [13, 1, 6]),
    ]),
    xlstm: (XLSTM, [
        (19, 8, 2, {"expand": 2, "taps": 4, "group": 4}, [19, 7]),
        (33, 6, 1, {"expand": 1, "taps": 2, "group": 3}, [33]),
        (17, 6, 3, {"expand": 2, "taps": 3, "group": 2}, [17, 1, 16]),
        (13, 4, 2, {"expand": 2, "taps": 4, "group": 4, "direction": "two"}, [13, 1, 6]),
        (13, 6, 3, {"expand": 3, "taps": 7, "group": 6, "direction": "sum"}, [13, 1, 6]),
    ]),
    rwkv4: (f"{TRANSFORMERS}, RwkvSelfAttention, changed: float64", [
        (19, 8, 1, {}, [19, 7]),
        (33, 5, 1, {}, [33]),
        (17, 6, 1, {}, [17, 1, 16]),
        (13, 5, 1, {"direction": "sum"}, [13, 1, 6]),
        (13, 3, 1, {"direction": "two"}, [13, 1, 6]),
    ]),
    linoss: (EQUATIONS, [
        (19, 6, 1, {"state": 8, "scheme": "im"}, [19, 7]),
        (33, 5, 1, {"state": 3, "scheme": "imex"}, [33]),
        (17, 4, 1, {"state": 7, "scheme": "imex"}, [17, 1, 16]),
        (40, 4, 1, {"state": 4, "scheme": "im"}, [40]),
        (23, 5, 1, {"state": 9, "scheme": "damped"}, [23, 8]),
        (40, 4, 1, {"state": 6, "scheme": "damped"}, [40]),
        (17, 6, 1, {"state": 5, "scheme": "damped"}, [17, 1, 16]),
        (13, 3, 1, {"state": 9, "scheme": "imex", "direction": "sum"}, [13, 1, 6]),
        (13, 5, 1, {"state": 7, "scheme": "damped", "direction": "two"}, [13, 1, 6]),
    ]),
    rwkv6: (EQUATIONS, [
        (19, 8, 2, {"mix_rank": 3, "decay_rank": 2}, [19, 7]),
        (33, 6, 1, {"mix_rank": 2, "decay_rank": 5}, [33]),
        (17, 9, 3, {"mix_rank": 4, "decay_rank": 3}, [17, 1, 16]),
        (13, 3, 3, {"mix_rank": 2, "decay_rank": 3, "direction": "sum"}, [13, 1, 6]),
        (13, 6, 2, {"mix_rank": 1, "decay_rank": 1, "direction": "two"}, [13, 1, 6]),
    ]),
    slstm: (SLSTM, [
        (37, 8, 2, {"taps": 4}, [37, 7]),
        (70, 6, 1, {"taps": 2}, [70]),
        (17, 9, 3, {"taps": 3}, [17, 1, 16]),
        (13, 4, 2, {"taps": 4, "direction": "sum"}, [13, 1, 6]),
        (13, 9, 3, {"taps": 5, "direction": "two"}, [13, 1, 6]),
    ]),
}


def parameters(seed, model, sizes):
    params = {}
    for index, (path, (shape, deviation, mean)) in enumerate(shapes(model.__name__, *sizes).items()):
        # Sums are rounded again.
        params[path] = (mean + normal(seed + index, *shape, scale=deviation)).float().double()
    return params


def parameters_of_ways(seed, model, sizes):
    params = parameters(seed, model, sizes)
    return both_ways(params, parameters(seed + 50, model, sizes)) if sizes[2].get("direction") == "two" else params


def on_rows(model, heads, options, lengths):
    def forward(params, x):
        rows = [model(params, x[row, :length], heads, options) for row, length in enumerate(lengths)]
        return torch.stack([nn.functional.pad(y, (0, 0, 0, x.shape[1] - len(y))) for y in rows])

    return forward


def main():
    for number, (model, (source, cases)) in enumerate(CASES.items()):
        for index, (length, dim, heads, options, lengths) in enumerate(cases, 1):
            seed = 30_000 + 1000 * number + 100 * index
            mask = None if min(lengths) == length else lengths_mask(lengths, length)
            params = parameters_of_ways(seed, model, (dim, heads, options))
            run = model if model in (lstm, gru) else directed(model)
            x = normal(seed + 99, len(lengths), length, dim)
            write(f"{model.__name__}-{index}", mixer=model.__name__, heads=heads, source=source, options=options, params=params, x=x, mask=mask,
                  forward=on_rows(run, heads, options, lengths), block=json.dumps({"activation": "gelu"}))


if __name__ == "__main__":
    main()
