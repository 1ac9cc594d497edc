"""Bytes as text of 15 bits a character, for where a limit counts characters and not bytes.

The alphabet is U+0100 to U+80FF: one UTF-16 unit each, no surrogates, nothing that a broker or a
client changes on the way. A bit is set after the last byte, and the zeros after it are not
written, so that each text stands for one row of bytes and each row of bytes for one text.
"""

from __future__ import annotations

from consumer_sdk.errors import CheckpointFormatError

__all__ = ["ALPHABET", "pack", "room", "unpack"]

BITS = 15
ZERO = 0x100
ALPHABET = range(ZERO, ZERO + (1 << BITS))
"""The code points that are used, in the order of what they stand for."""
BLOCK = 15
"""Bytes that fill whole characters: eight of them."""
SHIFTS = range(BLOCK * 8 - BITS, -1, -BITS)
MASK = (1 << BITS) - 1
END = b"\x80"


def room(characters: int) -> int:
    """Bytes that so many characters hold; negative if not even the end fits."""
    return (characters * BITS - 1) // 8


def pack(data: bytes) -> str:
    """The text for ``data``: eight characters for 15 bytes."""
    whole = data + END
    whole += bytes(-len(whole) % BLOCK)
    characters = []
    for at in range(0, len(whole), BLOCK):
        block = int.from_bytes(whole[at : at + BLOCK])
        characters += [chr(ZERO + (block >> shift & MASK)) for shift in SHIFTS]
    return "".join(characters).rstrip(chr(ZERO))


def unpack(text: str) -> bytes:
    """Reads `pack` back, in time and memory that are linear in the text's length.

    Raises:
        CheckpointFormatError: ``text`` is nothing that `pack` writes.
    """
    digits = [ord(character) - ZERO for character in text]
    if not digits or not digits[-1] or min(digits) < 0 or max(digits) > MASK:
        raise CheckpointFormatError(f"not packed, or cut off: {text[-20:]!r} at the end")
    digits += [0] * (-len(digits) % len(SHIFTS))
    blocks = (digits[at : at + len(SHIFTS)] for at in range(0, len(digits), len(SHIFTS)))
    data, end, padding = b"".join(map(_block, blocks)).rpartition(END)
    if not end or padding.strip(b"\0"):
        raise CheckpointFormatError(f"packed text that is cut off: {text[-20:]!r} at the end")
    return data


def _block(digits: list[int]) -> bytes:
    block = 0
    for digit in digits:
        block = block << BITS | digit
    return block.to_bytes(BLOCK)
