"""Five steps of one token with a cache that is made at the first: keys and values grow by one position a step along the sequence,
[batch, kv heads, positions, dim]; a reset discards them. Then the same tokens without a cache give the same likeliest token.

    growing_cache.py MODEL.gguf
"""
import sys

import kvant


def main(path):
    model = kvant.Model(path)
    runner = kvant.Runner(model)
    past = runner.new_sequence()
    tokens = [1]
    for step in range(1, 6):
        past.append(tokens[-1:])
        arrays = runner.past_key_values([past])
        # The last layer: where some layers have a sliding window it sees all positions.
        name = list(arrays)[-1]
        print(f"step {step}: {name} {arrays[name].shape}")
        if arrays[name].shape[2] != step:
            sys.exit(f"growing_cache.py: expected {step} positions, found {arrays[name].shape[2]}")
        tokens.append(int(past.logits(copy=False).argmax()))
    past.reset()

    whole = kvant.Runner(model, kv_cache=False).new_sequence().append(tokens[:5])
    if int(whole.logits().argmax()) != tokens[-1]:
        sys.exit("growing_cache.py: without a cache another token is likeliest")


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit("usage: growing_cache.py MODEL.gguf")
    try:
        main(sys.argv[1])
    except kvant.KvantError as error:
        sys.exit(f"growing_cache.py: {error}")
