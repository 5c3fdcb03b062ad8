"""Objects and folders at `s3://` and `https://` addresses."""

import hashlib
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from html.parser import HTMLParser
from urllib.parse import unquote, urljoin

from ehr.errors import OutsideError
from ehr.references import Objects
from model_store.blobs.s3_objects import S3Objects
from runtime.places import Places, object_place
from worker.fetching.basket import Basket
from worker.fetching.web import Web

LARGEST_INDEX = 4 << 20
# what may lie in a folder beside tables, such as the notes and checksums of those who wrote it
TABLES = (".csv", ".tsv", ".txt", ".parquet", ".pq", ".ndjson", ".jsonl", ".json", ".npz", ".zip", ".gz", ".zst")


@dataclass(frozen=True)
class Remote:
    """A file to fetch. `version` changes with its contents, where the server tells."""

    url: str
    label: str
    size: int
    version: str
    blocks: Iterable[bytes]

    @property
    def name(self) -> str:
        return f"f-{hashlib.sha256(f'{self.url} {self.version}'.encode()).hexdigest()[:32]}"


def fetch_objects(basket: Basket, places: Places, owner: str, source: Objects) -> None:
    found: dict[str, Remote] = {}
    for number, url in enumerate(source.urls):
        place = object_place(places, owner, url, f"source.urls.{number}")
        is_s3 = url.startswith("s3://")
        listed = _in_bucket(url) if is_s3 else _on_the_web(Web(place.private, basket.pause), url)
        found |= {remote.url: remote for remote in listed}
    basket.expect(len(found), sum(remote.size for remote in found.values()))
    for remote in found.values():
        basket.put(remote.name, remote.label, remote.blocks)


def _in_bucket(url: str) -> Iterator[Remote]:
    bucket, _, key = url.removeprefix("s3://").partition("/")
    objects = S3Objects(bucket)
    if key != "" and not key.endswith("/"):
        size, version = objects.look(key)
        yield Remote(url, _label(key.rsplit("/", 1)[-1]), size, version, objects.blocks(key))
        return
    for entry in objects.list(key):
        within = entry.key.removeprefix(key)
        if entry.size and _is_table(within):
            address = f"s3://{bucket}/{entry.key}"
            yield Remote(address, _label(within), entry.size, entry.version, objects.blocks(entry.key))


def _on_the_web(web: Web, url: str) -> Iterator[Remote]:
    for address in _links(web, url) if url.endswith("/") else [url]:
        size, version = web.look(address)
        within = address.removeprefix(url) or address.rsplit("/", 1)[-1]
        yield Remote(address, _label(unquote(within)), size, version, web.blocks(address))


def _links(web: Web, folder: str) -> list[str]:
    """The tables that the index page of a folder links to and that lie in it."""
    page = b""
    for block in web.blocks(folder):
        page += block
        if len(page) > LARGEST_INDEX:
            raise OutsideError("the index page of the folder is too long")
    parser = _Links()
    parser.feed(page.decode("utf-8", "replace"))
    addresses = dict.fromkeys(urljoin(folder, link) for link in parser.found)
    return [each for each in addresses if _lies_in(folder, each) and _is_table(unquote(each.removeprefix(folder)))]


def _lies_in(folder: str, address: str) -> bool:
    rest = unquote(address.removeprefix(folder))
    return address.startswith(folder) and not any(character in rest for character in "/\\?#")


class _Links(HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.found: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.found += [value for name, value in attrs if tag == "a" and name == "href" and value]


def _is_table(path: str) -> bool:
    hidden = any(part.startswith(("_", ".")) for part in path.split("/"))
    return not hidden and path.lower().endswith(TABLES)


def _label(path: str) -> str:
    """As an upload would call it; the folder a part lies in often is the name of its table."""
    return "".join(character for character in path.replace("/", "-") if character.isprintable())
