"""Requests to addresses that somebody else has chosen: to public ones only, unless the operator allows others.

The name is looked up once, what it stands for is checked, and the connection is made to that address: a name that
stands for another one a moment later leads nowhere. Redirects are not followed.
"""

import http.client
import ipaddress
import socket
import ssl
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from urllib.parse import SplitResult, urlsplit

from ehr.errors import RequestError

LONGEST_URL = 2000
TIMEOUT_SECONDS = 15.0
NAT64 = ipaddress.ip_network("64:ff9b::/96")


class UnsentError(Exception):
    """Nobody answered, or nobody may be asked."""


def checked_url(url: str, private: bool) -> str:
    """`url` if it may be asked as far as its text tells; RequestError otherwise."""
    try:
        parts = urlsplit(url)
        host, port = parts.hostname, parts.port
    except ValueError:
        raise RequestError("url: this is not an address") from None
    if len(url) > LONGEST_URL or not url.isascii() or not url.isprintable() or " " in url or not host or port == 0:
        raise RequestError("url: this is not an address")
    if parts.scheme not in (("https", "http") if private else ("https",)):
        raise RequestError("url: must begin with https://")
    if parts.username is not None or parts.password is not None or parts.fragment:
        raise RequestError("url: must have no user name, password or fragment")
    return url


def post(url: str, body: bytes, headers: Mapping[str, str], private: bool) -> int:
    """The status of the answer; UnsentError if there is none."""
    with answered("POST", url, headers, private, body) as answer:
        return answer.status


@contextmanager
def answered(
    method: str,
    url: str,
    headers: Mapping[str, str],
    private: bool,
    body: bytes | None = None,
    timeout: float = TIMEOUT_SECONDS,
) -> Iterator[http.client.HTTPResponse]:
    """The answer, whose body can be read within the block; UnsentError if there is none or it breaks off."""
    parts = urlsplit(checked_url(url, private))
    try:
        connection = _connection(parts, private, timeout)
        try:
            path = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
            connection.request(method, path, body, dict(headers))
            yield connection.getresponse()
        finally:
            connection.close()
    except (OSError, http.client.HTTPException) as error:
        raise UnsentError(f"no answer: {type(error).__name__}") from None


def _connection(parts: SplitResult, private: bool, timeout: float) -> http.client.HTTPConnection:
    """Connected to an address that was checked; its name is for the certificate and the Host header."""
    host = str(parts.hostname)
    port = parts.port or (443 if parts.scheme == "https" else 80)
    address = _allowed_address(host, port, private)
    connection = http.client.HTTPConnection(host, port, timeout=timeout)
    connected = socket.create_connection((address, port), timeout)
    try:
        secure = ssl.create_default_context() if parts.scheme == "https" else None
        connection.sock = connected if secure is None else secure.wrap_socket(connected, server_hostname=host)
    except BaseException:
        connected.close()
        raise
    return connection


def _allowed_address(host: str, port: int, private: bool) -> str:
    """The first address of a name that may be asked."""
    found = [str(each[4][0]) for each in socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)]
    for address in found:
        if private or is_public(address):
            return address
    raise UnsentError("the address is not public")


def is_public(address: str) -> bool:
    """Whether an address leads out of this network; one that carries another within is as public as that."""
    ip = ipaddress.ip_address(address.partition("%")[0])
    if isinstance(ip, ipaddress.IPv6Address):
        within = ip.ipv4_mapped or ip.sixtofour or (ip.teredo[1] if ip.teredo else None)
        if ip in NAT64:
            within = ipaddress.IPv4Address(int(ip) & 0xFFFFFFFF)
        if within is not None:
            return is_public(str(within))
    return ip.is_global and not ip.is_multicast
