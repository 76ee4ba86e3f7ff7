"""Progress through scikit-learn's own callbacks (`set_callbacks(ProgressBar())`), where scikit-learn offers them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any, TypeVar

try:
    from sklearn.callback import CallbackSupportMixin
    from sklearn.callback import with_callbacks as _with_callbacks
except ImportError:  # scikit-learn < 1.9 has no callbacks: estimators then have no set_callbacks

    class CallbackSupportMixin:  # type: ignore[no-redef]
        """Stands where scikit-learn's own does; `object` itself cannot stand before another base."""

    _with_callbacks = None

__all__ = ["CallbackSupportMixin", "FitProgress", "watch_rounds", "with_callbacks"]

Method = TypeVar("Method", bound=Callable[..., Any])


def with_callbacks(method: Method) -> Method:
    """scikit-learn's decorator of `fit`, with its type kept; the method itself where there is none."""
    return method if _with_callbacks is None else _with_callbacks(method)


_WATCHER: ContextVar[Callable[[], None] | None] = ContextVar("watcher", default=None)


@contextmanager
def watch_rounds(watcher: Callable[[], None]) -> Iterator[None]:
    """Call a function after each round of a solver, in this context; what it raises ends the fit."""
    token = _WATCHER.set(watcher)
    try:
        yield
    finally:
        _WATCHER.reset(token)


class FitProgress:
    """One task per fit, one subtask per round of the solver; does nothing without callbacks."""

    def __init__(self, estimator: Any) -> None:
        self._estimator = estimator
        self._context = None
        if hasattr(estimator, "_init_callback_context"):
            self._context = estimator._init_callback_context(max_subtasks=None)
            self._context.call_on_fit_task_begin(estimator=estimator)

    def round(self, _state: object) -> None:
        """A round of the solver has ended."""
        watcher = _WATCHER.get()
        if watcher is not None:
            watcher()
        if self._context is not None:
            task = self._context.subcontext(task_name="round")
            task.call_on_fit_task_begin(estimator=self._estimator)
            task.call_on_fit_task_end(estimator=self._estimator)

    def done(self) -> None:
        if self._context is not None:
            self._context.call_on_fit_task_end(estimator=self._estimator)
