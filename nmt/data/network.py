"""Ask the network without waiting for it any longer than a person would."""

import threading
from collections.abc import Callable
from queue import Empty, SimpleQueue
from typing import TypeVar

Answer = TypeVar("Answer")


def answer_within(seconds: float, ask: Callable[[], Answer]) -> Answer | None:
    """The result of `ask`, or None if it takes longer. `ask` must not raise.

    It runs on a daemon thread, because looking up a host's name has no time limit of its own.
    """
    answers: SimpleQueue[Answer] = SimpleQueue()
    threading.Thread(target=lambda: answers.put(ask()), daemon=True).start()
    try:
        return answers.get(timeout=seconds)
    except Empty:
        return None
