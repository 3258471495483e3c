#include "engine/evaluate/logit_file.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <limits>

#include "base/check.h"
#include "base/result.h"

namespace kvant::evaluate {
namespace {

static_assert(std::endian::native == std::endian::little, "numbers are in the host's byte order");

constexpr char kUint16Magic[] = "_logits_";
constexpr char kFloat32Magic[] = "_kvlogit";
constexpr size_t kMagicBytes = 8;
constexpr size_t kHeaderBytes = kMagicBytes + 3 * sizeof(int32_t);

// Codes reach this many nats below the likeliest token. Less likely tokens are stored as if they
// lay at that distance, and a divergence leaves them out.
constexpr float kUint16Range = 16.0f;
constexpr float kCodeMax = 65535.0f;
constexpr size_t kScaleBytes = 2 * sizeof(float);

size_t RowBytes(LogitRows rows, int64_t vocab) {
  const size_t count = static_cast<size_t>(vocab);
  if (rows == LogitRows::kFloat32) return count * sizeof(float);
  return kScaleBytes + (count + count % 2) * sizeof(uint16_t);
}

void EncodeUint16(const Distribution& d, std::byte* out) {
  const float largest = d.logits[static_cast<size_t>(d.top)];
  const float smallest = *std::min_element(d.logits.begin(), d.logits.end());
  const float lowest = std::max(smallest, largest - kUint16Range);
  const float scale = (largest - lowest) / kCodeMax;
  const float offset = static_cast<float>(lowest - d.log_sum);
  std::memcpy(out, &scale, sizeof(scale));
  std::memcpy(out + sizeof(scale), &offset, sizeof(offset));
  const float per_step = scale > 0 ? 1 / scale : 0;
  for (size_t i = 0; i < d.logits.size(); ++i) {
    const float steps = per_step * (d.logits[i] - lowest);
    const uint16_t code =
        steps > 0 ? static_cast<uint16_t>(std::min(std::nearbyint(steps), kCodeMax)) : uint16_t{0};
    std::memcpy(out + kScaleBytes + i * sizeof(code), &code, sizeof(code));
  }
}

void DecodeUint16(const std::byte* row, std::span<float> log_probs) {
  float scale = 0;
  float offset = 0;
  std::memcpy(&scale, row, sizeof(scale));
  std::memcpy(&offset, row + sizeof(scale), sizeof(offset));
  for (size_t i = 0; i < log_probs.size(); ++i) {
    uint16_t code = 0;
    std::memcpy(&code, row + kScaleBytes + i * sizeof(code), sizeof(code));
    log_probs[i] = scale * code + offset;
  }
}

}  // namespace

Result<LogitFile> LogitFile::Open(const std::string& path) {
  LogitFile file;
  KVANT_ASSIGN(file.mapping_, MappedFile::Open(path));
  KVANT_TRY(file.ReadHeader(path));
  return file;
}

Status LogitFile::ReadHeader(const std::string& path) {
  const std::span<const std::byte> bytes = mapping_.bytes();
  const auto has_magic = [&](const char* magic) {
    return bytes.size() >= kMagicBytes && std::memcmp(bytes.data(), magic, kMagicBytes) == 0;
  };
  if (!has_magic(kUint16Magic) && !has_magic(kFloat32Magic)) {
    return MakeError(ErrorCode::kCorrupt,
                     "{}: not a file of logits: expected it to start with {} or {}", path,
                     kFloat32Magic, kUint16Magic);
  }
  row_kind_ = has_magic(kUint16Magic) ? LogitRows::kUint16 : LogitRows::kFloat32;
  if (bytes.size() < kHeaderBytes) {
    return MakeError(ErrorCode::kCorrupt, "{}: the file ends inside the header", path);
  }
  int32_t numbers[3];
  std::memcpy(numbers, bytes.data() + kMagicBytes, sizeof(numbers));
  const auto [size, vocab, windows] = numbers;
  if (size < 4 || vocab < 1 || windows < 1) {
    return MakeError(ErrorCode::kCorrupt,
                     "{}: expected windows of at least 4 tokens, a vocabulary and a window, found "
                     "{}, {} and {}",
                     path, size, vocab, windows);
  }
  window_size_ = size;
  vocab_ = vocab;
  windows_ = windows;
  // Fits 64 bits: at most 2^30 rows of 2^33 bytes, and 2^33 bytes of tokens.
  const uint64_t window_bytes =
      static_cast<uint64_t>(size) * sizeof(TokenId) +
      static_cast<uint64_t>(rows_per_window()) * RowBytes(row_kind_, vocab);
  const uint64_t body_bytes = bytes.size() - kHeaderBytes;
  if (body_bytes / window_bytes != static_cast<uint64_t>(windows) ||
      body_bytes % window_bytes != 0) {
    return MakeError(ErrorCode::kCorrupt,
                     "{}: {} windows of {} tokens and {} logits a row do not fill the {} bytes "
                     "after the header; the file is cut off or damaged",
                     path, windows, size, vocab, body_bytes);
  }
  tokens_.resize(static_cast<size_t>(windows_ * window_size_));
  std::memcpy(tokens_.data(), bytes.data() + kHeaderBytes, tokens_.size() * sizeof(TokenId));
  const auto wrong = std::find_if(tokens_.begin(), tokens_.end(),
                                  [&](TokenId id) { return id < 0 || id >= vocab; });
  if (wrong != tokens_.end()) {
    return MakeError(ErrorCode::kCorrupt, "{}: token {}: expected an id from 0 to {}, found {}",
                     path, wrong - tokens_.begin(), vocab - 1, *wrong);
  }
  rows_ = bytes.data() + kHeaderBytes + tokens_.size() * sizeof(TokenId);
  return {};
}

double LogitFile::floor() const {
  return row_kind_ == LogitRows::kUint16 ? -double{kUint16Range}
                                         : -std::numeric_limits<double>::infinity();
}

Distribution LogitFile::Row(int64_t window, int64_t row, std::vector<float>& buffer) const {
  KVANT_CHECK(window >= 0 && window < windows_ && row >= 0 && row < rows_per_window());
  const size_t index = static_cast<size_t>(window * rows_per_window() + row);
  const std::byte* data = rows_ + index * RowBytes(row_kind_, vocab_);
  buffer.resize(static_cast<size_t>(vocab_));
  if (row_kind_ == LogitRows::kFloat32) {
    std::memcpy(buffer.data(), data, buffer.size() * sizeof(float));
    return Normalize(buffer);
  }
  DecodeUint16(data, buffer);
  const auto top = std::max_element(buffer.begin(), buffer.end());
  return {buffer, 0.0, static_cast<TokenId>(top - buffer.begin())};
}

Result<LogitFileWriter> LogitFileWriter::Create(const std::string& path, const Windows& windows,
                                                int64_t vocab, LogitRows rows) {
  if (windows.strided()) {
    return MakeError(ErrorCode::kInvalid, "{}: logits of strided windows cannot be saved", path);
  }
  LogitFileWriter writer;
  writer.row_kind_ = rows;
  writer.row_bytes_ = RowBytes(rows, vocab);
  writer.rows_.resize(static_cast<size_t>(windows.rows()) * writer.row_bytes_);
  KVANT_ASSIGN(writer.file_, OutputFile::Create(path));
  const int32_t numbers[] = {static_cast<int32_t>(windows.size()), static_cast<int32_t>(vocab),
                             static_cast<int32_t>(windows.count())};
  const auto tokens = windows.tokens().first(static_cast<size_t>(windows.size() * windows.count()));
  KVANT_TRY(
      writer.file_.Write(rows == LogitRows::kUint16 ? kUint16Magic : kFloat32Magic, kMagicBytes));
  KVANT_TRY(writer.file_.Write(numbers, sizeof(numbers)));
  KVANT_TRY(writer.file_.Write(tokens.data(), tokens.size_bytes()));
  return writer;
}

void LogitFileWriter::SetRow(int64_t row, const Distribution& distribution) {
  std::byte* out = rows_.data() + static_cast<size_t>(row) * row_bytes_;
  if (row_kind_ == LogitRows::kUint16) {
    EncodeUint16(distribution, out);
  } else {
    std::memcpy(out, distribution.logits.data(), distribution.logits.size_bytes());
  }
}

Status LogitFileWriter::FinishWindow() { return file_.Write(rows_); }

Status LogitFileWriter::Finish() { return file_.Commit(); }

}  // namespace kvant::evaluate
