"""Peer baseline: what a PyTorch user would run today for the reference architecture.

KDA (flash-linear-attention Triton kernels, safe gate) x3 : gated MLA (SDPA/cuDNN) x1,
latent MoE through torch grouped_mm, bias-based balancing, AdamW(fused), bf16 autocast over fp32
weights, optional torch.compile.  Prints median step time, tokens/s, model FLOPs/s (MFU base).
Usage: hybrid_step_torch.py [--compile] [--layers N ...]
"""

import argparse, math, os, time, json
import torch, torch.nn as nn, torch.nn.functional as F
from fla.ops.kda import chunk_kda
from fla.modules import ShortConvolution, FusedRMSNormGated

p = argparse.ArgumentParser()
p.add_argument("--layers", type=int, default=12)
p.add_argument("--d", type=int, default=1024)
p.add_argument("--heads", type=int, default=8)
p.add_argument("--experts", type=int, default=64)
p.add_argument("--topk", type=int, default=8)
p.add_argument("--latent", type=int, default=512)
p.add_argument("--ffn", type=int, default=512)
p.add_argument("--shared", type=int, default=1024)
p.add_argument("--vocab", type=int, default=32768)
p.add_argument("--T", type=int, default=8192)
p.add_argument("--B", type=int, default=4)
p.add_argument("--steps", type=int, default=10)
p.add_argument("--compile", action="store_true")
a = p.parse_args()
dev = "cuda"
torch.manual_seed(0)
D = 128
torch.backends.cuda.matmul.allow_tf32 = True


class RMS(nn.Module):
    def __init__(s, d):
        super().__init__()
        s.w = nn.Parameter(torch.ones(d))

    def forward(s, x):
        return F.rms_norm(x, (x.shape[-1],), s.w.to(x.dtype), 1e-5)


class KDA(nn.Module):
    def __init__(s):
        super().__init__()
        d, H = a.d, a.heads
        s.H = H
        s.q = nn.Linear(d, H * D, bias=False)
        s.k = nn.Linear(d, H * D, bias=False)
        s.v = nn.Linear(d, H * D, bias=False)
        s.cq = ShortConvolution(H * D, 4, activation="silu")
        s.ck = ShortConvolution(H * D, 4, activation="silu")
        s.cv = ShortConvolution(H * D, 4, activation="silu")
        s.f = nn.Sequential(nn.Linear(d, D, bias=False), nn.Linear(D, H * D, bias=False))
        s.b = nn.Linear(d, H, bias=False)
        s.A = nn.Parameter(torch.zeros(H))
        s.dt = nn.Parameter(torch.zeros(H * D))
        s.g = nn.Sequential(nn.Linear(d, D, bias=False), nn.Linear(D, H * D, bias=True))
        s.n = FusedRMSNormGated(D, activation="sigmoid", eps=1e-5)
        s.o = nn.Linear(H * D, d, bias=False)

    def forward(s, x):
        B, T, _ = x.shape
        r = lambda z: z.view(B, T, -1, D)
        q, _ = s.cq(s.q(x))
        k, _ = s.ck(s.k(x))
        v, _ = s.cv(s.v(x))
        o, _ = chunk_kda(
            r(q),
            r(k),
            r(v),
            r(s.f(x)),
            s.b(x),
            A_log=s.A,
            dt_bias=s.dt,
            use_gate_in_kernel=True,
            use_qk_l2norm_in_kernel=True,
            use_beta_sigmoid_in_kernel=True,
            safe_gate=True,
            lower_bound=-5.0,
        )
        return s.o(s.n(o, r(s.g(x))).reshape(B, T, -1))


class MLA(nn.Module):
    def __init__(s):
        super().__init__()
        d, H = a.d, a.heads
        s.H = H
        s.q = nn.Linear(d, H * 192, bias=False)
        s.kv_a = nn.Linear(d, 256 + 64, bias=False)
        s.kn = RMS(256)
        s.kv_b = nn.Linear(256, H * (128 + 128), bias=False)
        s.g = nn.Linear(d, H * 128, bias=False)
        s.o = nn.Linear(H * 128, d, bias=False)

    def forward(s, x):
        B, T, _ = x.shape
        H = s.H
        q = s.q(x).view(B, T, H, 192).transpose(1, 2)
        c, kr = s.kv_a(x).split([256, 64], -1)
        kv = s.kv_b(s.kn(c)).view(B, T, H, 256)
        k = torch.cat([kv[..., :128], kr[:, :, None, :].expand(B, T, H, 64)], -1).transpose(1, 2)
        v = kv[..., 128:].transpose(1, 2)
        o = F.scaled_dot_product_attention(q, k, v, is_causal=True).transpose(1, 2).reshape(B, T, H * 128)
        return s.o(o * torch.sigmoid(s.g(x)))


