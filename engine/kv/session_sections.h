// Sections of a session file (session_file.h): bytes that are followed by their XXH64.
#pragma once

#include <cstdint>
#include <cstring>
#include <span>
#include <string>
#include <type_traits>
#include <vector>

#include <fmt/format.h>
#include <xxhash.h>

#include "base/output_file.h"
#include "base/result.h"

namespace kvant::kv {

// Collects a section's bytes and writes them with their hash.
class SectionWriter {
 public:
  explicit SectionWriter(OutputFile& file) : file_(file) {}

  template <class T>
  void Put(T value) {
    static_assert(std::is_arithmetic_v<T>);
    PutBytes(&value, sizeof value);
  }
  void PutBytes(const void* data, size_t size) {
    const auto* bytes = static_cast<const std::byte*>(data);
    bytes_.insert(bytes_.end(), bytes, bytes + size);
  }
  Status End() {
    const uint64_t hash = XXH64(bytes_.data(), bytes_.size(), 0);
    KVANT_TRY(file_.Write(bytes_));
    KVANT_TRY(file_.Write(&hash, sizeof hash));
    bytes_.clear();
    return {};
  }

 private:
  OutputFile& file_;
  std::vector<std::byte> bytes_;
};

// Reads a section's values, never beyond the end of the file; End compares the hash. Anyone can
// compute the hash, so the values may be anything even where it is right.
class SectionReader {
 public:
  SectionReader(std::span<const std::byte> bytes, std::string path)
      : bytes_(bytes), path_(std::move(path)) {}

  const std::string& path() const { return path_; }

  template <class T>
  Status Get(T* value) {
    return GetBytes(value, sizeof *value);
  }
  Status GetBytes(void* data, size_t size) {
    const std::byte* from = nullptr;
    KVANT_TRY(GetSpan(size, &from));
    if (size > 0) std::memcpy(data, from, size);
    return {};
  }
  // The next bytes where they lie in the file.
  Status GetSpan(size_t size, const std::byte** data) {
    if (size > left()) {
      return Corrupt(
          fmt::format("ends at byte {}, {} more are expected", bytes_.size(), size - left()));
    }
    *data = bytes_.data() + at_;
    at_ += size;
    return {};
  }
  // A count of things that take at least `bytes_each` each, so that it is bounded by the file.
  Status GetCount(const char* what, size_t bytes_each, uint32_t* count) {
    KVANT_TRY(Get(count));
    if (*count > left() / bytes_each) {
      return Corrupt(fmt::format("{}: expected at most {}, for which there are bytes, found {}",
                                 what, left() / bytes_each, *count));
    }
    return {};
  }
  Status End(const char* section) {
    const uint64_t expected = XXH64(bytes_.data() + begin_, at_ - begin_, 0);
    uint64_t hash = 0;
    KVANT_TRY(Get(&hash));
    if (hash != expected) {
      return Corrupt(fmt::format("the {} is damaged: expected the hash {:016x}, found {:016x}",
                                 section, expected, hash));
    }
    begin_ = at_;
    return {};
  }
  size_t left() const { return bytes_.size() - at_; }

  Error Corrupt(const std::string& reason) const {
    return MakeError(ErrorCode::kCorrupt, "{}: session file: {}", path_, reason);
  }

 private:
  std::span<const std::byte> bytes_;
  std::string path_;
  size_t begin_ = 0;
  size_t at_ = 0;
};

}  // namespace kvant::kv
