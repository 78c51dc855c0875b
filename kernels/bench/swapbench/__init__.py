"""What the swap engine reaches on a GPU, beside the ways it competes with: one run, every byte verified first, one
JSON file, one figure.

Needs torch, numpy, NVRTC and a driver. `--dry-run` goes through all of it on the CPU, where its times mean nothing.
"""
