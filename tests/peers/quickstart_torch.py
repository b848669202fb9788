"""recipes/quickstart.toml trained in plain PyTorch: a peer for the speed of training on a CPU. See README.md beside it.

    python quickstart_torch.py --context 512 --tokens-per-step 8192 --steps 10 --threads 2 --mode eager

Times whole steps on random tokens (micro-batches forward and backward; then clipping, optimiser, balance of the routers), as
`kitbash bench recipes/quickstart.toml --stage 512` does.
"""
import argparse
import ctypes
import statistics
import time

import torch

import quickstart_model as model_file
from muon import Muon
from quickstart_model import VOCAB, Dense, GatedMla, Kda, LatentMoe, Model

CLIP, LR = 1.0, 3.5e-5  # the rate of the stage times 0.01, as kitbash's bench
WARM_UP = 3


def keep_memory():
    """glibc hands large blocks back to the system at every free, and each step would fault them in again: keep them."""
    trim_threshold, mmap_threshold, size = -1, -3, 1 << 30
    libc = ctypes.CDLL(None)
    return hasattr(libc, "mallopt") and libc.mallopt(mmap_threshold, size) and libc.mallopt(trim_threshold, size)


def compile_parts(optimizer):
    """Everything but the loop over experts, whose shapes change with every step."""
    torch._dynamo.config.recompile_limit = 64  # a variant for each shape: matrices of the optimiser, sources of a mix
    for cls, name in ((Kda, "forward"), (GatedMla, "forward"), (Dense, "forward"), (LatentMoe, "route"), (LatentMoe, "finish")):
        setattr(cls, name, torch.compile(getattr(cls, name), dynamic=False))
    for name in ("mix", "situ_glu"):
        setattr(model_file, name, torch.compile(getattr(model_file, name), dynamic=False))
    optimizer.orthogonal = torch.compile(optimizer.orthogonal, dynamic=False)


def main():
    ap = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    ap.add_argument("--context", type=int, default=512, help="tokens of a document")
    ap.add_argument("--tokens-per-step", type=int, default=8192)
    ap.add_argument("--micro-tokens", type=int, default=2048, help="tokens of a micro-batch")
    ap.add_argument("--steps", type=int, default=10, help=f"timed steps, after {WARM_UP} that are not")
    ap.add_argument("--threads", type=int, default=2)
    ap.add_argument("--mode", choices=("eager", "compile"), default="eager")
    ap.add_argument("--chunk", type=int, choices=(32, 64), default=32, help="tokens of a chunk of KDA")
    a = ap.parse_args()
    if a.context % a.chunk or a.micro_tokens % a.context or a.tokens_per_step % a.micro_tokens:
        ap.error("--context must be a multiple of --chunk, --micro-tokens of --context, --tokens-per-step of --micro-tokens")

    kept = keep_memory()
    torch.set_num_threads(a.threads)
    torch.manual_seed(1)
    model = Model(a.chunk)
    parameters = list(model.parameters())
    optimizer = Muon(model.named_parameters(), LR)
    if a.mode == "compile":
        compile_parts(optimizer)
    routed = [layer.ffn for layer in model.layers if isinstance(layer.ffn, LatentMoe)]
    shape, micros, seconds = (a.micro_tokens // a.context, a.context), a.tokens_per_step // a.micro_tokens, []
    for _ in range(WARM_UP + a.steps):
        start = time.perf_counter()
        for _ in range(micros):
            loss = model(torch.randint(VOCAB, shape), torch.randint(VOCAB, shape))
            (loss / micros).backward()
        torch.nn.utils.clip_grad_norm_(parameters, CLIP)
        optimizer.step()
        for moe in routed:
            moe.balance()
        for p in parameters:
            p.grad = None
        seconds.append(time.perf_counter() - start)
    step = statistics.median(seconds[WARM_UP:])
    print(f"torch {torch.__version__}, {torch.get_num_threads()} threads, {a.mode}, chunk {a.chunk}, memory kept: {bool(kept)}")
    print(f"parameters: {sum(p.numel() for p in parameters)} total")
    print(f"context {a.context}, {a.tokens_per_step} tokens a step in {micros} micro-batches, loss of the last {loss.item():.4f}")
    best = a.tokens_per_step / min(seconds[WARM_UP:])
    print(f"{a.tokens_per_step / step:.0f} tokens/s (median of {a.steps} steps; fastest {best:.0f}; start {seconds[0]:.2f} s)")


if __name__ == "__main__":
    main()
