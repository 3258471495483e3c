#!/usr/bin/env python3
"""Write the seeds of fuzz_session: small session files with forks, windows, holes and int8 rows, and operations on them.

The hashes of sections are left 0: the fuzz target computes them.

Usage: make_session_seeds.py [SEEDS_FOLDER]
"""

import struct
import sys
from pathlib import Path

F32, F16, INT8 = 0, 1, 2
BYTES = {F32: 4, F16: 2, INT8: 1}
BLOCK, VOCAB, FINGERPRINT, ROW_DIM = 32, 5, 7, 2
# Of each cache of fuzz_session.cpp: window, kv heads, dimensions and types of keys and values, layers.
CACHES = [
    [(0, 1, 2, 2, F16, F16, [0]), (5, 1, 4, 3, INT8, INT8, [1])],
    [(40, 2, 2, 1, F32, INT8, [0])],
    [(0, 1, 2, 2, F16, F16, [0]), (0, 1, 2, 2, INT8, INT8, [1])],
]
OF_SOURCES = 2, 1  # the cache whose group of this number holds sources
SLACK = 256
HASH = bytes(8)


def header(groups: list, sequences: int, sources: tuple = (), row_blocks: int = 0) -> bytes:
    out = b"kvantses" + struct.pack("<IIQ", 3 if row_blocks else 1 + (sources != ()), len(groups), FINGERPRINT)
    for window, heads, k_dim, v_dim, k_type, v_type, layers in groups:
        out += struct.pack("<q8i", window, heads, k_dim, v_dim, k_type, v_type, 0, 0, len(layers))
        out += struct.pack(f"<{len(layers)}i", *layers)
    out += struct.pack("<I", sequences) + (struct.pack("<IB", *sources) if sources else b"")
    return out + (struct.pack("<I", row_blocks) if row_blocks else b"") + HASH


def rows(count: int, kind: int, dim: int) -> bytes:
    numbers = bytes(3 * i % 100 for i in range(count * dim * BYTES[kind]))
    return numbers + (struct.pack("<f", 0.5) * count if kind == INT8 else b"")


