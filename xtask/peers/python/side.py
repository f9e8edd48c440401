"""What the sides in Python share. A side is a program that does one case of `cargo xtask compare-peers`, which its first argument
names: for each line that it reads it measures once, and answers with a line of numbers.
"""

import asyncio
import gc
import os
import sys
import time

# How long a measurement takes at least, in seconds; the other sides have the same.
LEAST = 0.3
WIDTH = 1_000
REQUESTS = 10


def serve(cases):
    """Measures the case, with a function that returns a line, or a coroutine of one."""
    measure = cases[sys.argv[1]]
    with asyncio.Runner() as runner:
        for _ in sys.stdin:
            line = measure()
            print(runner.run(line) if asyncio.iscoroutine(line) else line, flush=True)


class Clock:
    """Measures work that is repeated. It is done once before; what takes longer than a measurement only in the first one, which does
    not count.
    """

    takes_long = False

    def __init__(self, parts):
        self.parts, self.done = parts, 0
        self.begun = self.before = None

    def goes_on(self):
        now, processor = time.perf_counter(), time.process_time()
        if self.before is None:
            self.before = now
            if not Clock.takes_long:
                return True
        if self.begun is None:
            Clock.takes_long = Clock.takes_long or now - self.before > LEAST
            self.begun, self.processor = now, processor
            return True
        self.done += self.parts
        self.line = f"{(now - self.begun) / self.done:e} {(processor - self.processor) / self.done:e}"
        return now - self.begun < LEAST


def timed(work, parts):
    """Seconds and processor seconds of each of the parts of this work."""
    clock = Clock(parts)
    while clock.goes_on():
        work()
    return clock.line


async def timed_async(work, parts):
    """The same, of work that is awaited."""
    clock = Clock(parts)
    while clock.goes_on():
        await work()
    return clock.line


def resident():
    """Resident memory in bytes, without what the collector of garbage would free."""
    gc.collect()
    with open("/proc/self/statm") as statm:
        return int(statm.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")
