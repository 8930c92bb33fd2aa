"""Pipeline schedules: actions, placements, methods, bounds, checks, lowering to programs."""

from bitpipe.schedule.action import DOWN, UP, Action, Kind, parse_action, pipe_mark, pipe_word
from bitpipe.schedule.bounds import early_forward_cap, lower_bound, schedule_bound
from bitpipe.schedule.checks import check, check_schedule
from bitpipe.schedule.costs import UNIT, Costs
from bitpipe.schedule.describe import Description, count_transfers, describe
from bitpipe.schedule.errors import ProgramError
from bitpipe.schedule.evaluation import evaluate, held_chunks, peak_activations
from bitpipe.schedule.exchange import from_torch_csv, to_torch_csv
from bitpipe.schedule.generate import generate, method_of, placement_of
from bitpipe.schedule.lowering import lower
from bitpipe.schedule.methods import METHODS, Method
from bitpipe.schedule.own import schedule_from_rows
from bitpipe.schedule.placement import PLACEMENTS, Placement, cyclic, ring, sequential, vee
from bitpipe.schedule.program import Instruction, Program
from bitpipe.schedule.schedule import Schedule, even_pipes
from bitpipe.schedule.spec import ScheduleSpec
from bitpipe.schedule.timeline import Event, Timeline, by_device

__all__ = [
    "DOWN",
    "METHODS",
    "PLACEMENTS",
    "UNIT",
    "UP",
    "Action",
    "Costs",
    "Description",
    "Event",
    "Instruction",
    "Kind",
    "Method",
    "Placement",
    "Program",
    "ProgramError",
    "Schedule",
    "ScheduleSpec",
    "Timeline",
    "by_device",
    "check",
    "check_schedule",
    "count_transfers",
    "cyclic",
    "describe",
    "early_forward_cap",
    "evaluate",
    "even_pipes",
    "from_torch_csv",
    "generate",
    "held_chunks",
    "lower",
    "lower_bound",
    "method_of",
    "parse_action",
    "peak_activations",
    "pipe_mark",
    "pipe_word",
    "placement_of",
    "ring",
    "schedule_bound",
    "schedule_from_rows",
    "sequential",
    "to_torch_csv",
    "vee",
]
