"""KV swapping: keeps the KV cache of live programs in host memory.

``tier`` decides (no vLLM, no torch); ``connector``, ``manager`` and ``worker`` put the decisions into vLLM and move the
bytes by the swap engine of ``autellix_kernels``. docs/swapping.md tells the whole story.
"""
