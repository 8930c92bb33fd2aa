"""What one GPU can show about the runtime and the simulator, in minutes: ``make gpu-check``."""
