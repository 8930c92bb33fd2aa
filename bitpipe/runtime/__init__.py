"""Real ranks: the program interpreter, transport, gradient sync, clocks, launcher."""
