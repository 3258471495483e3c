#include "tools/embed/vector_output.h"

#include <fmt/format.h>

#include <bit>
#include <utility>

#include "base/result.h"

namespace kvant::tools {
namespace {

static_assert(std::endian::native == std::endian::little, "numbers are in the host's byte order");

// The shortest decimal that reads back as the number.
void AppendNumbers(std::span<const float> values, std::string& text) {
  text += '[';
  for (const float value : values) {
    if (text.back() != '[') text += ',';
    fmt::format_to(std::back_inserter(text), "{}", value);
  }
  text += ']';
}

std::string_view BytesOf(std::span<const float> values) {
  return {reinterpret_cast<const char*>(values.data()), values.size_bytes()};
}

}  // namespace

Status ParseVectorFormat(const std::string& text, std::optional<VectorFormat>* format) {
  constexpr std::pair<std::string_view, VectorFormat> kFormats[] = {
      {"npy", VectorFormat::kNpy}, {"jsonl", VectorFormat::kJsonl}, {"raw", VectorFormat::kRaw}};
  for (const auto& [name, value] : kFormats) {
    if (text == name) *format = value;
    if (text == name) return {};
  }
  return MakeError(ErrorCode::kInvalid, "expected npy, jsonl or raw, found '{}'", Visible(text));
}

Result<VectorOutput> VectorOutput::Create(VectorFormat format, const std::string& path,
                                          int64_t rows, int64_t columns) {
  VectorOutput output(format, columns);
  if (format == VectorFormat::kNpy) {
    if (path.empty()) {
      return MakeError(ErrorCode::kInvalid, "--format npy: expected a file with it, -o FILE");
    }
    KVANT_ASSIGN(output.npy_, formats::NpyWriter::Create(path, rows, columns));
  } else if (!path.empty()) {
    KVANT_ASSIGN(output.file_, OutputFile::Create(path));
  }
  return output;
}

Status VectorOutput::WriteBytes(std::string_view bytes) {
  if (file_.has_value()) return file_->Write(bytes.data(), bytes.size());
  stream_.Write(bytes);
  return {};
}

Status VectorOutput::Write(int64_t text, const std::optional<Json>& id, std::span<const float> rows,
                           VectorsOfText vectors) {
  if (npy_.has_value()) return npy_->WriteRows(rows);
  if (format_ == VectorFormat::kRaw) return WriteBytes(BytesOf(rows));
  std::string line = fmt::format("{{\"index\":{}", text);
  if (id.has_value()) line += ",\"id\":" + Dump(*id);
  if (vectors == VectorsOfText::kOne) {
    line += ",\"embedding\":";
    AppendNumbers(rows, line);
  } else {
    line += ",\"embeddings\":[";
    for (int64_t first = 0; first < std::ssize(rows); first += columns_) {
      if (first > 0) line += ',';
      AppendNumbers(rows.subspan(static_cast<size_t>(first), static_cast<size_t>(columns_)), line);
    }
    line += ']';
  }
  return WriteBytes(line + "}\n");
}

Status VectorOutput::Finish() {
  if (npy_.has_value()) return npy_->Finish();
  return file_.has_value() ? file_->Commit() : Status();
}

}  // namespace kvant::tools
