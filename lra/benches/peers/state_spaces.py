"""State spaces in eager PyTorch, as their authors' stand-alone files have them: kernels by `exp`, convolutions by `torch.fft`."""

import math

import torch
from torch import nn
from torch.nn import functional as F

from peer import Peer, peer


@peer("s4d", "PyTorch torch.fft")
class S4D(Peer):
    """Diagonal state spaces in both directions (arXiv 2206.11893), GELU, and a gated linear layer.

    Each channel has modes of its own, which all channels of lra's share: a few more weights, the same work.
    """

    FEED_FORWARD = False
    POSITIONS = False
    STATE = 4

    def __init__(self, sizes):
        super().__init__()
        dim, modes = sizes.dim, self.STATE // 2
        span = math.log(0.1) - math.log(0.001)
        self.log_dt = nn.Parameter(torch.rand(dim) * span + math.log(0.001))
        self.log_a_real = nn.Parameter(torch.full((dim, modes), math.log(0.5)))
        self.a_imag = nn.Parameter((math.pi * torch.arange(modes)).repeat(dim, 1))
        self.c = nn.Parameter(torch.view_as_real(torch.randn(2, dim, modes, dtype=torch.cfloat)))
        self.d = nn.Parameter(torch.randn(dim))
        self.output = nn.Linear(dim, 2 * dim)

    def kernels(self, length):
        """(2, D, L): what is behind, and what is ahead."""
        dt, c = self.log_dt.exp(), torch.view_as_complex(self.c)
        a = -self.log_a_real.exp() + 1j * self.a_imag
        step = a * dt[:, None]
        powers = torch.exp(step[..., None] * torch.arange(length))
        c = c * (step.exp() - 1) / a
        return 2 * torch.einsum("khn,hnl->khl", c, powers).real

    def forward(self, x):
        length = x.shape[1]
        u = x.transpose(1, 2)
        behind, ahead = self.kernels(length)
        kernel = F.pad(behind, (0, length)) + F.pad(ahead.flip(-1), (length, 0))
        spectrum = torch.fft.rfft(u, n=2 * length) * torch.fft.rfft(kernel, n=2 * length)
        y = torch.fft.irfft(spectrum, n=2 * length)[..., :length] + u * self.d[:, None]
        return F.glu(self.output(F.gelu(y.transpose(1, 2))), dim=-1)


@peer("s4d:state=64", "PyTorch torch.fft")
class LargeS4D(S4D):
    """The same with the published number of states."""

    STATE = 64
