"""Show docstrings on the site: equations as MathML, roles as links, examples as code."""

from __future__ import annotations

import re
from typing import Any

import griffe
from latex2mathml.converter import convert

_BLOCK = re.compile(r"^( *)\.\. math::[ \n]*((?:.|\n)*?)(?=\n *\n|\Z)", re.MULTILINE)
_INLINE = re.compile(r":math:`([^`]+)`")
_ROLE = re.compile(r":(?:class|func|meth|mod|data|attr):`(~?)([\w.]+)`")
_EXAMPLE = re.compile(r"^( *)Example:", re.MULTILINE)
#: Parameters that share a description, and errors described in the line of their heading.
_JOINED = re.compile(r"^( +)(\w+(?:,\s+\w+)+): (.+(?:\n\1 +\S.*)*)", re.MULTILINE)
_RAISES = re.compile(r"^( *)Raises: (\w+)((?:.|\n)*?)(?=\n *\n|\Z)", re.MULTILINE)


class Docstrings(griffe.Extension):
    """Convert the reStructuredText of docstrings to what Markdown and mkdocstrings understand."""

    def on_object(self, *, obj: griffe.Object, **_: Any) -> None:
        if obj.docstring:
            obj.docstring.value = to_markdown(obj.docstring.value)


def to_markdown(text: str) -> str:
    """Convert a docstring."""
    text = _BLOCK.sub(lambda found: f"{found[1]}<div>{_mathml(found[2], 'block')}</div>", text)
    text = _INLINE.sub(lambda found: _mathml(found[1], "inline"), text)
    text = _RAISES.sub(_error, _JOINED.sub(_apart, text))
    return _EXAMPLE.sub(r"\1Examples:", _ROLE.sub(_link, text))


def _apart(joined: re.Match[str]) -> str:
    """Describe each of several parameters."""
    indent, names, text = joined.groups()
    return "\n".join(f"{indent}{name}: {text}" for name in re.split(r",\s+", names))


def _error(raises: re.Match[str]) -> str:
    """Put a description into the section of the errors."""
    indent, name, text = raises.groups()
    return f"{indent}Raises:\n{indent}    {name}: {' '.join(text.split())}"


def _mathml(tex: str, display: str) -> str:
    lines = " ".join(tex.split())
    return convert(rf"\begin{{align*}}{lines}\end{{align*}}" if "&" in lines else lines, display=display)


def _link(role: re.Match[str]) -> str:
    short, target = role.groups()
    name = target.rpartition(".")[2] if short else target
    return f'<autoref identifier="{target}" optional><code>{name}</code></autoref>'