class MoE(nn.Module):
    def __init__(s):
        super().__init__()
        d, E, L, Fh = a.d, a.experts, a.latent, a.ffn
        s.r = nn.Linear(d, E, bias=False)
        s.dn = nn.Linear(d, L, bias=False)
        s.up = nn.Linear(L, d, bias=False)
        s.w1 = nn.Parameter(torch.randn(E, L, 2 * Fh) * 0.02)
        s.w2 = nn.Parameter(torch.randn(E, Fh, L) * 0.02)
        s.s1 = nn.Linear(d, 2 * a.shared, bias=False)
        s.s2 = nn.Linear(a.shared, d, bias=False)
        s.register_buffer("bias", torch.zeros(E))

    def forward(s, x):
        B, T, d = x.shape
        xf = x.reshape(-1, d)
        n = xf.shape[0]
        sc = torch.sigmoid(s.r(xf).float())
        _, idx = torch.topk(sc + s.bias, a.topk, -1)
        w = sc.gather(1, idx)
        w = w / w.sum(-1, keepdim=True)
        flat = idx.reshape(-1)
        order = torch.argsort(flat, stable=True)
        cnt = torch.bincount(flat, minlength=a.experts)
        offs = cnt.cumsum(0).to(torch.int32)
        tok = order // a.topk
        z = s.dn(xf)
        h = z[tok].to(torch.bfloat16)
        g = torch._grouped_mm(h, s.w1.to(torch.bfloat16), offs=offs)
        u, v = g.chunk(2, -1)
        h = F.silu(u) * v
        h = torch._grouped_mm(h, s.w2.to(torch.bfloat16), offs=offs) * w.reshape(-1)[order, None].to(torch.bfloat16)
        y = torch.zeros(n, a.latent, device=x.device, dtype=h.dtype).index_add(0, tok, h)
        u, v = s.s1(xf).chunk(2, -1)
        return (s.up(y) + s.s2(F.silu(u) * v)).view(B, T, d)


class Block(nn.Module):
    def __init__(s, i):
        super().__init__()
        s.n1 = RMS(a.d)
        s.n2 = RMS(a.d)
        s.at = MLA() if i % 4 == 3 else KDA()
        s.ff = MoE()

    def forward(s, x):
        x = x + s.at(s.n1(x))
        return x + s.ff(s.n2(x))


class M(nn.Module):
    def __init__(s):
        super().__init__()
        s.e = nn.Embedding(a.vocab, a.d)
        s.bl = nn.ModuleList(Block(i) for i in range(a.layers))
        s.n = RMS(a.d)
        s.h = nn.Linear(a.d, a.vocab, bias=False)

    def forward(s, x, y):
        h = s.e(x)
        for b in s.bl:
            h = b(h)
        h = s.n(h)
        return F.cross_entropy(s.h(h).view(-1, a.vocab).float(), y.reshape(-1))


m = M().to(dev)
tot = sum(q.numel() for q in m.parameters())
ex = sum(b.ff.w1.numel() + b.ff.w2.numel() for b in m.bl)
act = tot - ex + ex * a.topk // a.experts
opt = torch.optim.AdamW(m.parameters(), lr=1e-4, fused=True)
x = torch.randint(0, a.vocab, (a.B, a.T), device=dev)
y = torch.randint(0, a.vocab, (a.B, a.T), device=dev)
n = a.B * a.T
fl = 6 * (act - a.vocab * a.d) * n  # weights touched per token, embedding lookup excluded


def bench(mm, tag):
    def step():
        with torch.autocast("cuda", torch.bfloat16):
            l = mm(x, y)
        l.backward()
        opt.step()
        opt.zero_grad(set_to_none=True)
        return l

    t0 = time.time()
    step()
    step()
    torch.cuda.synchronize()
    print("warmup s", round(time.time() - t0, 1), flush=True)
    torch.cuda.reset_peak_memory_stats()
    ts = []
    for _ in range(a.steps):
        t = time.time()
        l = step()
        torch.cuda.synchronize()
        ts.append(time.time() - t)
    ts.sort()
    md = ts[len(ts) // 2]
    print(
        json.dumps(
            dict(
                mode=tag,
                total_M=tot / 1e6,
                active_M=act / 1e6,
                ms=md * 1e3,
                tok_s=n / md,
                TFLOPs_weights=fl / md / 1e12,
                peak_GiB=torch.cuda.max_memory_allocated() / 2**30,
                loss=float(l),
            )
        ),
        flush=True,
    )


bench(m, "eager")
if a.compile:
    for b in m.bl:
        b.ff = torch.compile(b.ff, dynamic=False)
        b.n1 = torch.compile(b.n1, dynamic=False)
        b.n2 = torch.compile(b.n2, dynamic=False)
    bench(m, "compile(ffn,norm)")
