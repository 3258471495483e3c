#include "formats/sentencepiece.h"

#include <cmath>
#include <cstring>
#include <string_view>

#include "base/mapped_file.h"
#include "base/result.h"
#include "formats/quoted.h"

namespace kvant::formats {
namespace {

// Real files have up to 5 MB. A piece takes at least 5 bytes of the file and some 50 in memory.
constexpr size_t kSentencePieceBytesMax = size_t{64} << 20;

enum class WireType : uint32_t { kVarint = 0, kFixed64 = 1, kBytes = 2, kFixed32 = 5 };

// One field of a message: a number or a run of bytes, by its wire type.
struct Field {
  uint64_t number = 0;
  WireType type = WireType::kVarint;
  uint64_t value = 0;      // varint, fixed32 and fixed64
  std::string_view bytes;  // strings and messages
};

// Reads a message field by field. Ends at the first thing that is no field.
class MessageReader {
 public:
  explicit MessageReader(std::string_view bytes) : bytes_(bytes) {}

  bool at_end() const { return position_ == bytes_.size(); }

  bool Read(Field& field) {
    uint64_t tag = 0;
    if (!ReadVarint(tag)) return false;
    field.number = tag >> 3;
    field.type = static_cast<WireType>(tag & 7);
    if (field.number == 0) return false;
    switch (field.type) {
      case WireType::kVarint: return ReadVarint(field.value);
      case WireType::kFixed32: return ReadFixed(4, field.value);
      case WireType::kFixed64: return ReadFixed(8, field.value);
      case WireType::kBytes: {
        uint64_t size = 0;
        if (!ReadVarint(size) || size > bytes_.size() - position_) return false;
        field.bytes = bytes_.substr(position_, size);
        position_ += size;
        return true;
      }
    }
    return false;
  }

 private:
  bool ReadVarint(uint64_t& value) {
    value = 0;
    for (int shift = 0; shift < 64; shift += 7) {
      if (at_end()) return false;
      const auto byte = static_cast<unsigned char>(bytes_[position_++]);
      value |= uint64_t{byte & 0x7fu} << shift;
      if ((byte & 0x80) == 0) return true;
    }
    return false;
  }

  bool ReadFixed(size_t size, uint64_t& value) {
    if (size > bytes_.size() - position_) return false;
    value = 0;
    std::memcpy(&value, bytes_.data() + position_, size);
    position_ += size;
    return true;
  }

  std::string_view bytes_;
  size_t position_ = 0;
};

class SentencePieceParser {
 public:
  explicit SentencePieceParser(const std::string& file) : file_(file) {}

  Result<SentencePieceModel> Parse(std::string_view bytes) {
    KVANT_TRY(ForEachField(bytes, "the model", [&](const Field& field) -> Status {
      if (field.type != WireType::kBytes) return {};
      switch (field.number) {
        case 1: return ReadPiece(field.bytes);
        case 2: return ReadTrainerSpec(field.bytes);
        case 3: return ReadNormalizerSpec(field.bytes);
        case 5: return ReadDenormalizerSpec(field.bytes);
        default: return {};
      }
    }));
    if (model_.pieces.empty()) return Corrupt("no pieces in it: not a SentencePiece vocabulary");
    return std::move(model_);
  }

 private:
  template <class Visit>
  Status ForEachField(std::string_view bytes, std::string_view what, Visit visit) const {
    MessageReader reader(bytes);
    while (!reader.at_end()) {
      Field field;
      if (!reader.Read(field)) {
        return Corrupt("not a SentencePiece vocabulary: {} breaks off or has an unknown field type",
                       what);
      }
      KVANT_TRY(visit(field));
    }
    return {};
  }

  Status ReadPiece(std::string_view bytes) {
    SentencePiece piece;
    const std::string what = fmt::format("piece {}", model_.pieces.size());
    KVANT_TRY(ForEachField(bytes, what, [&](const Field& field) -> Status {
      if (field.number == 1 && field.type == WireType::kBytes) {
        piece.text = field.bytes;
      } else if (field.number == 2 && field.type == WireType::kFixed32) {
        std::memcpy(&piece.score, &field.value, sizeof(piece.score));
      } else if (field.number == 3 && field.type == WireType::kVarint) {
        if (field.value < 1 || field.value > 6) {
          return Corrupt("{} has type {}, expected 1 to 6", what, field.value);
        }
        piece.type = static_cast<SentencePiece::Type>(field.value);
      }
      return {};
    }));
    if (piece.text.empty()) return Corrupt("{} is empty", what);
    if (!std::isfinite(piece.score)) {
      return Corrupt("{} ({}) has the score {}", what, Quoted(piece.text), piece.score);
    }
    model_.pieces.push_back(std::move(piece));
    return {};
  }

  Status ReadTrainerSpec(std::string_view bytes) {
    return ForEachField(bytes, "the trainer's settings", [&](const Field& field) -> Status {
      if (field.type != WireType::kVarint) return {};
      const auto number = static_cast<int32_t>(static_cast<uint32_t>(field.value));
      switch (field.number) {
        case 3:
          if (number < 1 || number > 4) return Corrupt("model type {}, expected 1 to 4", number);
          model_.kind = static_cast<SentencePieceModel::Kind>(number);
          break;
        case 24: model_.whitespace_behind_words = number != 0; break;
        case 40: model_.unk_id = number; break;
        case 41: model_.bos_id = number; break;
        case 42: model_.eos_id = number; break;
        case 43: model_.pad_id = number; break;
        default: break;
      }
      return {};
    });
  }

  Status ReadNormalizerSpec(std::string_view bytes) {
    return ForEachField(bytes, "the normalizer's settings", [&](const Field& field) -> Status {
      const bool is_bytes = field.type == WireType::kBytes;
      if (field.number == 1 && is_bytes) model_.normalizer = field.bytes;
      if (field.number == 2 && is_bytes) model_.charsmap = field.bytes;
      if (field.type != WireType::kVarint) return {};
      if (field.number == 3) model_.add_dummy_prefix = field.value != 0;
      if (field.number == 4) model_.remove_extra_whitespaces = field.value != 0;
      if (field.number == 5) model_.escape_whitespaces = field.value != 0;
      return {};
    });
  }

  Status ReadDenormalizerSpec(std::string_view bytes) {
    return ForEachField(bytes, "the denormalizer's settings", [&](const Field& field) -> Status {
      const bool is_table = field.number == 2 && field.type == WireType::kBytes;
      if (is_table && !field.bytes.empty()) model_.denormalizes = true;
      return {};
    });
  }

  template <class... Args>
  Error Corrupt(fmt::format_string<Args...> format, Args&&... args) const {
    return MakeError(ErrorCode::kCorrupt, "{}: {}", file_,
                     fmt::format(format, std::forward<Args>(args)...));
  }

  const std::string& file_;
  SentencePieceModel model_;
};

}  // namespace

Result<SentencePieceModel> ParseSentencePiece(std::span<const std::byte> bytes,
                                              const std::string& file) {
  if (bytes.size() > kSentencePieceBytesMax) {
    return MakeError(ErrorCode::kCorrupt, "{}: the file has {} bytes, expected at most {}", file,
                     bytes.size(), kSentencePieceBytesMax);
  }
  return SentencePieceParser(file).Parse(
      {reinterpret_cast<const char*>(bytes.data()), bytes.size()});
}

Result<SentencePieceModel> ReadSentencePiece(const std::string& path) {
  KVANT_ASSIGN(const MappedFile file, MappedFile::Open(path));
  return ParseSentencePiece(file.bytes(), path);
}

}  // namespace kvant::formats
