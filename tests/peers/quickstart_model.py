"""The model of recipes/quickstart.toml in plain PyTorch operations, float32. Parameters have kitbash's names and shapes.

Letters: B documents, T tokens of a document, D dim, H heads, K width of a key, V of a value, C tokens of a chunk, N chunks,
E experts, R = B T rows.
"""
import math

import torch
import torch.nn.functional as F
from torch import nn

DIM, LAYERS, VOCAB, BLOCK_LAYERS, HEADS, STD = 128, 8, 258, 4, 4, 0.04
KDA_DIM, CONV, GATE_RANK, FLOOR = 32, 4, 32, -5.0
Q_RANK, KV_RANK, NOPE, ROPE, V_DIM = 48, 32, 24, 8, 32
DENSE, EXPERTS, ACTIVE, LATENT, WIDTH, SHARED, BINS = 256, 16, 2, 64, 64, 64, 1000


def matrix(*shape, blocks=1, std=STD):
    """A matrix for Muon, which treats each of `blocks` equal parts of the first axis alone."""
    p = nn.Parameter(torch.randn(shape) * std)
    p.blocks = blocks
    return p


def situ_glu(gate, up):  # [.., width] both
    return 4 * torch.tanh(gate / 4) * torch.sigmoid(gate) * (25 * torch.tanh(up / 25))


def norm(x, weight, eps=1e-5):
    return F.rms_norm(x, weight.shape, weight, eps)


