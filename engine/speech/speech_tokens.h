// The tokens of Whisper's vocabularies that are no text, and those that are never spoken.
//
// Source: openai-whisper, tokenizer.py. Thread-safety: plain data.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "kvant/model.h"
#include "kvant/speech.h"
#include "kvant/token_id.h"

namespace kvant::speech {

// Ids below `end` are text; those from `first_time` on are times, of which there is one for each
// position of the encoder and one for the end.
struct SpeechTokens {
  TokenId end = 0;
  TokenId start = 0;  // of a transcript
  TokenId translate = 0;
  TokenId transcribe = 0;
  TokenId language_model = 0;
  TokenId previous = 0;  // in front of text of earlier windows
  std::optional<TokenId> no_speech;
  TokenId no_times = 0;
  TokenId first_time = 0;
  std::vector<TokenId> languages;  // empty: the model knows English alone
  std::vector<TokenId> blank;      // a text cannot begin with these

  bool is_time(TokenId token) const { return token >= first_time; }
};

// kNotSupported for a model that reads no frames, and where a token is missing, with its name.
Result<SpeechTokens> ReadSpeechTokens(const Model& model);

// Tokens that are never chosen: those that steer a transcript and, if asked for, symbols that
// nobody speaks. Ascending.
Result<std::vector<TokenId>> SuppressedTokens(const Tokenizer& tokenizer,
                                              const SpeechTokens& tokens,
                                              const TranscribeOptions& options);

// The text of tokens as UTF-8. Bytes that are none become U+FFFD.
std::string TextOf(const Tokenizer& tokenizer, const std::vector<TokenId>& tokens);

// The text without white space at its ends, as Python's strip leaves it.
std::string Stripped(std::string_view text);

}  // namespace kvant::speech
