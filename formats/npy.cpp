// NumPy files: the magic "\x93NUMPY", version {1, 0}, a 16-bit header length, the header (a Python
// dictionary literal, padded with spaces and closed by a newline so that the data begin at a
// multiple of 64), then the values.
#include "formats/npy.h"

#include <algorithm>
#include <bit>
#include <charconv>
#include <cstring>
#include <iterator>
#include <limits>
#include <optional>
#include <string_view>

#include "base/aligned_buffer.h"
#include "base/mapped_file.h"
#include "base/result.h"
#include "formats/quoted.h"
#include "quant/format.h"
#include "quant/formats/f16.h"

namespace kvant::formats {
namespace {

static_assert(std::endian::native == std::endian::little, "values are in the host's byte order");

constexpr std::string_view kNpyMagic = "\x93NUMPY";
constexpr size_t kPreambleBytes = 10;  // magic, version, header length
constexpr size_t kDataAlignment = 64;
constexpr std::string_view kFloat32 = "<f4";
constexpr std::string_view kFloat16 = "<f2";
constexpr std::string_view kFloat64 = "<f8";

// The types of values that the reader knows.
struct ValueType {
  std::string_view descr;
  size_t bytes;
};
constexpr ValueType kValueTypes[] = {{kFloat32, 4}, {kFloat16, 2}, {kFloat64, 8}};

// NumPy's own limit (64 since version 2.0).
constexpr size_t kNpyDimsMax = 64;

// The header's dictionary.
struct Header {
  std::string_view descr;
  bool fortran_order = false;
  std::vector<int64_t> shape;
};

// Reads the one form of dictionary that NumPy writes: the keys descr, fortran_order and shape, each
// once, in any order. Every method returns whether the text was as expected.
class HeaderParser {
 public:
  explicit HeaderParser(std::string_view text) : text_(text) {}

  bool Parse(Header& header) {
    bool has_descr = false;
    bool has_order = false;
    bool has_shape = false;
    if (!Skip("{")) return false;
    while (!Skip("}")) {
      std::string_view key;
      if (!String(key) || !Skip(":")) return false;
      if (key == "descr" && !has_descr) {
        has_descr = String(header.descr);
        if (!has_descr) return false;
      } else if (key == "fortran_order" && !has_order) {
        has_order = Boolean(header.fortran_order);
        if (!has_order) return false;
      } else if (key == "shape" && !has_shape) {
        has_shape = Tuple(header.shape);
        if (!has_shape) return false;
      } else {
        return false;
      }
      if (!Skip(",")) {
        if (!Skip("}")) return false;
        break;
      }
    }
    SkipSpaces();
    return has_descr && has_order && has_shape && text_ == "\n";
  }

 private:
  void SkipSpaces() {
    while (!text_.empty() && text_.front() == ' ') text_.remove_prefix(1);
  }
  bool Skip(std::string_view token) {
    SkipSpaces();
    if (!text_.starts_with(token)) return false;
    text_.remove_prefix(token.size());
    return true;
  }
  bool String(std::string_view& value) {
    if (!Skip("'")) return false;
    const size_t end = text_.find('\'');
    if (end == std::string_view::npos) return false;
    value = text_.substr(0, end);
    text_.remove_prefix(end + 1);
    return value.find('\\') == std::string_view::npos;
  }
  bool Boolean(bool& value) {
    value = Skip("True");
    return value || Skip("False");
  }
  bool Number(int64_t& value) {
    SkipSpaces();
    const auto [end, error] = std::from_chars(text_.data(), text_.data() + text_.size(), value);
    if (error != std::errc() || value < 0) return false;
    text_.remove_prefix(static_cast<size_t>(end - text_.data()));
    return true;
  }
  // "()", "(2,)", "(2, 3)" or "(2, 3,)".
  bool Tuple(std::vector<int64_t>& values) {
    if (!Skip("(")) return false;
    while (!Skip(")")) {
      if (values.size() == kNpyDimsMax || !Number(values.emplace_back())) return false;
      if (Skip(",")) continue;
      return values.size() > 1 && Skip(")");
    }
    return true;
  }

