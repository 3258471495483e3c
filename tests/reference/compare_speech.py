#!/usr/bin/env python3
"""Compare the transcripts of `kvant transcribe` with those of openai-whisper, of the same weights on the same sound.

Usage: compare_speech.py KVANT MODEL.gguf [--minutes N] [--beams N] [--language CODE...] [--folder FOLDER]
       compare_speech.py --write NAME=MODEL.gguf...

With --write, openai-whisper's transcripts of real/expected/spoken.flac by models of these names go to real/expected/transcripts.json.

espeak-ng speaks sentences with pauses between them, sox makes the sound of a file. The model's tensors become those of openai-whisper, so
what differs is arithmetic. Prints each segment that differs and, for each language, how many do. Draws are not compared: temperature is 0.
The pinned packages are openai-whisper 20250625, torch 2.15 and gguf 0.19; soundfile reads the sound.
"""
import argparse
import json
import random
import re
import subprocess
import tempfile
import time
from pathlib import Path

import gguf
import numpy as np
import torch
import whisper

SENTENCES = {
    "en": ["Please call me tomorrow at half past seven.", "The train to the coast leaves from platform four.", "I would like a cup of tea and two eggs.",
           "She opened the window and looked at the garden.", "We need more time to finish the report.", "The river was high after three days of rain.",
           "My brother works in a library near the station.", "Nobody knew why the lights went out last night."],
    "de": ["Guten Morgen, wie geht es Ihnen heute?", "Der Zug nach Hamburg kommt zehn Minuten sp\u00e4ter.", "Ich h\u00e4tte gern ein Brot und drei \u00c4pfel.",
           "Am Abend gehen wir zusammen ins Theater.", "Das Wetter wird in den n\u00e4chsten Tagen besser.", "Meine Schwester wohnt in einem kleinen Dorf."],
    "fr": ["Bonjour, je voudrais une table pour deux personnes.", "Le train pour Paris part dans dix minutes.", "Nous avons visit\u00e9 le mus\u00e9e hier apr\u00e8s-midi.",
           "Il fait tr\u00e8s froid ce matin.", "Ma s\u0153ur travaille dans une grande \u00e9cole.", "Demain, nous irons \u00e0 la plage."],
    "es": ["Buenos d\u00edas, \u00bfd\u00f3nde est\u00e1 la estaci\u00f3n?", "Mi hermano trabaja en una tienda de libros.", "Ma\u00f1ana vamos a la playa con los ni\u00f1os.",
           "La cena est\u00e1 lista a las nueve.", "El tren sale en diez minutos.", "Quiero comprar pan y leche."],
    "it": ["Buongiorno, vorrei un caff\u00e8 e un cornetto.", "Il treno per Roma parte fra dieci minuti.", "Domani andiamo al mare con gli amici.",
           "La mia casa \u00e8 vicino alla stazione.", "Oggi fa molto caldo in citt\u00e0.", "Mio fratello lavora in una grande scuola."],
}
VOICES = {"en": "en-us", "fr": "fr-fr"}
LAYERS = {"attn_norm": "attn_ln", "attn_q": "attn.query", "attn_k": "attn.key", "attn_v": "attn.value", "attn_o": "attn.out",
          "cross_attn_norm": "cross_attn_ln", "cross_attn_q": "cross_attn.query", "cross_attn_k": "cross_attn.key", "cross_attn_v": "cross_attn.value",
          "cross_attn_o": "cross_attn.out", "ffn_norm": "mlp_ln", "ffn_up": "mlp.0", "ffn_down": "mlp.2"}
ENDS = {"token_embd.weight": "decoder.token_embedding.weight", "enc.conv1d.0": "encoder.conv1", "enc.conv1d.1": "encoder.conv2",
        "enc.position_embd.weight": "encoder.positional_embedding", "dec.position_embd.weight": "decoder.positional_embedding",
        "enc.output_norm": "encoder.ln_post", "dec.output_norm": "decoder.ln"}


def load(path):
    reader = gguf.GGUFReader(path)
    value = lambda key: int(reader.fields[f"whisper.{key}"].contents())
    dims = whisper.model.ModelDimensions(
        n_mels=value("audio.mel_bins"), n_audio_ctx=value("encoder.context_length"), n_audio_state=value("embedding_length"),
        n_audio_head=value("attention.head_count"), n_audio_layer=value("block_count"), n_vocab=value("vocab_size"),
        n_text_ctx=value("context_length"), n_text_state=value("embedding_length"), n_text_head=value("attention.head_count"),
        n_text_layer=value("decoder_block_count"))
    model = whisper.model.Whisper(dims)
    shapes, state = model.state_dict(), {}
    for tensor in reader.tensors:
        name = tensor.name
        layer = re.fullmatch(r"(enc|dec)\.blk\.(\d+)\.(\w+)\.(weight|bias)", name)
        if layer:
            stack, number, part, kind = layer.groups()
            name = f"{'encoder' if stack == 'enc' else 'decoder'}.blocks.{number}.{LAYERS[part]}.{kind}"
        for ours, theirs in ENDS.items():
            if name.startswith(ours):
                name = theirs + name[len(ours):]
        numbers = torch.from_numpy(np.array(tensor.data, dtype=np.float32))
        state[name] = numbers.reshape(shapes[name].shape)
    model.load_state_dict(state)
    return model.eval()


