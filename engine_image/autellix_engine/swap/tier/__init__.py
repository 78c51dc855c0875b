"""The decisions of the host tier: which blocks are kept, where they lie, who leaves first, what a move costs.

Pure: time is passed in, nothing here knows vLLM, torch or a device.
"""
