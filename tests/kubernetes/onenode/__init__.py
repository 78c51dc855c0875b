"""A throw-away one-node Kubernetes: real programs, built from source, run in namespaces of their own.

Standard library only: it has to work with the machine's plain Python, before anything is installed.
"""
