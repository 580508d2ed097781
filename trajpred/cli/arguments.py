"""What several tools make of their arguments."""

from __future__ import annotations


def as_list(value: list[str] | str | None) -> list[str]:
    """One text as a list of one, none as an empty one."""
    return [value] if isinstance(value, str) else value or []
