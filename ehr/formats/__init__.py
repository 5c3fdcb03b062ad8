"""Data in and out as data platforms have it: `read` has a reader for each format, `write` a writer."""

from ehr.formats.read import READERS, open_upload
from ehr.formats.read.archives import unpacked
from ehr.formats.read.protocol import Options
from ehr.formats.read.sources import Limits, SourceFile
from ehr.formats.write import WRITERS, writer_named

__all__ = ["READERS", "WRITERS", "Limits", "Options", "SourceFile", "open_upload", "unpacked", "writer_named"]
