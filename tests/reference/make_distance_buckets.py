#!/usr/bin/env python3
"""Write distance_buckets.json: the bucket of T5 for each distance, as transformers 4.57.1 computes it, for several numbers of buckets and
largest distances.

Usage: make_distance_buckets.py [OUTPUT]
"""

import json
import sys
from pathlib import Path

import torch
from transformers.models.t5.modeling_t5 import T5Attention

FARTHEST = 200
# Buckets and the distance beyond which all share the last one. The first are those of trained models; 32-bit and 64-bit floats disagree at the
# distances 10, 20 and 80 of the last but one and at 120 of the last. There are others where torch is alone: its logarithm of 1.5 is the float
# above the nearest one, so that distance 36 of (48, 81) is in the next bucket.
SETTINGS = [(32, 128), (16, 50), (8, 20), (12, 30), (64, 200), (32, 1000), (128, 129), (20, 160), (100, 288)]


def main() -> None:
    output = Path(sys.argv[1]) if len(sys.argv) > 1 else Path(__file__).parent / "distance_buckets.json"
    distances = torch.arange(-FARTHEST, FARTHEST + 1)
    tables = []
    for count, distance_max in SETTINGS:
        table = {"buckets": count, "distance_max": distance_max, "first": -FARTHEST}
        for name, both in (("encoder", True), ("decoder", False)):
            buckets = T5Attention._relative_position_bucket(distances, bidirectional=both, num_buckets=count, max_distance=distance_max)
            table[name] = buckets.tolist()
        tables.append(table)
    output.write_text("[" + ",\n".join(map(json.dumps, tables)) + "]\n")


if __name__ == "__main__":
    main()
