"""What the pool's tests run on ranks; quick to import there."""

from __future__ import annotations

import os
import signal

import numpy as np

from bitpipe.runtime.processes.world import World


def who(world: World, *_: object) -> int:
    return os.getpid()


def read_array(world: World, path: str) -> int:
    return len(np.load(path))


def read_no_pickle(world: World, path: str) -> object:
    import pickle

    with open(path, "rb") as file:
        return pickle.load(file)


def show_job_3(world: World) -> None:
    world.board[0] = 3


def die_on_1(world: World) -> None:
    if world.rank == 1:
        os.kill(os.getpid(), signal.SIGKILL)
