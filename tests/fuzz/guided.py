"""The same readers, with inputs chosen by which lines of trajpred they reach (atheris).

    pip install atheris
    python -m tests.fuzz.guided "argoverse2 map" -runs=20000

atheris has no release for every Python; nothing else here needs it. What follows the reader's name is
libFuzzer's. It stops at the first finding and writes the input beside it.
"""

from __future__ import annotations

import sys
import tempfile
import warnings
from contextlib import suppress
from pathlib import Path
from random import Random

import atheris

with atheris.instrument_imports(include=["trajpred"]):
    from tests.fuzz.readers import READERS
    from trajpred.errors import DataError


def main() -> None:
    name = next(one for one in READERS if sys.argv[1] in one)
    warnings.simplefilter("ignore")
    folder = Path(tempfile.mkdtemp())
    reader = READERS[name](folder)
    corpus = folder / "corpus"
    corpus.mkdir()
    for i, content in enumerate(reader.seeds):
        (corpus / str(i)).write_bytes(content)

    def read(content: bytes) -> None:
        with suppress(DataError):
            reader.read(content)

    def mutate(content: bytes, most: int, seed: int) -> bytes:
        random = Random(seed)
        spoilt = reader.mutate(random, content) if random.random() < 0.7 else atheris.Mutate(content, most)
        return bytes(spoilt[:most])

    largest = 4 * max(map(len, reader.seeds))
    limits = [f"-max_len={largest}", "-timeout=30", "-rss_limit_mb=4096", f"-artifact_prefix={folder}/"]
    atheris.Setup([sys.argv[0], *limits, *sys.argv[2:], str(corpus)], read, custom_mutator=mutate)
    atheris.Fuzz()


if __name__ == "__main__":
    main()
