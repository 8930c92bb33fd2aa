"""Forward, backward, gradients and the optimizer step of one rank."""
