"""PyTorch's own Dynamo harness and Breakeven beside each other on one GPU, model by model."""
