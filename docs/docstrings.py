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


class Docstrings(griffe.Extension):
    """Convert the reStructuredText of docstrings to what Markdown and mkdocstrings understand."""

    def on_object(self, *, obj: griffe.Object, **_: Any) -> None:
        if obj.docstring:
            obj.docstring.value = to_markdown(obj.docstring.value)


def to_markdown(text: str) -> str:
    """Convert a docstring."""
    text = _BLOCK.sub(lambda found: f"{found[1]}<div>{_mathml(found[2], 'block')}</div>", text)
    text = _INLINE.sub(lambda found: _mathml(found[1], "inline"), text)
    return _EXAMPLE.sub(r"\1Examples:", _ROLE.sub(_link, text))


def _mathml(tex: str, display: str) -> str:
    lines = " ".join(tex.split())
    return convert(rf"\begin{{align*}}{lines}\end{{align*}}" if "&" in lines else lines, display=display)


def _link(role: re.Match[str]) -> str:
    short, target = role.groups()
    name = target.rpartition(".")[2] if short else target
    return f'<autoref identifier="{target}" optional><code>{name}</code></autoref>'
