"""In torch.cuda's place in a dry run: what peer.py calls of it, so that a CPU goes through the same lines as a device."""

import time


class Event:
    def __init__(self, enable_timing):
        self.at, self.timing = None, enable_timing

    def record(self):
        self.at = time.perf_counter()

    def elapsed_time(self, end):
        return (end.at - self.at) * 1e3


def synchronize():
    pass


def empty_cache():
    pass


def reset_peak_memory_stats():
    pass


def max_memory_allocated():
    return 0


def max_memory_reserved():
    return 0


def get_device_name():
    return "a CPU"