class File:
    def __init__(self, cache: int, sources: tuple = (), rows: bool = True, row_blocks: tuple = ()):
        """`sources`: how many tokens each has, in the cache with sources. `row_blocks`: how many rows each has."""
        self.row_blocks, self.ids = row_blocks, VOCAB + sum(row_blocks)
        self.sources, self.rows, self.has_sources = sources, rows, cache == OF_SOURCES[0]
        self.cache, self.groups, self.sequences = cache, CACHES[cache], []
        self.blocks = [{} for _ in self.groups]  # by group: what names a block -> its index and rows

    def add(self, length: int, shared: tuple = (0, ""), name: str = "", pruned: tuple = (), logits: bool = False, source: int = 0):
        """A sequence whose first shared[0] blocks are those that the sequence shared[1] has."""
        plain = not pruned
        out = struct.pack("<qB", length, (1 if logits else 0) | (2 if plain else 0))
        out += (struct.pack("<I", source) if self.has_sources else b"") + struct.pack("<I", len(pruned))
        for begin, end in pruned:
            out += struct.pack("<qq", begin, end)
        out += struct.pack(f"<{length}i", *(i % self.ids for i in range(length)))
        out += struct.pack(f"<{VOCAB}f", *range(VOCAB)) if logits else b""
        for number_of_group, (window, *_) in enumerate(self.groups):
            if (self.cache, number_of_group) == OF_SOURCES:
                continue
            first = 0 if window == 0 else max(0, length - window + 1 - SLACK) // BLOCK
            gone = {n for b, e in pruned for n in range(-(-b // BLOCK), e // BLOCK)}
            entries = [n for n in range(first, -(-length // BLOCK)) if n not in gone]
            out += struct.pack("<qI", first * BLOCK, len(entries))
            for n in entries:
                key = (shared[1] if n < shared[0] else name, n)
                index, most = self.blocks[number_of_group].get(key, (len(self.blocks[number_of_group]), 0))
                self.blocks[number_of_group][key] = (index, max(most, min(BLOCK, length - n * BLOCK)))
                out += struct.pack("<qI", n, index)
        self.sequences.append(out + HASH)
        return self

    def bytes(self) -> bytes:
        out = header(self.groups, len(self.sequences), (len(self.sources), self.rows) if self.has_sources else (), len(self.row_blocks))
        for length in self.sources:
            out += struct.pack("<BqQ", 1, length, 4 * length)
            out += struct.pack(f"<{length}i", *(i % VOCAB for i in range(length))) + HASH + HASH
        for count in self.row_blocks:
            out += struct.pack(f"<q{count * ROW_DIM}f", count, *range(count * ROW_DIM)) + HASH
        out += b"".join(self.sequences)
        for number_of_group, blocks in enumerate(self.blocks):
            if (self.cache, number_of_group) == OF_SOURCES:
                continue
            _, heads, k_dim, v_dim, k_type, v_type, layers = self.groups[number_of_group]
            out += struct.pack("<I", len(blocks)) + HASH
            for _, count in blocks.values():
                lane = rows(count, k_type, k_dim) + rows(count, v_type, v_dim)
                out += struct.pack("<I", count) + lane * (heads * len(layers)) + HASH
        for length in self.sources if self.rows else ():
            _, heads, k_dim, v_dim, k_type, v_type, layers = self.groups[OF_SOURCES[1]]
            for begin in range(0, length, BLOCK):
                count = min(BLOCK, length - begin)
                lane = rows(count, k_type, k_dim) + rows(count, v_type, v_dim)
                out += struct.pack("<I", count) + lane * (heads * len(layers)) + HASH
        return out


def seed(file: File, operations: list) -> bytes:
    """Operations: (code, sequence, number); see Program::Operation of fuzz_session.cpp."""
    program = b"".join(bytes([code * 4 + sequence, number]) for code, sequence, number in operations)
    return bytes([file.cache, len(operations)]) + program + file.bytes()


GROW, UNDO, BACK, TO, FORK, PRUNE, SAVE, EMPTY = range(8)
SEEDS = {
    "none": seed(File(0), [(GROW, 0, 15), (SAVE, 0, 0)]),
    "empty": seed(File(0).add(0), [(GROW, 0, 15)]),
    "one": seed(File(0).add(3, logits=True), [(GROW, 0, 15), (UNDO, 0, 3), (BACK, 0, 2), (SAVE, 0, 0)]),
    "fork": seed(File(0).add(40, name="a").add(50, (1, "a"), "b").add(40, (2, "a"), "c"),
                 [(GROW, 0, 3), (GROW, 2, 0), (FORK, 1, 3), (GROW, 3, 9), (SAVE, 0, 0)]),
    "window": seed(File(0).add(300), [(GROW, 0, 15), (BACK, 0, 200), (GROW, 0, 15), (TO, 0, 2), (SAVE, 0, 0)]),
    "hole": seed(File(0).add(70, pruned=((20, 65),)), [(GROW, 0, 3), (BACK, 0, 10), (SAVE, 0, 0), (PRUNE, 0, 0xf3)]),
    "f32-keys": seed(File(1).add(330, name="a").add(340, (10, "a"), "b", logits=True),
                     [(GROW, 1, 15), (FORK, 0, 2), (EMPTY, 0, 0), (GROW, 2, 15), (SAVE, 0, 0)]),
    "rows": seed(File(0, row_blocks=(3, 40)).add(60, name="a").add(50, (1, "a"), "b"),
                 [(GROW, 0, 3), (BACK, 1, 20), (FORK, 1, 3), (SAVE, 0, 0), (GROW, 3, 9), (SAVE, 0, 0)]),
    "sources-and-rows": seed(File(2, (33,), row_blocks=(2,)).add(40, name="a", source=1), [(GROW, 0, 3), (SAVE, 0, 0)]),
    "sources": seed(File(2, (33, 70)).add(40, name="a", source=1).add(50, (1, "a"), "b", source=1).add(0, source=2),
                    [(GROW, 0, 3), (GROW, 2, 9), (FORK, 1, 3), (SAVE, 0, 0), (GROW, 3, 9), (SAVE, 0, 0)]),
    "sources-without-rows": seed(File(2, (5,), rows=False).add(3, name="a", source=1, logits=True),
                                 [(GROW, 0, 3), (EMPTY, 0, 0), (GROW, 0, 9), (SAVE, 0, 0)]),
}


def main() -> None:
    folder = Path(sys.argv[1] if len(sys.argv) > 1 else Path(__file__).parent / "seeds") / "session"
    folder.mkdir(parents=True, exist_ok=True)
    for name, content in SEEDS.items():
        (folder / name).write_bytes(content)


if __name__ == "__main__":
    main()
