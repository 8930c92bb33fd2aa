"""What a cell leaves behind: its record, where it lies, where it comes from, and the copy for wandb."""
