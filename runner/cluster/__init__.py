"""Runs experiments on other machines with the same scheduler, and copies their files back."""
