"""Answers undecodable messages with INVALID_ARGUMENT, like other invalid arguments."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

import grpc
from google.protobuf.message import DecodeError

from shiftboss.extensions.grpc.refusals import MALFORMED


class LenientParsing(grpc.aio.ServerInterceptor):  # type: ignore[type-arg]
    """Passes undecodable bytes to the call as MALFORMED, which refuses them."""

    async def intercept_service(
        self,
        continuation: Callable[[grpc.HandlerCallDetails], Awaitable[grpc.RpcMethodHandler[Any, Any]]],
        details: grpc.HandlerCallDetails,
    ) -> Any:
        handler: Any = await continuation(details)
        if handler is None or not details.method.startswith("/shiftboss."):
            return handler
        parse = _lenient(handler.request_deserializer)
        if handler.request_streaming:
            return grpc.stream_stream_rpc_method_handler(
                handler.stream_stream, parse, handler.response_serializer
            )
        return grpc.unary_unary_rpc_method_handler(handler.unary_unary, parse, handler.response_serializer)


def _lenient(parse: Callable[[bytes], Any]) -> Callable[[bytes], Any]:
    def read(raw: bytes) -> Any:
        try:
            return parse(raw)
        except DecodeError:
            return MALFORMED

    return read
