#include "tools/terminal/key_input.h"

#include <algorithm>
#include <array>

namespace kvant::tools {
namespace {

constexpr std::string_view kPasteBegin = "\x1b[200~";
constexpr std::string_view kPasteEnd = "\x1b[201~";
constexpr size_t kSequenceBytesMax = 32;  // of an escape sequence; longer ones are no keys

struct ControlKey {
  char byte;
  KeyKind kind;
};
constexpr std::array kControlKeys = {
    ControlKey{'\x01', KeyKind::kHome},         ControlKey{'\x02', KeyKind::kLeft},
    ControlKey{'\x03', KeyKind::kInterrupt},    ControlKey{'\x04', KeyKind::kEndOfInput},
    ControlKey{'\x05', KeyKind::kEnd},          ControlKey{'\x06', KeyKind::kRight},
    ControlKey{'\x08', KeyKind::kBackspace},    ControlKey{'\t', KeyKind::kTab},
    ControlKey{'\n', KeyKind::kNewLine},        ControlKey{'\x0b', KeyKind::kEraseToEnd},
    ControlKey{'\x0c', KeyKind::kClearScreen},  ControlKey{'\r', KeyKind::kEnter},
    ControlKey{'\x0e', KeyKind::kDown},         ControlKey{'\x10', KeyKind::kUp},
    ControlKey{'\x15', KeyKind::kEraseToBegin}, ControlKey{'\x17', KeyKind::kEraseWord},
    ControlKey{'\x19', KeyKind::kInsertErased}, ControlKey{'\x1a', KeyKind::kSuspend},
    ControlKey{'\x7f', KeyKind::kBackspace},
};

// The bytes behind "ESC [" or "ESC O".
struct SequenceKey {
  std::string_view bytes;
  KeyKind kind;
};
constexpr std::array kSequenceKeys = {
    SequenceKey{"A", KeyKind::kUp},
    SequenceKey{"B", KeyKind::kDown},
    SequenceKey{"C", KeyKind::kRight},
    SequenceKey{"D", KeyKind::kLeft},
    SequenceKey{"H", KeyKind::kHome},
    SequenceKey{"F", KeyKind::kEnd},
    SequenceKey{"1~", KeyKind::kHome},
    SequenceKey{"4~", KeyKind::kEnd},
    SequenceKey{"7~", KeyKind::kHome},
    SequenceKey{"8~", KeyKind::kEnd},
    SequenceKey{"3~", KeyKind::kDelete},
    SequenceKey{"1;5C", KeyKind::kWordRight},
    SequenceKey{"1;5D", KeyKind::kWordLeft},
    SequenceKey{"1;3C", KeyKind::kWordRight},
    SequenceKey{"1;3D", KeyKind::kWordLeft},
    SequenceKey{"13;2u", KeyKind::kNewLine},
    SequenceKey{"27;2;13~", KeyKind::kNewLine},
};

// The byte behind the escape byte of a key with Alt.
constexpr std::array kAltKeys = {
    ControlKey{'b', KeyKind::kWordLeft},     ControlKey{'f', KeyKind::kWordRight},
    ControlKey{'\r', KeyKind::kNewLine},     ControlKey{'\n', KeyKind::kNewLine},
    ControlKey{'\x7f', KeyKind::kEraseWord}, ControlKey{'\x08', KeyKind::kEraseWord},
};

template <class Keys>
KeyKind FindKey(const Keys& keys, char byte) {
  const auto* const found = std::find_if(
      keys.begin(), keys.end(), [byte](const ControlKey& key) { return key.byte == byte; });
  return found == keys.end() ? KeyKind::kUnknown : found->kind;
}

// Bytes of the UTF-8 character that begins so; 0 where none does.
size_t CharacterBytes(unsigned char first) {
  if (first < 0x80) return 1;
  if (first >= 0xc2 && first < 0xe0) return 2;
  if (first >= 0xe0 && first < 0xf0) return 3;
  if (first >= 0xf0 && first < 0xf5) return 4;
  return 0;
}

bool IsContinuationByte(char byte) { return (static_cast<unsigned char>(byte) & 0xc0) == 0x80; }

}  // namespace

Key KeyDecoder::Cut(size_t bytes, KeyKind kind) {
  Key key = {kind};
  if (kind == KeyKind::kText) key.text = pending_.substr(0, bytes);
  pending_.erase(0, bytes);
  return key;
}

std::optional<Key> KeyDecoder::Take(Pause pause) {
  if (pending_.empty()) return std::nullopt;
  if (pending_.starts_with(kPasteBegin)) return TakePaste();
  const char first = pending_.front();
  if (first == '\x1b') return TakeEscape(pause);
  if (static_cast<unsigned char>(first) < 0x20 || first == '\x7f') {
    return Cut(1, FindKey(kControlKeys, first));
  }
  return TakeCharacter(pause);
}

std::optional<Key> KeyDecoder::TakeEscape(Pause pause) {
  if (pending_.size() == 1) {
    if (pause == Pause::kNo) return std::nullopt;
    return Cut(1, KeyKind::kUnknown);
  }
  const char next = pending_[1];
  if (next == '[' || next == 'O') return TakeSequence(pause);
  if (next == '\x1b') return Cut(1, KeyKind::kUnknown);
  return Cut(2, FindKey(kAltKeys, next));
}

// A sequence ends with a byte from '@' to '~'; parameters come before it.
std::optional<Key> KeyDecoder::TakeSequence(Pause pause) {
  size_t end = 2;
  while (end < pending_.size() && end < kSequenceBytesMax && pending_[end] >= 0x20 &&
         pending_[end] < 0x40) {
    ++end;
  }
  if (end == pending_.size()) {
    if (pause == Pause::kNo) return std::nullopt;
    return Cut(end, KeyKind::kUnknown);
  }
  const std::string_view bytes = std::string_view(pending_).substr(2, end - 1);
  const auto* const found =
      std::find_if(kSequenceKeys.begin(), kSequenceKeys.end(),
                   [bytes](const SequenceKey& key) { return key.bytes == bytes; });
  return Cut(end + 1, found == kSequenceKeys.end() ? KeyKind::kUnknown : found->kind);
}

// A paste is a key as a whole. Terminals send its line breaks as they send the Enter key.
std::optional<Key> KeyDecoder::TakePaste() {
  const size_t end = pending_.find(kPasteEnd);
  if (end == std::string::npos) return std::nullopt;
  Key key = {KeyKind::kPaste};
  for (size_t at = kPasteBegin.size(); at < end; ++at) {
    const char byte = pending_[at];
    if (byte == '\n' && pending_[at - 1] == '\r') continue;
    key.text += byte == '\r' ? '\n' : byte;
  }
  pending_.erase(0, end + kPasteEnd.size());
  return key;
}

std::optional<Key> KeyDecoder::TakeCharacter(Pause pause) {
  const size_t bytes = CharacterBytes(static_cast<unsigned char>(pending_.front()));
  size_t good = 1;
  while (good < bytes && good < pending_.size() && IsContinuationByte(pending_[good])) ++good;
  if (bytes > 0 && good == bytes) return Cut(bytes, KeyKind::kText);
  const bool incomplete = bytes > 0 && good == pending_.size();
  if (incomplete && pause == Pause::kNo) return std::nullopt;
  return Cut(good, KeyKind::kUnknown);
}

}  // namespace kvant::tools