  std::string_view text_;
};

// The bytes of all values, or nothing where they exceed 2^63 - 1.
std::optional<int64_t> DataBytes(std::span<const int64_t> shape, int64_t bytes = sizeof(float)) {
  for (const int64_t size : shape) {
    if (__builtin_mul_overflow(bytes, size, &bytes)) return std::nullopt;
  }
  return bytes;
}

}  // namespace

Result<NpyWriter> NpyWriter::Create(const std::string& path, int64_t rows, int64_t columns) {
  const int64_t shape[] = {rows, columns};
  if (rows < 0 || columns < 1 || !DataBytes(shape)) {
    return MakeError(ErrorCode::kInvalid,
                     "{}: a matrix of {} rows and {} columns cannot be written", path, rows,
                     columns);
  }
  std::string header = fmt::format("{{'descr': '{}', 'fortran_order': False, 'shape': ({}, {}), }}",
                                   kFloat32, rows, columns);
  const size_t end = RoundUp(kPreambleBytes + header.size() + 1, kDataAlignment);
  header.resize(end - kPreambleBytes - 1, ' ');
  header += '\n';

  NpyWriter writer;
  writer.path_ = path;
  writer.rows_ = rows;
  writer.columns_ = columns;
  KVANT_ASSIGN(writer.file_, OutputFile::Create(path));
  const uint8_t version[2] = {1, 0};
  const uint16_t header_bytes = static_cast<uint16_t>(header.size());
  KVANT_TRY(writer.file_.Write(kNpyMagic.data(), kNpyMagic.size()));
  KVANT_TRY(writer.file_.Write(version, sizeof(version)));
  KVANT_TRY(writer.file_.Write(&header_bytes, sizeof(header_bytes)));
  KVANT_TRY(writer.file_.Write(header.data(), header.size()));
  return writer;
}

Status NpyWriter::WriteRows(std::span<const float> values) {
  const int64_t rows = static_cast<int64_t>(values.size()) / columns_;
  if (rows * columns_ != static_cast<int64_t>(values.size()) || rows > rows_ - rows_written_) {
    return MakeError(ErrorCode::kInvalid,
                     "{}: {} values are not whole rows of {} or more than the {} rows left", path_,
                     values.size(), columns_, rows_ - rows_written_);
  }
  rows_written_ += rows;
  return file_.Write(values.data(), values.size_bytes());
}

Status NpyWriter::Finish() {
  if (rows_written_ != rows_) {
    return MakeError(ErrorCode::kInvalid, "{}: only {} of {} rows are written", path_,
                     rows_written_, rows_);
  }
  return file_.Commit();
}

Result<NpyArray> NpyParse(std::span<const std::byte> bytes, const std::string& file) {
  const std::string_view text(reinterpret_cast<const char*>(bytes.data()), bytes.size());
  if (text.size() < kPreambleBytes || !text.starts_with(kNpyMagic)) {
    return MakeError(ErrorCode::kCorrupt, "{}: not a NumPy file", file);
  }
  const int major = static_cast<uint8_t>(text[kNpyMagic.size()]);
  const int minor = static_cast<uint8_t>(text[kNpyMagic.size() + 1]);
  if (major != 1 || minor != 0) {
    return MakeError(ErrorCode::kNotSupported,
                     "{}: NumPy format version {}.{} is not supported, expected 1.0", file, major,
                     minor);
  }
  uint16_t header_bytes = 0;
  std::memcpy(&header_bytes, bytes.data() + kPreambleBytes - sizeof(header_bytes),
              sizeof(header_bytes));
  const std::string_view header_text = text.substr(kPreambleBytes, header_bytes);
  Header header;
  if (header_text.size() != header_bytes || !HeaderParser(header_text).Parse(header)) {
    return MakeError(ErrorCode::kCorrupt, "{}: malformed NumPy header {}", file,
                     Quoted(header_text));
  }
  const auto type = std::ranges::find(kValueTypes, header.descr, &ValueType::descr);
  if (type == std::end(kValueTypes) || header.fortran_order) {
    return MakeError(ErrorCode::kNotSupported,
                     "{}: values of type {} in {} order, expected float32 ({}), float16 ({}) or "
                     "float64 ({}) in C order",
                     file, Quoted(header.descr), header.fortran_order ? "Fortran" : "C", kFloat32,
                     kFloat16, kFloat64);
  }
  const std::span<const std::byte> data = bytes.subspan(kPreambleBytes + header_bytes);
  const auto data_bytes = DataBytes(header.shape, static_cast<int64_t>(type->bytes));
  if (!data_bytes || static_cast<uint64_t>(*data_bytes) != data.size()) {
    return MakeError(ErrorCode::kCorrupt, "{}: {} bytes of values do not fill the shape ({})", file,
                     data.size(), fmt::join(header.shape, ", "));
  }
  NpyArray array{std::move(header.shape), std::vector<float>(data.size() / type->bytes)};
  if (data.empty()) return array;
  if (type->descr == kFloat16) {
    quant::FindFormat(quant::F16::kName)
        ->decode(data.data(), array.values.data(), std::ssize(array.values));
  } else if (type->descr == kFloat64) {
    for (size_t i = 0; i < array.values.size(); ++i) {
      double value = 0;
      std::memcpy(&value, data.data() + i * sizeof(value), sizeof(value));
      array.values[i] = static_cast<float>(value);
    }
  } else {
    std::memcpy(array.values.data(), data.data(), data.size());
  }
  return array;
}

Result<NpyArray> NpyRead(const std::string& path) {
  KVANT_ASSIGN(const MappedFile mapping, MappedFile::Open(path));
  return NpyParse(mapping.bytes(), path);
}

}  // namespace kvant::formats
