#!/usr/bin/env python3
"""Write what the feature extractor of transformers makes of sounds with silence behind them.

    silent_frames/loud.npy    float32 [1, 20, 66]: a sound of 22 frames, and silence 8 below its largest logarithm
    silent_frames/quiet.npy   the same sound so quiet that silence is the least logarithm of all, -10

Usage: make_silent_frames.py
The pinned packages are transformers 4.57.1 and torch 2.8.0.
"""
from pathlib import Path

import numpy as np
from transformers import WhisperFeatureExtractor

BINS, FRAMES, SOUND, HOP = 20, 66, 22, 160
OUT = Path(__file__).parent / "silent_frames"

if __name__ == "__main__":
    OUT.mkdir(exist_ok=True)
    extractor = WhisperFeatureExtractor(feature_size=BINS, sampling_rate=FRAMES * HOP, hop_length=HOP, chunk_length=1)
    times = np.arange(SOUND * HOP) / (FRAMES * HOP)
    noise = np.random.default_rng(3).normal(size=times.size)
    sound = np.sin(2 * np.pi * (300 + 2000 * times) * times) + 0.1 * noise
    for name, volume in {"loud": 0.5, "quiet": 1e-3}.items():
        features = extractor((volume * sound).astype(np.float32), sampling_rate=FRAMES * HOP, return_tensors="np").input_features
        assert features.shape == (1, BINS, FRAMES), features.shape
        np.save(OUT / f"{name}.npy", features.astype(np.float32))
        print(f"{name}: up to {features.max():.4f}, silence {features[0, 0, -1]:.4f}")
