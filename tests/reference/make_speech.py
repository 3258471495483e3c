#!/usr/bin/env python3
"""Write what openai-whisper and transformers make of made-up sounds, logits and texts.

    speech/features.json        rows of features: {"sound": {...}, "bins": N, "frames": [...], "openai": [[...]], "transformers": [[...]]}
    speech/rules.json           tokens that openai-whisper's filters of logits leave, for made-up logits behind made-up tokens
    speech/transcripts.json     its segments and prompts where the texts of windows come from a script
    speech/ratios.json          its compression ratios of texts
    speech/result.json          a transcript, and beside it result.txt, .srt, .vtt, .tsv and .written.json, as it writes them

How sounds and logits follow from numbers is told in `noise`. Usage: make_speech.py
The pinned packages are openai-whisper 20250625 and transformers 5.24.0. Its module timing, which is not used, wants numba.
"""
import dataclasses
import json
import random
from pathlib import Path

import numpy as np
import torch
import whisper
import whisper.transcribe
from transformers import WhisperFeatureExtractor
from whisper import decoding, utils

OUT = Path(__file__).parent / "speech"
transcribe_module = __import__("sys").modules["whisper.transcribe"]

# Ids of a small vocabulary in the order of Whisper's: text, end, start, two languages, tasks and so on, times.
TEXT, END, START, LANGUAGES, TRANSLATE, TRANSCRIBE, MODEL, PREVIOUS, NO_SPEECH, NO_TIMES, TIMES = 20, 20, 21, (22, 23), 24, 25, 26, 27, 28, 29, 30


def noise(seed, count):
    """Numbers k / 32768 with odd k, from -1 to 1: the upper 16 bits of splitmix64."""
    mask = (1 << 64) - 1
    out = np.empty(count, np.float32)
    for i in range(count):
        seed = (seed + 0x9E3779B97F4A7C15) & mask
        x = ((seed ^ (seed >> 30)) * 0xBF58476D1CE4E5B9) & mask
        x = ((x ^ (x >> 27)) * 0x94D049BB133111EB) & mask
        out[i] = ((x ^ (x >> 31)) >> 48) / 32768.0 - 65535 / 65536.0
    return out


# ---- Features --------------------------------------------------------------------------------------------------------


