"""Every reader there is, by name."""

from __future__ import annotations

from tests.fuzz import model_readers, raw_readers, result_readers, store_readers
from tests.fuzz.reader import Maker

READERS: dict[str, Maker] = {
    **raw_readers.READERS,
    **store_readers.READERS,
    **result_readers.READERS,
    **model_readers.READERS,
}
