// The loop over the windows of a sound: which frames are read, which try counts, and what becomes a
// segment.
//
// Source: openai-whisper, transcribe.py. Thread-safety: one thread at a time per decoder.
#pragma once

#include "base/result.h"
#include "engine/speech/window_decoder.h"
#include "kvant/speech.h"

namespace kvant::speech {

// Transcribes a sound from its beginning; the decoder is reset first. The fields of `options` that
// concern a single text are the decoder's affair.
Result<Transcript> TranscribeSound(WindowDecoder& decoder, SoundSource& sound,
                                   const TranscribeOptions& options,
                                   const TranscribeEvents& events);

}  // namespace kvant::speech
