"""Runs training experiments: specifications, run folders, supervisor and command line.

Code outside `runner.worker` uses only the standard library, so that the dashboard, the supervisor
and the command line start in milliseconds and never import torch.
"""
