"""Runs training experiments: what to run, where it is kept, who runs it, how it is watched.

Everything outside `runner.worker` uses the standard library alone, so that the dashboard, the
supervisor and the command line start in milliseconds and never import torch.
"""
