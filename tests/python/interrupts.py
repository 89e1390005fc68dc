"""Ctrl-C in tests."""

import os
import signal
import time

AGAIN = 5  # seconds


def interrupt_until(done):
    """Sends SIGINT to this process until `done()` is true. KeyboardInterrupt is lost when it is raised
    while a weak reference's callback runs, which Python does when threads end: then another follows."""
    sent = None
    while not done():
        now = time.monotonic()
        if sent is None or now - sent > AGAIN:
            sent = now
            os.kill(os.getpid(), signal.SIGINT)
        time.sleep(0.001)
