"""The library's log: a line for each call, with the implementation that runs and why."""

from typing import Any, Callable, List, Optional

from . import _raw
from ._library import check, lib
from ._names import value_of

_LEVELS = {number: name for name, number in _raw.FAMILIES["mxq_log_level"].items()}
_callbacks: List[Any] = []  # all of them: a call that began before may still use one that was replaced


def set_log_callback(callback: Optional[Callable[[str, str], Any]], level: str = "info") -> None:
    """Gives the lines of the library's log to callback(level, line) instead of writing them to stderr as MXQ_LOG says.

        mxq.set_log_callback(lambda level, line: logging.getLogger("mxq").info(line))

    level: "info" for a line for each call, "trace" also for each implementation that declined. It holds for the whole process.
    None: lines go to stderr again, as MXQ_LOG says.
    """
    if callback is None:
        check(lib.mxq_set_log_callback(_raw.mxq_log_callback(), _raw.MXQ_LOG_OFF, None))
        return
    number, function = value_of("mxq_log_level", level, "level"), callback

    def call(user: Optional[int], found: int, line: bytes) -> None:
        function(_LEVELS[found], line.decode(errors="replace"))

    _callbacks.append(_raw.mxq_log_callback(call))
    check(lib.mxq_set_log_callback(_callbacks[-1], number, None))
