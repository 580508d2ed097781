"""What trajpred's own metadata ask for, and what is installed of it. Nothing but the standard library."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from importlib import metadata
from operator import eq, ge, gt, le, lt, ne

#: Bounds that the metadata may use. Two characters come first, so that they are found first.
_COMPARE = {">=": ge, "<=": le, "==": eq, "!=": ne, ">": gt, "<": lt}
_NAME = re.compile(r"[A-Za-z0-9](?:[A-Za-z0-9._-]*[A-Za-z0-9])?")
_EXTRA = re.compile(r"""extra\s*==\s*['"]([^'"]+)""")


@dataclass(frozen=True)
class Requirement:
    """A distribution that is asked for.

    Attributes:
        name: as the package index knows it.
        bounds: of its version, as they stand in the metadata: ``(">=2.13", "<2.14")``.
        extra: the optional group that wants it; empty for what is always needed.
    """

    name: str
    bounds: tuple[str, ...] = ()
    extra: str = ""

    def __str__(self) -> str:
        return self.name + ",".join(self.bounds)

    @classmethod
    def parse(cls, text: str) -> Requirement:
        """From one entry of ``Requires-Dist``, such as ``torch<2.14,>=2.13; extra == "x"``.

        Raises: ValueError if it does not begin with a name.
        """
        wanted, _, marker = text.partition(";")
        name = _NAME.match(wanted.strip())
        if name is None:
            raise ValueError(f"no requirement: {text!r}")
        rest = re.sub(r"\[.*?\]|[\s()]", "", wanted.strip()[name.end() :])
        extra = _EXTRA.search(marker)
        return cls(
            name[0], tuple(sorted(filter(None, rest.split(",")), reverse=True)), extra[1] if extra else ""
        )

    def installed(self) -> str | None:
        """The version that is installed, None if none is."""
        try:
            return metadata.version(self.name)
        except metadata.PackageNotFoundError:
            return None

    def unmet(self, version: str) -> list[str]:
        """Those of ``bounds`` that ``version`` breaks."""
        return [bound for bound in self.bounds if not satisfies(version, bound)]

    def module(self) -> str:
        """The name that it is imported by: that of the distribution, or of the first package in it."""
        own = self.name.replace("-", "_")
        files = [path.parts for path in metadata.files(self.name) or ()]
        packages = {parts[0] for parts in files if parts[1:] == ("__init__.py",) and parts[0][0] != "_"}
        return own if own in packages or not packages else min(packages)


def release(version: str) -> tuple[int, ...]:
    """The numbers of a version: ``2.13.0+cpu`` is ``(2, 13)``. Zeros at the end are nothing."""
    numbers = re.match(r"\d+(?:\.\d+)*", version.strip())
    found = [int(number) for number in numbers[0].split(".")] if numbers else []
    while found and not found[-1]:
        found.pop()
    return tuple(found)


def satisfies(version: str, bound: str) -> bool:
    """Whether ``version`` keeps a bound such as ``>=2.13``. Pre-releases count as their release."""
    sign = next((sign for sign in _COMPARE if bound.startswith(sign)), "")
    return not sign or bool(_COMPARE[sign](release(version), release(bound[len(sign) :])))


def requirements(distribution: str = "trajpred") -> list[Requirement]:
    """All that an installed distribution asks for, in its order; its own extras are not followed.

    Raises: importlib.metadata.PackageNotFoundError if it is not installed.
    """
    found = [Requirement.parse(text) for text in metadata.requires(distribution) or ()]
    return [one for one in found if one.name != distribution]


def extras(found: Sequence[Requirement]) -> dict[str, list[Requirement]]:
    """The requirements of each optional group."""
    return {
        name: [one for one in found if one.extra == name]
        for name in sorted({one.extra for one in found} - {""})
    }
