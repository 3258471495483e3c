// The bytes that a terminal in raw mode sends, as keys: characters of UTF-8, escape sequences of
// xterm and its kind, and text that is pasted between the marks of bracketed paste.
//
// The decoder knows no file: bytes go in, keys come out, so that tests can feed it byte by byte.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace kvant::tools {

enum class KeyKind : uint8_t {
  kText,   // one character, in `text`
  kPaste,  // text with its line breaks, in `text`
  kEnter,
  kNewLine,  // Ctrl+J, Alt+Enter
  kTab,
  kBackspace,
  kDelete,
  kLeft,
  kRight,
  kUp,
  kDown,
  kHome,
  kEnd,
  kWordLeft,
  kWordRight,
  kEraseToEnd,    // Ctrl+K
  kEraseToBegin,  // Ctrl+U
  kEraseWord,     // Ctrl+W
  kInsertErased,  // Ctrl+Y
  kClearScreen,   // Ctrl+L
  kInterrupt,     // Ctrl+C
  kEndOfInput,    // Ctrl+D
  kSuspend,       // Ctrl+Z
  kUnknown,       // a key without a meaning here
};

struct Key {
  KeyKind kind = KeyKind::kUnknown;
  std::string text = {};
};

class KeyDecoder {
 public:
  void Feed(std::string_view bytes) { pending_ += bytes; }

  // The next key, nullopt where its bytes have not all come. `pause`: nothing more has come for a
  // while, so that an escape byte is the escape key and half a character is none.
  enum class Pause : uint8_t { kNo, kYes };
  std::optional<Key> Take(Pause pause);

  bool empty() const { return pending_.empty(); }

 private:
  std::optional<Key> TakeEscape(Pause pause);
  std::optional<Key> TakeSequence(Pause pause);
  std::optional<Key> TakePaste();
  std::optional<Key> TakeCharacter(Pause pause);
  Key Cut(size_t bytes, KeyKind kind);

  std::string pending_;
};

}  // namespace kvant::tools
