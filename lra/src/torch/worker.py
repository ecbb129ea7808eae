"""The Python process of a mixer written in PyTorch. `protocol.rs` describes the messages."""

# pylint: disable=wrong-import-position
import sys

# Files of the folder in which the command was typed must not take the place of modules.
sys.path[:] = [path for path in sys.path if path]

import importlib.util
import inspect
import json
import os
import signal
import struct
import traceback

# Prints of the module must not get between the messages.
MESSAGES = os.fdopen(os.dup(1), "wb")
os.dup2(2, 1)
# The program saves its state after these, and needs the mixer until then. This process ends with it.
for name in ("SIGINT", "SIGTERM", "SIGHUP", "SIGUSR1"):
    if hasattr(signal, name):
        signal.signal(getattr(signal, name), signal.SIG_IGN)

PROTOCOL = 1

# The file of the mixer is imported here: what it starts outside of functions would start again, and so on.
os.environ["LRA_MIXER_PROCESS"] = "1"


def read(count):
    """Returns bytes from the program, or ends with it."""
    data = bytearray()
    while len(data) < count:
        part = sys.stdin.buffer.read(count - len(data))
        if not part:
            os._exit(0)
        data += part
    return data


def answer(header, *parts):
    """Writes a message with arrays as its payload."""
    header = json.dumps(header).encode()
    MESSAGES.write(struct.pack("<IQ", len(header), sum(part.nbytes for part in parts)))
    MESSAGES.write(header)
    for part in parts:
        MESSAGES.write(part.data if part.size else b"")
    MESSAGES.flush()


