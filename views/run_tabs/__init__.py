"""Tabs of Run."""
