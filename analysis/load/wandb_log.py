"""The framing of wandb's offline files: a LevelDB log of protobuf records.

A 7-byte file header, then 32 KiB blocks. A record has a 7-byte header (masked checksum, length,
type) and never crosses a block; longer ones are split into first, middle and last fragments.
A reader that goes on at the next block survives cuts, flipped bits and zeroed pages.
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Iterator

MAGIC = b":W&B\xe1\xbe\x00"
BLOCK = 32 * 1024
HEADER = struct.Struct("<IHB")
FULL, FIRST, MIDDLE, LAST = range(1, 5)
_SEEDS = [zlib.crc32(bytes([kind])) for kind in range(5)]


def frames(data: bytes, problems: list[str]) -> Iterator[bytes]:
    """Every intact payload; what is lost goes to ``problems``, one line each."""
    if data[: len(MAGIC)] != MAGIC:
        problems.append("not a wandb file, skipped" if data else "empty file, skipped")
        return
    view = memoryview(data)
    at = len(MAGIC)
    fragments: bytearray | None = None
    while at < len(data):
        left = BLOCK - at % BLOCK
        if left < HEADER.size:  # padding at the end of a block
            at += left
            continue
        if at + HEADER.size > len(data):
            problems.append(f"cut inside a record header at byte {at}")
            return
        checksum, length, kind = HEADER.unpack_from(data, at)
        end = at + HEADER.size + length
        body = view[at + HEADER.size : end]
        sound = FULL <= kind <= LAST and length <= left - HEADER.size
        if sound and end > len(data):
            problems.append(f"cut inside a record at byte {at}")
            return
        if not sound or zlib.crc32(body, _SEEDS[kind]) != checksum:
            problems.append(f"damaged record at byte {at}; lost up to byte {min(at + left, len(data))}")
            at, fragments = at + left, None
            continue
        at = end
        if kind == FULL:
            yield bytes(body)
        elif kind == FIRST:
            fragments = bytearray(body)
        elif fragments is None:
            problems.append(f"fragment without a beginning before byte {at}")
        else:
            fragments += body
            if kind == LAST:
                yield bytes(fragments)
                fragments = None
    if fragments is not None:
        problems.append("ends inside a fragmented record")