def sound(row):
    """Noise between silence, an impulse, or a square wave; all values are exact in binary."""
    samples = np.zeros(row["samples"], np.float32)
    count = len(samples)
    if row["kind"] == "noise":
        samples[:] = noise(row["seed"], count) * np.float32(row["gain"])
        samples[count // 3 : count // 2] = 0
    elif row["kind"] == "impulse":
        samples[count // 2 :][:1] = 1
    elif row["kind"] == "square":
        samples[:] = np.where(np.arange(count) // row["half"] % 2 == 0, 0.25, -0.25)
    return samples


def features():
    rows = []
    sounds = [{"kind": "noise", "samples": n, "seed": n, "gain": gain} for n, gain in
              ((1, 0.5), (200, 0.5), (201, 0.5), (399, 0.25), (400, 0.25), (4000, 0.5), (16123, 0.03125))]
    sounds += [{"kind": "silence", "samples": 0}, {"kind": "silence", "samples": 3200}, {"kind": "impulse", "samples": 4800},
               {"kind": "square", "samples": 8000, "half": 23}]
    for one in sounds:
        for bins in (80, 128):
            samples = sound(one)
            openai = whisper.log_mel_spectrogram(samples, bins, padding=whisper.audio.N_SAMPLES).numpy()
            extractor = WhisperFeatureExtractor(feature_size=bins)
            frames = sorted({0, 1, 2, 3, len(samples) // 320, len(samples) // 160, len(samples) // 160 + 2, 2999})
            row = {"sound": one, "bins": bins, "frames": frames, "openai": openai[:, frames].T.astype(float).round(6).tolist()}
            if len(samples) > 0:
                theirs = extractor(samples, sampling_rate=16000, return_tensors="np").input_features[0]
                row["transformers"] = theirs[:, frames].T.astype(float).round(6).tolist()
            rows.append(row)
    return rows


# ---- Rules -----------------------------------------------------------------------------------------------------------


class Vocabulary:
    eot, no_timestamps, timestamp_begin = END, NO_TIMES, TIMES

    def encode(self, text):
        """Token 3 is a space; other texts are a token for each character."""
        return [3] if text == " " else [ord(c) % TEXT for c in text.strip()]

    def decode(self, tokens):
        return "".join(" " if t == 3 else f" w{t}" if t < END else f"<{t}>" for t in tokens if t < TIMES)


def rules():
    choose = random.Random(1)
    size, rows = 64, []
    suppressed = [1, 5, START, TRANSLATE, TRANSCRIBE, MODEL, PREVIOUS, NO_SPEECH]
    for number in range(600):
        history, time = [], TIMES
        for _ in range(choose.randrange(9)):
            kind = choose.random()
            if kind < 0.5:
                history.append(choose.randrange(TEXT))
            elif kind < 0.9:
                time = min(size - 1, time + choose.randrange(3))
                history.append(time)
            else:
                history.append(choose.randrange(TEXT, size))
        limit = choose.choice([None, 0, 3, 10])
        times = choose.random() < 0.9
        gain = choose.choice([1, 8])
        bonus = choose.choice([-2, 0, 0, 4])
        logits = noise(number, size) * np.float32(gain)
        logits[TIMES:] += np.float32(bonus)
        row = torch.from_numpy(logits.copy())[None]
        tokens = torch.tensor([[START, *history]])
        filters = [decoding.SuppressBlank(Vocabulary(), 1), decoding.SuppressTokens(suppressed)]
        if times:
            filters.append(decoding.ApplyTimestampRules(Vocabulary(), 1, limit))
        for one in filters:
            one.apply(row, tokens)
        left = [i for i in range(size) if row[0, i] > -np.inf]
        rows.append({"history": history, "limit": limit, "times": times, "gain": gain, "bonus": bonus, "left": left})
    return {"size": size, "suppressed": suppressed, "rows": rows}


# ---- Transcripts -----------------------------------------------------------------------------------------------------

FRAMES = 300  # of a window, in place of 3000


@dataclasses.dataclass
class Dimensions:
    n_mels: int = 80
    n_audio_ctx: int = FRAMES // 2
    n_text_ctx: int = 448


class ScriptedModel:
    dims, device, is_multilingual, num_languages = Dimensions(), torch.device("cpu"), True, 2

    def __init__(self, script):
        self.script, self.calls = list(script), []

    def detect_language(self, mel):
        return None, {"en": 0.25, "de": 0.75}

    def decode(self, mel, options):
        said = self.script[len(self.calls) % len(self.script)]
        self.calls.append({"temperature": options.temperature, "prompt": list(options.prompt or [])})
        return decoding.DecodingResult(
            audio_features=None, language=options.language, tokens=said["tokens"], avg_logprob=said["avg_log_prob"],
            no_speech_prob=said["no_speech_prob"], temperature=options.temperature, compression_ratio=said["compression_ratio"])


def scripted_text(choose):
    """The tokens of a window: mostly as the rules have them, sometimes not."""
    tokens, time, last = [], TIMES + choose.randrange(4), TIMES + FRAMES // 2
    style = choose.random()
    if style < 0.1:
        return [choose.randrange(TEXT) for _ in range(choose.randrange(5))]
    while time < last and len(tokens) < 24:
        tokens.append(time)
        tokens += [choose.choice([3, 3, 7, 8, 11, 19, 22]) for _ in range(choose.randrange(1, 4))]
        if choose.random() < 0.15:
            return tokens
        time = min(last, time + choose.randrange(0 if style < 0.3 else 1, 60))
        tokens.append(time)
        if choose.random() < 0.2:
            return tokens
        if style < 0.2:
            tokens.append(choose.randrange(TEXT))
    return tokens


def transcripts():
    transcribe_module.N_FRAMES, transcribe_module.N_SAMPLES = FRAMES, FRAMES * 160
    transcribe_module.get_tokenizer = lambda *_, **__: Vocabulary()
    choose, rows = random.Random(2), []
    for number in range(60):
        script = [{"tokens": scripted_text(choose), "avg_log_prob": choose.choice([-0.25, -0.75, -1.5]),
                   "no_speech_prob": choose.choice([0.125, 0.125, 0.75]), "compression_ratio": choose.choice([1.5, 1.5, 3.0])}
                  for _ in range(choose.randrange(1, 9))]
        options = {
            "temperature": choose.choice([[0.0, 0.25, 0.5, 0.75, 1.0], [0.0], [0.5, 0.75]]),
            "compression_ratio_threshold": choose.choice([2.5, 2.5, None]), "logprob_threshold": choose.choice([-1.0, -1.0, None]),
            "no_speech_threshold": choose.choice([0.5, 0.5, None]), "condition_on_previous_text": choose.random() < 0.7,
            "initial_prompt": choose.choice([None, None, " names "]), "language": choose.choice([None, "en"])}
        samples = choose.choice([0, 159, 160, 16000, 48000, 48160, 100000, 200000])
        model = ScriptedModel(script)
        result = whisper.transcribe(model, np.zeros(samples, np.float32), **{**options, "temperature": tuple(options["temperature"])})
        for segment in result["segments"]:
            segment.pop("words", None)
        rows.append({"samples": samples, "options": options, "script": script, "calls": model.calls, "result": result})
    return rows


def result():
    """A transcript with texts and times that are hard to write."""
    texts = [" Hello, world.", "", "\u3000 \u00a0white\u2003space\t", " an --> arrow --> twice", " \u00e4\u00f6\u00fc \u6771\u4eac \U0001f600 \"quoted\" \\ \x7f\x01", "\ttabs\tin between\t", " 100 %"]
    starts = [0.0, 0.0005, 59.9995, 61.02, 3599.9996, 3661.5, 359999.0]
    segments = []
    for i, (text, start) in enumerate(zip(texts, starts)):
        segment = {"id": i, "seek": 3000 * i, "start": start, "end": start + 0.02 * i, "text": text, "tokens": [50364 + i, 7 * i] if text else [],
                   "temperature": [0.0, 0.2, 0.4, 0.6, 0.8, 1.0, 0.0][i], "avg_logprob": -1 / (i + 3), "compression_ratio": [1.0, 1e-5, 0.1 + 0.2, 2.0, 1e16, 123456789.125, 0.5][i],
                   "no_speech_prob": [0.5, 1e-10, 2.5e-7, 0.0001, float("nan"), 1 / 3, 0.0][i]}
        segments.append(segment if text else {**segment, "words": []})
    made = {"text": "".join(texts), "segments": segments, "language": "de"}
    for ending in ("txt", "srt", "vtt", "tsv", "json"):
        name = OUT / ("result.written.json" if ending == "json" else f"result.{ending}")
        with open(name, "w", encoding="utf-8", newline="") as file:
            # Subtitles take times from words where there are any; a transcript has them in all segments or in none.
            plain = {**made, "segments": [{k: v for k, v in s.items() if k != "words" or ending == "json"} for s in segments]}
            utils.get_writer(ending, "").write_result(plain, file, {})
    for segment in segments:
        segment["no_speech_prob"] = None if segment["no_speech_prob"] != segment["no_speech_prob"] else segment["no_speech_prob"]
    return made


def ratios():
    choose, rows = random.Random(3), [""]
    for number in range(200):
        words = [choose.choice(["the", "a", "wind", "und", "Haus", "\u6771", "\u4eac", ", ", " ", ". "]) for _ in range(choose.randrange(90))]
        rows.append("".join(words) if number % 4 else words[0] * number if words else "x")
    return [{"text": text, "ratio": utils.compression_ratio(text)} for text in rows]


if __name__ == "__main__":
    OUT.mkdir(exist_ok=True)
    for name, make in (("features", features), ("rules", rules), ("ratios", ratios), ("result", result), ("transcripts", transcripts)):
        (OUT / f"{name}.json").write_text(json.dumps(make(), separators=(",", ":")) + "\n")
