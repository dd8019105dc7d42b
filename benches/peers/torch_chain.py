"""The same operator in PyTorch, eager and compiled, timed on the same GPU.

    python benches/peers/torch_chain.py [--shape 4096,16,64 ...]

The two are compared with each other before they are timed. Times are microseconds a call in a
CUDA graph of 20 calls on the same buffers. Needs PyTorch 2.1 or later with CUDA; nothing of this project.
"""

import argparse

import torch

SHAPES = [(1, 16, 64), (64, 16, 64), (256, 16, 64), (1024, 16, 64), (4096, 16, 64), (16384, 16, 64),
          (64, 64, 64), (4096, 64, 64), (8192, 128, 128)]
BLOCK, STRIDE, CALLS = 64, 37440, 20


def rotate(x, cos, sin):
    even, odd = x[..., 0::2], x[..., 1::2]
    return torch.stack((even * cos - odd * sin, even * sin + odd * cos), -1).flatten(-2)


def prologue(q, kv, positions, slots, table, cache, padded):
    """Norm, RoPE and padding of q; RoPE, quantization and insertion of kv."""
    cos, sin = table[positions].chunk(2, -1)
    x = q.float()
    x = x * torch.rsqrt(x.square().mean(-1, keepdim=True) + 1e-6)
    x = torch.cat((x[..., :448], rotate(x[..., 448:], cos[:, None], sin[:, None])), -1)
    q_out = torch.nn.functional.pad(x.to(q.dtype), (0, 0, 0, padded - q.shape[1]))

    k = kv.float()
    k = torch.cat((k[:, :448], rotate(k[:, 448:], cos, sin)), -1).to(kv.dtype)
    blocks = k[:, :448].float().unflatten(-1, (7, 64))
    exponent = torch.ceil(torch.log2(blocks.abs().amax(-1).clamp(min=1e-4) / 448))
    values = (blocks * torch.exp2(-exponent)[..., None]).clamp(-448, 448).to(torch.float8_e4m3fn)
    data = torch.cat((values.flatten(1).view(torch.uint8), k[:, 448:].contiguous().view(torch.uint8)), -1)
    scales = torch.nn.functional.pad((exponent + 127).to(torch.uint8), (0, 1))
    block, token = slots // BLOCK, slots % BLOCK
    at = (block * STRIDE + token * 576)[:, None] + torch.arange(576, device=q.device)
    cache.view(-1)[at] = data
    at = (block * STRIDE + BLOCK * 576 + token * 8)[:, None] + torch.arange(8, device=q.device)
    cache.view(-1)[at] = scales
    return q_out


def microseconds(call):
    stream = torch.cuda.Stream()
    with torch.cuda.stream(stream):
        for _ in range(3):
            call()
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        for _ in range(CALLS):
            call()
    start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    graph.replay()
    replays = 20
    start.record()
    for _ in range(replays):
        graph.replay()
    end.record()
    torch.cuda.synchronize()
    return start.elapsed_time(end) * 1e3 / replays / CALLS


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--shape", action="append", metavar="T,H,P", help="tokens, live heads, padded heads")
    shapes = parser.parse_args().shape
    shapes = [tuple(map(int, shape.split(","))) for shape in shapes] if shapes else SHAPES
    if not torch.cuda.is_available():
        raise SystemExit("no CUDA device: this peer is timed on a GPU")
    print(f"{torch.cuda.get_device_name()}, PyTorch {torch.__version__}")
    print(f"{'tokens':>7} {'heads':>11} {'eager us':>10} {'compiled us':>12}")
    compiled = torch.compile(prologue, dynamic=False)
    for tokens, heads, padded in shapes:
        torch.manual_seed(0)
        torch._dynamo.reset()
        cuda = {"device": "cuda"}
        q = torch.randn(tokens, heads, 512, dtype=torch.bfloat16, **cuda)
        kv = torch.randn(tokens, 512, dtype=torch.bfloat16, **cuda)
        angles = torch.rand(4096, 32, **cuda) * 6.2831853
        table = torch.cat((angles.cos(), angles.sin()), -1)
        positions = torch.randint(4096, (tokens,), **cuda)
        blocks = -(-tokens // BLOCK) + 1
        slots = torch.randperm(blocks * BLOCK, **cuda)[:tokens]
        caches = [torch.zeros(blocks, STRIDE, dtype=torch.uint8, **cuda) for _ in range(2)]
        rest = (positions, slots, table)
        eager_out = prologue(q, kv, *rest, caches[0], padded)
        compiled_out = compiled(q, kv, *rest, caches[1], padded)
        assert eager_out.shape == (tokens, padded, 512) and not eager_out[:, heads:].any()
        torch.testing.assert_close(compiled_out, eager_out)
        # A value that is rounded the other way is a step of FP8 away.
        differing = (caches[0] != caches[1]).sum().item() / (tokens * 584)
        assert differing < 1e-2, f"{differing:.1%} of the cache's bytes differ"
        eager = microseconds(lambda: prologue(q, kv, *rest, caches[0], padded))
        fused = microseconds(lambda: compiled(q, kv, *rest, caches[1], padded))
        print(f"{tokens:>7} {heads:>4} to {padded:>3} {eager:>10.2f} {fused:>12.2f}", flush=True)


if __name__ == "__main__":
    main()
