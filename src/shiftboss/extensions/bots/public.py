"""Restricts HTTP to public addresses: each name is resolved once, and the checked address is used."""

from __future__ import annotations

import asyncio
import ipaddress
import socket

import httpx

Address = ipaddress.IPv4Address | ipaddress.IPv6Address

#: Ask for answers that are not compressed: a few kilobytes can unpack to gigabytes before a limit applies.
PLAIN = {"Accept-Encoding": "identity"}
# IPv6 addresses that contain an IPv4 address in their last bits.
_NAT64 = ipaddress.ip_network("64:ff9b::/96")
# All IPv6 addresses that are assigned to hosts on the Internet.
_UNICAST = ipaddress.ip_network("2000::/3")


class NotPublic(httpx.TransportError):
    """The host is unknown or has a private address. The error does not reveal which."""


class PublicTransport(httpx.AsyncBaseTransport):
    """Sends each request to the address that was checked, so that DNS cannot change it afterwards."""

    def __init__(self, inner: httpx.AsyncBaseTransport | None = None) -> None:
        self._inner = inner or httpx.AsyncHTTPTransport()

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        name = request.url.host
        address = await public_address(name)
        pinned = httpx.Request(
            request.method,
            request.url.copy_with(host=str(address)),
            headers=request.headers,  # the Host header has the name
            stream=request.stream,
            extensions={**request.extensions, "sni_hostname": name},
        )
        return await self._inner.handle_async_request(pinned)

    async def aclose(self) -> None:
        await self._inner.aclose()


async def public_address(name: str) -> Address:
    """Return an address of the host. Raises `NotPublic` unless all its addresses are public."""
    try:
        found = await asyncio.get_running_loop().getaddrinfo(
            name or "localhost", None, type=socket.SOCK_STREAM
        )
        addresses = [ipaddress.ip_address(str(entry[4][0]).split("%")[0]) for entry in found]
    except (OSError, ValueError):
        addresses = []
    if not addresses or not all(map(is_public, addresses)):
        raise NotPublic(f"{name} is not a public address")
    return addresses[0]


def is_public(address: Address) -> bool:
    """Whether an address, or the IPv4 address embedded in it, is public."""
    if isinstance(address, ipaddress.IPv6Address):
        if address in _NAT64:
            return is_public(ipaddress.IPv4Address(int(address) & 0xFFFFFFFF))
        inner = address.ipv4_mapped or address.sixtofour or (address.teredo and address.teredo[1])
        if inner:
            return is_public(inner)
        if address not in _UNICAST:
            return False
    return address.is_global and not address.is_multicast
