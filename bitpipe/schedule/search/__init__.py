"""Search: better orders than a method's own, at given costs and within the same memory."""

from bitpipe.schedule.search.exact import Proof, prove
from bitpipe.schedule.search.measured import measured_costs, read_costs
from bitpipe.schedule.search.problem import Problem
from bitpipe.schedule.search.searching import EFFORT, Found, search

__all__ = ["EFFORT", "Found", "Problem", "Proof", "measured_costs", "prove", "read_costs", "search"]
