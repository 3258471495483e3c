// The languages of Whisper in the order of their ids: codes, which are parts of the names of tokens
// ("<|de|>"), and English names, which people type.
//
// Thread-safety: constants and pure functions.
#pragma once

#include <span>
#include <string_view>

namespace kvant {

struct SpeechLanguage {
  std::string_view code;  // "de"
  std::string_view name;  // "german"
};

// The 100 languages of the newest models; older ones lack the last.
std::span<const SpeechLanguage> SpeechLanguages();

// "de" of "german" and of "German"; another text is returned as it is.
std::string_view SpeechLanguageCode(std::string_view name);

// "german" of "de"; another text is returned as it is.
std::string_view SpeechLanguageName(std::string_view code);

}  // namespace kvant