# ---------------------------------------------------------------------------------------------------- attention
def delta_rule(q, k, v, g, beta, chunk, tile=32):
    """Kimi Delta Attention in chunks. q, k, g [B, T, H, K]; v [B, T, H, V]; beta [B, T, H] -> [B, T, H, V].

    M_rj = sum k_r k_j exp(G_r - G_j) is one product a tile of rows, both factors measured from the tile's middle row: with
    log decays down to -5 a token no exponent passes 80. What lies above the diagonal may overflow, and is cut off."""
    B, T, H, K = q.shape
    N, V = T // chunk, v.shape[-1]
    tile = min(tile, chunk)

    def chunks(x):  # [B, T, H, *] -> [N, B H, C, *]
        return x.view(B, N, chunk, H, -1).permute(1, 0, 3, 2, 4).reshape(N, B * H, chunk, -1)

    q, k, v, g, beta = chunks(q * K**-0.5), chunks(k), chunks(v), chunks(g), chunks(beta[..., None])
    G = g.cumsum(-2)
    rows = [x.unflatten(-2, (chunk // tile, tile)) for x in (q, k, G)]  # [N, B H, tiles, tile, K]
    middle = rows[2][..., tile // 2, :].unsqueeze(-2)  # [N, B H, tiles, 1, K]
    near = (rows[2] - middle).exp()
    ahead = middle - G.unsqueeze(2)  # [N, B H, tiles, C, K]
    if tile < chunk:  # the columns of later tiles, which are cut off, would give infinities
        ahead = ahead.clamp(max=-FLOOR * tile / 2)
    far = k.unsqueeze(2) * ahead.exp()
    M = torch.cat([rows[0] * near, rows[1] * near], -2) @ far.transpose(-1, -2)  # [N, B H, tiles, 2 tile, C]
    P, L = (x.reshape(N, B * H, chunk, chunk) for x in M.split(tile, -2))
    P, L = P.tril(), L.tril(-1) * beta
    decay, rest = G.exp(), (G[:, :, -1:] - G).exp()
    UW = torch.linalg.solve_triangular(L, torch.cat([v, k * decay], -1) * beta, upper=False, unitriangular=True)
    U, W = UW.split([V, K], -1)
    keys, whole = (k * rest).transpose(-1, -2), decay[:, :, -1:].transpose(-1, -2)  # [N, B H, K, C], [N, B H, K, 1]
    S, before, values = q.new_zeros(B * H, K, V), [], []
    for u, w, key, shrink in zip(U.unbind(), W.unbind(), keys.unbind(), whole.unbind()):
        before.append(S)
        values.append(torch.baddbmm(u, w, S, alpha=-1))  # what the state does not know yet [B H, C, V]
        S = torch.baddbmm(shrink * S, key, values[-1])
    o = (q * decay) @ torch.stack(before) + P @ torch.stack(values)  # [N, B H, C, V]
    return o.view(N, B, H, chunk, V).permute(1, 0, 3, 2, 4).reshape(B, T, H, V)


class Kda(nn.Module):
    def __init__(self, chunk):
        super().__init__()
        P, self.chunk = HEADS * KDA_DIM, chunk
        for n in "qkv":
            setattr(self, f"{n}_proj", matrix(P, DIM, blocks=HEADS))
            setattr(self, f"{n}_conv", nn.Parameter(torch.empty(P, CONV).uniform_(-(CONV**-0.5), CONV**-0.5)))
        self.f_a, self.f_b = matrix(KDA_DIM, DIM), matrix(P, KDA_DIM)
        self.g_a, self.g_b = matrix(GATE_RANK, DIM), matrix(P, GATE_RANK)
        self.b_proj, self.o_proj = matrix(HEADS, DIM), matrix(DIM, P)
        dt = torch.empty(P).uniform_(math.log(1e-3), math.log(1e-1)).exp()
        self.dt_bias = nn.Parameter(dt + torch.log(-torch.expm1(-dt)))
        self.A_log, self.o_norm = nn.Parameter(torch.zeros(HEADS)), nn.Parameter(torch.ones(KDA_DIM))

    def forward(self, x):  # [B, T, D]
        B, T, _ = x.shape
        P = HEADS * KDA_DIM
        # What reads x is one product, and the three short convolutions are one: [B, T, 3 P | K | rank | H].
        w = torch.cat([self.q_proj, self.k_proj, self.v_proj, self.f_a, self.g_a, self.b_proj])
        qkv, f, gate, beta = F.linear(x, w).split([3 * P, KDA_DIM, GATE_RANK, HEADS], -1)
        taps = torch.cat([self.q_conv, self.k_conv, self.v_conv]).t().contiguous()  # [taps, 3 P]
        past = F.pad(qkv, (0, 0, CONV - 1, 0))
        y = past[:, :T] * taps[0]
        for j in range(1, CONV):
            y = torch.addcmul(y, past[:, j : j + T], taps[j])
        q, k, v = F.silu(y).view(B, T, 3, HEADS, KDA_DIM).unbind(2)
        q, k = (y * torch.rsqrt(y.square().sum(-1, keepdim=True) + 1e-6) for y in (q, k))
        z = (F.linear(f, self.f_b) + self.dt_bias).view(B, T, HEADS, KDA_DIM)
        g = FLOOR * torch.sigmoid(self.A_log.exp()[:, None] * z)
        o = norm(delta_rule(q, k, v, g, torch.sigmoid(beta), self.chunk), self.o_norm).view(B, T, P)
        return F.linear(o * torch.sigmoid(F.linear(gate, self.g_b)), self.o_proj)


class GatedMla(nn.Module):
    def __init__(self):
        super().__init__()
        self.q_a, self.q_a_norm = matrix(Q_RANK, DIM), nn.Parameter(torch.ones(Q_RANK))
        self.q_b = matrix(HEADS * (NOPE + ROPE), Q_RANK, blocks=HEADS)
        self.kv_a, self.kv_a_norm = matrix(KV_RANK + ROPE, DIM), nn.Parameter(torch.ones(KV_RANK))
        self.kv_b = matrix(HEADS * (NOPE + V_DIM), KV_RANK, blocks=HEADS)
        self.g_proj, self.o_proj = matrix(HEADS * V_DIM, DIM), matrix(DIM, HEADS * V_DIM)

    def forward(self, x):  # [B, T, D]
        B, T, _ = x.shape
        w = torch.cat([self.q_a, self.kv_a, self.g_proj])
        q, c, shared, gate = F.linear(x, w).split([Q_RANK, KV_RANK, ROPE, HEADS * V_DIM], -1)
        q = F.linear(norm(q, self.q_a_norm, 1e-6), self.q_b).view(B, T, HEADS, NOPE + ROPE)
        kv = F.linear(norm(c, self.kv_a_norm, 1e-6), self.kv_b).view(B, T, HEADS, NOPE + V_DIM)
        k, v = kv.split([NOPE, V_DIM], -1)
        k = torch.cat([k, shared[:, :, None].expand(B, T, HEADS, ROPE)], -1)  # never rotated
        o = F.scaled_dot_product_attention(q.transpose(1, 2), k.transpose(1, 2), v.transpose(1, 2), is_causal=True)
        return F.linear(o.transpose(1, 2).reshape(B, T, -1) * torch.sigmoid(gate), self.o_proj)


# ---------------------------------------------------------------------------------------------------- feed-forward
class Dense(nn.Module):
    def __init__(self):
        super().__init__()
        self.w1, self.w3, self.w2 = matrix(DENSE, DIM), matrix(DENSE, DIM), matrix(DIM, DENSE)

    def forward(self, x):
        return F.linear(situ_glu(F.linear(x, self.w1), F.linear(x, self.w3)), self.w2)


def grouped(x, w, counts):  # rows [R, in] sorted by expert, w [E, out, in] -> [R, out]
    return torch.cat([r @ m.T for r, m in zip(x.split(counts), w.unbind())])


class LatentMoe(nn.Module):
    def __init__(self):
        super().__init__()
        self.router, self.down, self.up = matrix(EXPERTS, DIM, std=0.02), matrix(LATENT, DIM), matrix(DIM, LATENT)
        self.norm = nn.Parameter(torch.ones(LATENT))
        self.w1, self.w3 = (matrix(EXPERTS, WIDTH, LATENT, blocks=EXPERTS) for _ in "13")
        self.w2 = matrix(EXPERTS, LATENT, WIDTH, blocks=EXPERTS)
        self.shared_w1, self.shared_w3, self.shared_w2 = matrix(SHARED, DIM), matrix(SHARED, DIM), matrix(DIM, SHARED)
        self.register_buffer("bias", torch.zeros(EXPERTS))
        self.register_buffer("counts", torch.zeros(EXPERTS, BINS))

    def range(self):  # low end and width of a bin of the histogram
        low, high = self.bias.aminmax()
        return low - 1, (high - low + 2) / BINS

    @torch.no_grad()
    def count(self, scores, cutoff):  # [R, E], [R, 1]: the bias that each expert would have needed
        low, width = self.range()
        bins = ((cutoff - scores - low) / width).clamp(0, BINS - 1).long() + BINS * torch.arange(EXPERTS)
        self.counts += torch.bincount(bins.view(-1), minlength=EXPERTS * BINS).view(EXPERTS, BINS)

    @torch.no_grad()
    def balance(self):  # once a step: b = the active / experts quantile of the needed biases, centred
        low, width = self.range()
        upto, q = self.counts.cumsum(1), self.counts[0].sum() * ACTIVE / EXPERTS
        at = (upto < q.ceil()).sum(1, keepdim=True)  # the first bin that reaches q
        inside = self.counts.gather(1, at)
        part = ((q - (upto.gather(1, at) - inside)) / inside).clamp(0, 1)
        b = (low + (at + part) * width)[:, 0]
        self.bias.copy_(b - b.mean())
        self.counts.zero_()

    def route(self, x):  # [R, D] -> p, ids [R, active]; z [R, latent]; the shared expert's gate and up [R, shared]
        w = torch.cat([self.router, self.down, self.shared_w1, self.shared_w3])
        scores, z, gate, up = F.linear(x, w).split([EXPERTS, LATENT, SHARED, SHARED], -1)
        scores = scores.sigmoid()
        top, ids = torch.topk(scores.detach() + self.bias, ACTIVE + 1)
        self.count(scores.detach(), top[:, ACTIVE:])
        p = scores.gather(1, ids[:, :ACTIVE])
        return p / (p.sum(1, keepdim=True) + 1e-20), ids[:, :ACTIVE], z, gate, up

    def experts(self, p, ids, z):  # -> sum of p E(z) [R, latent]
        ids = ids.reshape(-1)
        order, counts = ids.argsort(), torch.bincount(ids, minlength=EXPERTS).tolist()
        token = order // ACTIVE
        rows = z.index_select(0, token)  # [R active, latent], sorted by expert
        h = situ_glu(grouped(rows, self.w1, counts), grouped(rows, self.w3, counts))
        h = h * p.view(-1, 1).index_select(0, order)
        return torch.zeros_like(z).index_add(0, token, grouped(h, self.w2, counts))

    def finish(self, u, gate, up):
        return F.linear(norm(u, self.norm), self.up) + F.linear(situ_glu(gate, up), self.shared_w2)

    def forward(self, x):  # [B, T, D]
        p, ids, z, gate, up = self.route(x.view(-1, DIM))
        return self.finish(self.experts(p, ids, z), gate, up).view(x.shape)


# ---------------------------------------------------------------------------------------------------- the whole
def mix(sources, weight, query):  # n sources [B, T, D]: softmax over the depth
    c = weight * query
    logits = [(v @ c) * torch.rsqrt(torch.linalg.vecdot(v, v) / DIM + 1e-5) for v in sources]
    p = torch.stack(logits, -1).softmax(-1)[..., None, :].unbind(-1)  # n of [B, T, 1]
    return sum(weight * v for weight, v in zip(p, sources))


class Layer(nn.Module):
    def __init__(self, index, chunk):
        super().__init__()
        self.index = index
        is_global = index % 4 == 3 or index == LAYERS - 1
        self.attn = GatedMla() if is_global else Kda(chunk)
        self.ffn = LatentMoe() if index else Dense()
        for role in ("attn", "ffn") if index else ("ffn",):  # the first layer reads the embedding itself
            self.register_parameter(f"{role}_res_norm", nn.Parameter(torch.ones(DIM)))
            self.register_parameter(f"{role}_res_query", nn.Parameter(torch.zeros(DIM)))
        self.attn_norm, self.ffn_norm = nn.Parameter(torch.ones(DIM)), nn.Parameter(torch.ones(DIM))

    def forward(self, blocks, partial):
        h = mix(blocks + [partial], self.attn_res_norm, self.attn_res_query) if blocks else partial
        y = self.attn(norm(h, self.attn_norm))
        if self.index % BLOCK_LAYERS == 0:
            blocks, partial = blocks + [partial], y
        else:
            partial = partial + y
        h = mix(blocks + [partial], self.ffn_res_norm, self.ffn_res_query)
        return blocks, partial + self.ffn(norm(h, self.ffn_norm))


class Model(nn.Module):
    def __init__(self, chunk):
        super().__init__()
        self.embed, self.lm_head = nn.Parameter(torch.randn(VOCAB, DIM) * 0.02), matrix(VOCAB, DIM, std=0.02)
        self.layers = nn.ModuleList(Layer(i, chunk) for i in range(LAYERS))
        self.out_res_norm, self.out_res_query = nn.Parameter(torch.ones(DIM)), nn.Parameter(torch.zeros(DIM))
        self.final_norm = nn.Parameter(torch.ones(DIM))

    def forward(self, tokens, target):  # [B, T] both
        blocks, partial = [], F.embedding(tokens, self.embed)
        for layer in self.layers:
            blocks, partial = layer(blocks, partial)
        h = norm(mix(blocks + [partial], self.out_res_norm, self.out_res_query), self.final_norm)
        return F.cross_entropy(F.linear(h, self.lm_head).view(-1, VOCAB), target.view(-1))
