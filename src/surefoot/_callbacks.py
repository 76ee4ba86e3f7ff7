"""Progress through scikit-learn's own callbacks (`set_callbacks(ProgressBar())`), where scikit-learn offers them."""

from __future__ import annotations

from typing import Any

try:
    from sklearn.callback import CallbackSupportMixin, with_callbacks
except ImportError:  # scikit-learn < 1.9 has no callbacks: estimators then have no set_callbacks
    CallbackSupportMixin = object  # type: ignore[assignment, misc]

    def with_callbacks(method: Any) -> Any:
        return method


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
        if self._context is not None:
            task = self._context.subcontext(task_name="round")
            task.call_on_fit_task_begin(estimator=self._estimator)
            task.call_on_fit_task_end(estimator=self._estimator)

    def done(self) -> None:
        if self._context is not None:
            self._context.call_on_fit_task_end(estimator=self._estimator)
