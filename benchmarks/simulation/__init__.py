"""The real supervisor in a simulated system: 100,000 histories, each drawn from a seed."""
