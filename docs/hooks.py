"""Turn the tutorials into pages, and links to files outside docs/ into links to the code host."""

from __future__ import annotations

import posixpath
import re
from pathlib import Path
from typing import Any

from nbconvert import MarkdownExporter
from properdocs.structure.files import File, Files
from pygments.formatters import HtmlFormatter

_LINK = re.compile(r"(?<!!)\[([^\]]*)\]\((\.\./[^)\s]*)\)")
_TUTORIAL = re.compile(r"(\(|/)([1-9]_\w+)\.ipynb\)")


def on_files(files: Files, config: Any) -> Files:
    """Replace each notebook by a page of Markdown and its pictures; add the colours of code."""
    files.append(File.generated(config, "code.css", content=_code_colours()))
    for notebook in [file for file in files if file.src_uri.endswith(".ipynb")]:
        page = Path(notebook.src_uri).with_suffix(".md")
        text, resources = MarkdownExporter().from_filename(notebook.abs_src_path)
        for name, picture in resources["outputs"].items():
            uri = f"{page.with_suffix('').as_posix()}/{name}"
            files.append(File.generated(config, uri, content=picture))
            text = text.replace(f"]({name})", f"]({page.stem}/{name})")
        files.remove(notebook)
        files.append(File.generated(config, page.as_posix(), content=text))
    return files


def _code_colours() -> str:
    light = HtmlFormatter(style="default").get_style_defs("[data-bs-theme=light] .highlight")
    dark = HtmlFormatter(style="github-dark").get_style_defs("[data-bs-theme=dark] .highlight")
    return f"{light}\n{dark}\n"


def on_page_markdown(markdown: str, page: Any, config: Any, files: Any) -> str:
    """Rewrite links that leave docs/; without a ``repo_url`` only their text stays."""
    folder = posixpath.dirname(f"docs/{page.file.src_uri}")

    def link(match: re.Match[str]) -> str:
        text, target = match.groups()
        path = posixpath.normpath(posixpath.join(folder, target))
        if path.startswith("docs/"):
            return match[0]
        return f"[{text}]({config.repo_url}/blob/main/{path})" if config.repo_url else text

    return _LINK.sub(link, _TUTORIAL.sub(r"\1\2.md)", markdown))
