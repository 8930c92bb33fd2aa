"""Pipeline schedules: actions, placements, methods, bounds, checks, lowering to programs."""
