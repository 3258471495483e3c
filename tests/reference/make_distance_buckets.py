#!/usr/bin/env python3
"""Write distance_buckets.json: the bucket of T5 for each distance, as transformers 4.57.1 computes it.

Usage: make_distance_buckets.py [OUTPUT]
"""

import json
import sys
from pathlib import Path

import torch
from transformers.models.t5.modeling_t5 import T5Attention

FARTHEST = 200


def main() -> None:
    output = Path(sys.argv[1]) if len(sys.argv) > 1 else Path(__file__).parent / "distance_buckets.json"
    distances = torch.arange(-FARTHEST, FARTHEST + 1)
    tables = {"first": -FARTHEST}
    for name, both in (("encoder", True), ("decoder", False)):
        buckets = T5Attention._relative_position_bucket(distances, bidirectional=both, num_buckets=32, max_distance=128)
        tables[name] = buckets.tolist()
    output.write_text(json.dumps(tables) + "\n")


if __name__ == "__main__":
    main()