def speak(language, minutes, path, seed):
    """Sentences in a random order with pauses between them, as a WAV file of 16 kHz."""
    choose = random.Random(seed)
    with tempfile.TemporaryDirectory() as folder:
        parts, seconds, number = [], 0.0, 0
        while seconds < 60 * minutes:
            part = f"{folder}/{number}.wav"
            subprocess.run(["espeak-ng", "-v", VOICES.get(language, language), "-s", str(choose.randrange(130, 180)), "-p", str(choose.randrange(30, 70)),
                            "-w", part, choose.choice(SENTENCES[language])], check=True)
            pause = choose.choice([0.2, 0.5, 0.5, 1.0, 2.0, 6.0])
            subprocess.run(["sox", part, "-r", "16000", f"{folder}/{number}p.wav", "pad", "0", str(pause)], check=True)
            parts.append(f"{folder}/{number}p.wav")
            seconds += float(subprocess.run(["soxi", "-D", parts[-1]], check=True, capture_output=True, text=True).stdout)
            number += 1
        subprocess.run(["sox", *parts, str(path)], check=True)


def samples_of(path):
    raw = subprocess.run(["sox", str(path), "-t", "raw", "-e", "signed", "-b", "16", "-"], check=True, capture_output=True).stdout
    return np.frombuffer(raw, np.int16).astype(np.float32) / 32768


def rows_of(result):
    return [(round(s["start"], 3), round(s["end"], 3), s["text"]) for s in result["segments"]]


def write(models):
    """The transcripts that tests/real/test_speech.py expects, with five beams."""
    folder = Path(__file__).resolve().parents[1] / "real/expected"
    sound, out = samples_of(folder / "spoken.flac"), {}
    for name, path in (model.split("=") for model in models):
        result = whisper.transcribe(load(path), sound, temperature=0.0, fp16=False, beam_size=5)
        out[name] = {"language": result["language"], "text": result["text"],
                     "segments": [{key: s[key] for key in ("seek", "start", "end", "text", "tokens", "avg_logprob", "no_speech_prob")} for s in result["segments"]]}
    (folder / "transcripts.json").write_text(json.dumps(out, indent=1) + "\n")


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--write", nargs="+", metavar="NAME=MODEL.gguf")
    parser.add_argument("kvant", nargs="?")
    parser.add_argument("model", nargs="?")
    parser.add_argument("--minutes", type=float, default=2)
    parser.add_argument("--beams", type=int, default=5)
    parser.add_argument("--language", nargs="*", default=list(SENTENCES))
    parser.add_argument("--folder", type=Path, default=None, help="keep sounds and transcripts here")
    arguments = parser.parse_args()
    if arguments.write:
        write(arguments.write)
        return
    model = load(arguments.model)
    folder = arguments.folder or Path(tempfile.mkdtemp())
    folder.mkdir(parents=True, exist_ok=True)
    for language in arguments.language:
        sound = folder / f"{language}.wav"
        if not sound.exists():
            speak(language, arguments.minutes, sound, len(language) + ord(language[0]))
        begin = time.time()
        search = {} if arguments.beams == 1 else {"beam_size": arguments.beams}
        theirs = whisper.transcribe(model, samples_of(sound), temperature=0.0, fp16=False, **search)
        between = time.time()
        run = subprocess.run([arguments.kvant, "transcribe", arguments.model, str(sound), "--format", "json", "-q", "--temperature", "0",
                              "--beams", str(arguments.beams)], check=True, capture_output=True, text=True)
        ours, end = json.loads(run.stdout), time.time()
        (folder / f"{language}.openai.json").write_text(json.dumps(theirs))
        (folder / f"{language}.kvant.json").write_text(run.stdout)
        left, right = rows_of(theirs), rows_of(ours)
        same = sum(a == b for a, b in zip(left, right))
        worst = max((abs(a["avg_logprob"] - b["avg_logprob"]) for a, b in zip(theirs["segments"], ours["segments"]) if a["tokens"] == b["tokens"]), default=0)
        speech = max((abs(a["no_speech_prob"] - b["no_speech_prob"]) for a, b in zip(theirs["segments"], ours["segments"])), default=0)
        print(f"{language}: {len(left)} and {len(right)} segments, {same} equal; language {theirs['language']} and {ours['language']}; "
              f"largest differences of equal texts: mean log-probability {worst:.2g}, no speech {speech:.2g}; "
              f"{between - begin:.1f} s and {end - between:.1f} s", flush=True)
        for a, b in zip(left, right):
            if a != b:
                print("   openai", a, "\n   kvant ", b)


if __name__ == "__main__":
    main()
