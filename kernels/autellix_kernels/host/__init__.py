"""A CPU stand-in for the device.

It runs the same kernels and the same engine without a GPU, in any order that streams and events allow.
"""
