#!/usr/bin/env python3
"""Write the frames of spoken sentences, and what faster-whisper hears in them.

    real/expected/speech.NAME.npy   float16 [80, frames] of the sound alone, as faster-whisper's feature extractor gives them
    real/expected/speech.json       {"NAME": {"said": ..., "MODEL": {"language": ..., "text": ...}, ...}, ...}

The texts are those of a greedy search without times on 30 seconds, of which what follows the sound is silent, in float32.

Usage: make_real_speech.py MODELS    (MODELS: the folder with whisper-tiny.en and whisper-base, as `./dev models` makes it)
The pinned packages are faster-whisper 1.2.1 and ctranslate2 4.8.5; espeak-ng 1.51 speaks.
"""
import json
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np
from faster_whisper import WhisperModel
from faster_whisper.audio import decode_audio

OUT = Path(__file__).resolve().parents[1] / "real/expected"
SAID = {"english": ("en-us", "Please call me tomorrow at half past seven."), "german": ("de", "Guten Morgen, wie geht es Ihnen heute?")}
SECONDS, RATE = 30, 16000


def hear(model, sound):
    silence = np.zeros(SECONDS * RATE - len(sound), np.float32)
    encoded = model.encode(model.feature_extractor(np.concatenate([sound, silence]), padding=0)[:, :100 * SECONDS])
    several = model.model.is_multilingual
    language = model.model.detect_language(encoded)[0][0][0] if several else "<|en|>"
    id_of = model.hf_tokenizer.token_to_id
    names = ["<|startoftranscript|>"] + ([language, "<|transcribe|>"] if several else []) + ["<|notimestamps|>"]
    ids = model.model.generate(encoded, [[id_of(name) for name in names]], beam_size=1, max_length=448)[0].sequences_ids[0]
    return {"language": language, "text": model.hf_tokenizer.decode(ids)}


if __name__ == "__main__":
    result = {}
    models = {name: WhisperModel(str(Path(sys.argv[1]) / name), device="cpu", compute_type="float32", cpu_threads=1)
              for name in ("whisper-tiny.en", "whisper-base")}
    for name, (voice, said) in SAID.items():
        with tempfile.NamedTemporaryFile(suffix=".wav") as file:
            subprocess.run(["espeak-ng", "-v", voice, "-s", "150", "-w", file.name, said], check=True)
            sound = decode_audio(file.name)
        frames = models["whisper-base"].feature_extractor(sound, padding=0).astype(np.float16)
        np.save(OUT / f"speech.{name}.npy", frames)
        result[name] = {"said": said, **{model: hear(one, sound) for model, one in models.items()}}
        print(name, frames.shape, result[name])
    (OUT / "speech.json").write_text(json.dumps(result, ensure_ascii=False, indent=1) + "\n")
