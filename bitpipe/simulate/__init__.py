"""Simulation: an event engine over the runtime's own programs, and a cluster cost model."""
