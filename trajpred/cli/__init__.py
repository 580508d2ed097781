"""The command line: one function per command; its signature and docstring are the options and their help."""

from typing import Annotated

from cyclopts import Parameter, validators

#: A number of an option that must be 1 or more.
Positive = Annotated[int, Parameter(validator=validators.Number(gte=1))]
#: A number of an option that must be 0 or more.
Count = Annotated[int, Parameter(validator=validators.Number(gte=0))]
