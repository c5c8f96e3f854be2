"""Sends a batch of vectors as one parameter in pgvector's binary format, without a loop in Python."""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING, Any, NamedTuple

from psycopg.adapt import Buffer, Dumper
from psycopg.pq import Format

if TYPE_CHECKING:
    import numpy.typing as npt

    from shiftboss.db.connection import Connection

OIDS = """
SELECT t.oid::int8 AS element, t.typarray::int8 AS list
FROM pg_extension e JOIN pg_type t ON t.typnamespace = e.extnamespace AND t.typname = 'vector'
WHERE e.extname = 'vector'
"""


class VectorOids(NamedTuple):
    """The oids of `vector` and `vector[]`, which differ between databases."""

    element: int
    list: int


class VectorList:
    """Rows of a matrix as a parameter of type vector[]."""

    def __init__(self, matrix: npt.NDArray[Any]) -> None:
        self.matrix = matrix

    def encode(self, oid: int) -> bytes:
        import numpy as np

        count, width = self.matrix.shape
        if not count:
            return struct.pack(">iiI", 0, 0, oid)
        rows = np.empty(
            count, dtype=[("size", ">i4"), ("width", ">u2"), ("unused", ">u2"), ("v", ">f4", (width,))]
        )
        rows["size"], rows["width"], rows["unused"] = 4 + 4 * width, width, 0
        rows["v"] = self.matrix
        return struct.pack(">iiIii", 1, 0, oid, count, 1) + rows.tobytes()


def register_vectors(conn: Connection, oids: VectorOids) -> None:
    """Make the connection accept `VectorList` parameters."""

    class VectorListDumper(Dumper):
        format = Format.BINARY
        oid = oids.list

        def dump(self, obj: VectorList) -> Buffer:
            return obj.encode(oids.element)

    conn.adapters.register_dumper(VectorList, VectorListDumper)
