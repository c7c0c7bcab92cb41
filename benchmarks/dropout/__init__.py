"""Backends that draw dropout's random numbers otherwise: what parity says of them."""
