"""How messages and sums travel between ranks: gloo, NCCL, staged through the host."""
