"""Swapping of KV-cache blocks between GPU and host memory: kernels, staging pipeline, pinned pool.

Start with `engine.SwapEngine`; `start` puts one together for a CUDA device, `host` holds the CPU stand-in.
`docs/swapping.md` tells the whole story.
"""