class Mixer:
    """The layers that were built, and the calls that a backward pass may follow."""

    def __init__(self):
        self.make, self.layers, self.calls = None, [], {}

    def hello(self, request, _):
        """Loads the factory."""
        import torch

        torch.set_num_threads(1)
        torch.use_deterministic_algorithms(True, warn_only=True)
        path = os.path.abspath(request["file"])
        sys.path.insert(0, os.path.dirname(path))
        spec = importlib.util.spec_from_file_location("lra_mixer", path)
        module = importlib.util.module_from_spec(spec)
        sys.modules["lra_mixer"] = module
        spec.loader.exec_module(module)
        self.make = getattr(module, request["factory"])
        python = ".".join(map(str, sys.version_info[:3]))
        # Its instructions decide the last digits. Versions before 2.6 do not tell them.
        instructions = getattr(torch.backends.cpu, "get_cpu_capability", lambda: "unknown instructions")()
        torch_version = f"{torch.__version__} ({instructions})"
        return {"protocol": PROTOCOL, "python": python, "torch": torch_version}, ()

    def build(self, request, _):
        """Calls the factory with those of its arguments that it names."""
        import torch

        given = {name: request[name] for name in ("dim", "length", "heads", "dropout", "layer")}
        # A module without __init__ has that of torch.nn.Module, which names no argument and takes none.
        plain = getattr(self.make, "__init__", None) is torch.nn.Module.__init__
        accepted = () if plain else inspect.signature(self.make).parameters.values()
        if not any(one.kind is one.VAR_KEYWORD for one in accepted):
            given = {one.name: given[one.name] for one in accepted if one.name in given}
        torch.manual_seed(request["seed"])
        module = self.make(**given)
        if not isinstance(module, torch.nn.Module):
            raise TypeError(f"the factory returned a {type(module).__name__}, not a torch.nn.Module")
        trained = {name: one for name, one in module.named_parameters() if one.requires_grad}
        for name, one in trained.items():
            if one.dtype != torch.float32:
                raise TypeError(f"parameter {name} is {one.dtype}, not torch.float32")
        self.layers.append({"module": module, "dim": request["dim"], "names": list(trained), "values": None, "seen": False})
        values = [one.detach().contiguous().numpy() for one in trained.values()]
        shapes = [{"name": name, "shape": list(one.shape)} for name, one in trained.items()]
        return {"id": len(self.layers) - 1, "parameters": shapes}, values

    def run(self, layer, x, mask, values):
        """Returns the output of a layer with these parameters."""
        from torch.func import functional_call

        module = layer["module"]
        fixed = [*module.buffers(), *(one for one in module.parameters() if not one.requires_grad)]
        if any(one.dtype != x.dtype for one in fixed if one.is_floating_point()):
            module.to(x.dtype)
        y = functional_call(module, dict(zip(layer["names"], values)), (x, mask))
        if not hasattr(y, "shape") or y.shape != x.shape:
            shape = tuple(y.shape) if hasattr(y, "shape") else type(y).__name__
            raise ValueError(f"the module returned {shape} for x of shape {tuple(x.shape)}: it must return the shape of x")
        if y.dtype != x.dtype:
            raise TypeError(f"the module returned {y.dtype} for x in {x.dtype}")
        return y

    def forward(self, request, payload):
        """Runs the module, and keeps its graph if a backward pass may follow."""
        import torch

        layer = self.layers[request["id"]]
        kind = {"f32": torch.float32, "f64": torch.float64}[request["type"]]
        shape, size = request["shape"], 4 if kind is torch.float32 else 8
        count = shape[0] * shape[1] * shape[2]
        x = torch.frombuffer(payload, dtype=kind, count=count).reshape(shape)
        at = count * size
        if request["mask"]:
            count = shape[0] * shape[1]
            mask = torch.frombuffer(payload, dtype=torch.uint8, count=count, offset=at).reshape(shape[:2]).bool()
            at += count
        else:
            mask = torch.ones(shape[:2], dtype=torch.bool)
        if request["changed"]:
            # A copy starts at an address that its numbers may have.
            numbers = torch.frombuffer(bytearray(payload[at:]), dtype=kind) if len(payload) > at else torch.zeros(0)
            modules = dict(layer["module"].named_parameters())
            sizes = [modules[name].numel() for name in layer["names"]]
            parts = torch.split(numbers, sizes) if sizes else ()
            layer["values"] = [part.reshape(modules[name].shape) for name, part in zip(layer["names"], parts)]
        layer["module"].train(request["train"])
        torch.manual_seed(request["seed"])
        if not request["keep"]:
            with torch.no_grad():
                y = self.run(layer, x, mask, layer["values"])
            return {}, (y.contiguous().numpy(),)
        x.requires_grad_(True)
        values = [value.detach().requires_grad_(True) for value in layer["values"]]
        check = not layer["seen"] and request["train"]
        before = [one.clone() for one in layer["module"].buffers()] if check else []
        y = self.run(layer, x, mask, values)
        if check:
            layer["seen"] = True
            for one, (name, now) in zip(before, layer["module"].named_buffers()):
                if not torch.equal(one, now.to(one.dtype)):
                    raise ValueError(f"the buffer {name} changes in training: it would be lost with the process; keep such state in no buffer")
        if y.requires_grad:
            self.calls[request["call"]] = (x, values, y)
        else:
            self.calls[request["call"]] = (x, values, None)
        return {}, (y.detach().contiguous().numpy(),)

    def backward(self, request, payload):
        """Returns the gradients of x and of the parameters."""
        import torch

        x, values, y = self.calls.pop(request["call"])
        inputs = [x, *values]
        if y is None:
            return {}, [torch.zeros_like(one).numpy() for one in inputs]
        dy = torch.frombuffer(payload, dtype=y.dtype).reshape(y.shape)
        gradients = torch.autograd.grad(y, inputs, dy, allow_unused=True)
        found = zip(gradients, inputs)
        return {}, [(torch.zeros_like(one) if got is None else got.contiguous()).numpy() for got, one in found]

    def flops(self, request, _):
        """Counts the operations of a forward pass over one sequence."""
        import torch
        from torch.utils.flop_counter import FlopCounterMode

        module, dim = self.layers[request["id"]]["module"], self.layers[request["id"]]["dim"]
        counter = FlopCounterMode(display=False)
        module.eval()
        kind = next((one.dtype for one in module.parameters()), torch.float32)
        with torch.no_grad(), counter:
            module(torch.zeros(1, request["length"], dim, dtype=kind), torch.ones(1, request["length"], dtype=torch.bool))
        return {"flops": int(counter.get_total_flops())}, ()


def main():
    """Answers messages until the program ends."""
    mixer = Mixer()
    while True:
        header, payload = struct.unpack("<IQ", read(12))
        request = json.loads(bytes(read(header)))
        payload = read(payload)
        if request["do"] == "forget":
            mixer.calls.pop(request["call"], None)
            continue
        try:
            found, parts = getattr(mixer, request["do"])(request, payload)
        except Exception:
            found, parts = {"error": traceback.format_exc()}, ()
        answer(found, *parts)


main()
