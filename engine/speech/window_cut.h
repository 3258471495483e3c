// Cuts the tokens of a window into segments by the times among them, and says where the next window
// begins.
//
// Source: openai-whisper, transcribe.py. Thread-safety: pure.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "engine/speech/speech_tokens.h"

namespace kvant::speech {

struct WindowCut {
  struct Part {
    double start = 0;  // seconds from the beginning of the sound
    double end = 0;
    size_t first = 0;  // its tokens: from here on
    size_t last = 0;   // and before this one
  };
  std::vector<Part> parts;
  int64_t advance = 0;  // frames from the beginning of this window to that of the next one
};

// Where two times stand side by side, one segment ends and the next one begins. What follows the
// last such pair is not finished: the next window begins there, unless the text ends in a single
// time, behind which nobody speaks. A text without pairs is one segment. The window begins with
// frame `seek` and has `frames` frames of sound.
WindowCut CutWindow(const SpeechTokens& tokens, std::span<const TokenId> text, int64_t seek,
                    int64_t frames);

}  // namespace kvant::speech
