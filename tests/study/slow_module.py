"""A module that takes 0.8 s to load, for tests of time limits."""

import time

time.sleep(0.8)


def square_of(x: float) -> float:
    return x * x
