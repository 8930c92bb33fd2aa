"""How a rank tells the time."""
