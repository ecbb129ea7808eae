"""A mixer in PyTorch, trained by lra: `python docs/torch_mixer.py` (see docs/python.md)."""

import torch


class Neighbours(torch.nn.Module):
    """y_i = W m_i + b, with m_i the mean of x_j over |i - j| <= reach; padded positions count as zeros."""

    def __init__(self, dim: int, reach: int = 2):
        super().__init__()
        self.reach = reach
        self.output = torch.nn.Linear(dim, dim)

    def forward(self, x: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
        """Mixes x (batch, length, dim); mask (batch, length) is true at real positions."""
        x = torch.nn.functional.pad(x * mask.unsqueeze(2), (0, 0, self.reach, self.reach))
        windows = x.unfold(1, 2 * self.reach + 1, 1)
        return self.output(windows.mean(3))


def neighbours(dim, length, heads, dropout, layer):
    """Makes the mixer of one block. A factory names the arguments that it needs."""
    return Neighbours(dim)


if __name__ == "__main__":
    import lra

    record = lra.train("toy", neighbours, recipe="smoke", steps=50)
    print(record["model"]["name"], record["scores"]["test_accuracy"])
