"""Muon for matrices and AdamW for the rest, as kitbash's optimizer.muon: blocks of equal shape share one batched product."""
import math
from collections import defaultdict

import torch


def orthogonal(x, steps=5):  # [n, rows, cols], rows <= cols: each with singular values near 1
    x = x * torch.rsqrt(x.square().sum((1, 2), keepdim=True) + 1e-30)
    for _ in range(steps):
        a = torch.bmm(x, x.mT)
        x = torch.baddbmm(x, torch.baddbmm(a, a, a, beta=-4.7750, alpha=2.0315), x, beta=3.4445)
    return x


class Muon:
    """Parameters with an attribute `blocks` are matrices; all others get AdamW, vectors of norms and biases without decay."""

    def __init__(self, named, lr, momentum=0.95, decay=0.1, scale=0.2):
        self.lr, self.momentum, self.decay, self.scale = lr, momentum, decay, scale
        self.orthogonal = orthogonal
        self.groups, plain, still = defaultdict(list), [], []
        for name, p in named:
            if hasattr(p, "blocks"):
                self.groups[self.blocks(p, p).shape[1:]].append(p)
            else:
                (plain if name == "embed" or name.endswith("_conv") else still).append(p)
        self.state = {s: torch.zeros(sum(p.blocks for p in group), *s) for s, group in self.groups.items()}
        rest = [{"params": plain, "weight_decay": decay}, {"params": still, "weight_decay": 0.0}]
        self.others = torch.optim.AdamW(rest, lr=lr, betas=(0.9, 0.95), eps=1e-8, fused=True)

    @staticmethod
    def blocks(p, x):  # x like p -> [blocks, short side, long side]
        x = x.view(p.blocks, -1, p.shape[-1])
        return x.mT if x.shape[1] > x.shape[2] else x

    @torch.no_grad()
    def step(self):
        for shape, group in self.groups.items():
            g, m = torch.cat([self.blocks(p, p.grad) for p in group]), self.state[shape]
            m.mul_(self.momentum).add_(g)
            x = self.orthogonal(g.add_(m, alpha=self.momentum))  # Nesterov
            torch._foreach_mul_(group, 1 - self.lr * self.decay)
            parts = x.split([p.blocks for p in group])
            now = [self.blocks(p, p) for p in group]  # views
            torch._foreach_add_(now, list(parts), alpha=-self.lr * self.scale * math.sqrt(shape[1]))
        self.others.step()
