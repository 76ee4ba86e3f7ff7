"""Errors and warnings are told apart by parameters, codes and values, not by their words."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from surefoot._errors import CodedWarning, ParameterError

# A parameter; a parameter and values that stand in the message; or what another package says, which has no parameters.
Refused = str | tuple[Any, ...] | re.Pattern[str]


def refuses(refused: Refused, *values: Any) -> pytest.RaisesExc[ValueError]:
    """Expect a ParameterError of this parameter that names these values, be it as limits or as what was given."""
    if isinstance(refused, re.Pattern):
        return pytest.raises(ValueError, match=refused)
    parameter, *named = (refused, *values) if isinstance(refused, str) else (*refused, *values)

    def fits(error: ParameterError) -> bool:
        assert error.parameter == parameter, f"{error.parameter} is refused, not {parameter}: {error}"
        for value in named:
            assert re.search(rf"(?<![\w.-]){re.escape(str(value))}(?!\w|\.\d)", str(error)), f"no {value} in: {error}"
        return True

    return pytest.raises(ParameterError, check=fits)


@contextmanager
def warns(code: str, category: type[Warning] = CodedWarning, **values: Any) -> Iterator[pytest.WarningsRecorder]:
    """Expect a warning with this code and these numbers."""
    with pytest.warns(category) as record:
        yield record
    coded = [one.message for one in record if isinstance(one.message, CodedWarning) and one.message.code == code]
    assert coded, f"no warning {code} in {[str(one.message) for one in record]}"
    assert any(values == {name: one.values[name] for name in values} for one in coded), [one.values for one in coded]
