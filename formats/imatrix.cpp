// Two parsers and two writers around one map of entries. What a file promises is checked against
// the bytes that remain before memory is taken for it.
#include "formats/imatrix.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <limits>

#include "base/mapped_file.h"
#include "base/result.h"
#include "formats/byte_cursor.h"
#include "formats/gguf_limits.h"
#include "formats/gguf_writer.h"
#include "formats/quoted.h"

namespace kvant::formats {
namespace {

static_assert(std::endian::native == std::endian::little, "numbers are in the host's byte order");

constexpr std::string_view kGgufMagic = "GGUF";
constexpr std::string_view kTypeKey = "general.type";
constexpr std::string_view kTypeName = "imatrix";
constexpr std::string_view kDatasetsKey = "imatrix.datasets";
constexpr std::string_view kChunkCountKey = "imatrix.chunk_count";
constexpr std::string_view kChunkSizeKey = "imatrix.chunk_size";
constexpr std::string_view kSumsSuffix = ".in_sum2";
constexpr std::string_view kCountsSuffix = ".counts";

// Length, one byte of name, calls, number of values, one value.
constexpr uint64_t kDatEntryBytesMin = 4 + 1 + 4 + 4 + 4;

// Beyond this a float no longer holds every integer; no text has as many rows by far.
constexpr double kCountMax = 9e15;

template <class... Args>
Error Corrupt(const std::string& file, fmt::format_string<Args...> format, Args&&... args) {
  return MakeError(ErrorCode::kCorrupt, "{}: {}", file,
                   fmt::format(format, std::forward<Args>(args)...));
}

// A mean or sum of squares is finite and not negative.
Status CheckSquare(const std::string& file, std::string_view entry, size_t index, float value) {
  if (std::isfinite(value) && value >= 0) return {};
  return Corrupt(file, "entry {}: value {} is {}, expected a finite number of at least 0",
                 Quoted(entry), index, value);
}

// ---- The dat form ------------------------------------------------------------------------------

class DatParser {
 public:
  DatParser(std::span<const std::byte> bytes, const std::string& file)
      : cursor_(bytes), file_(file) {}

  Result<Imatrix> Parse() {
    int32_t count = 0;
    if (!cursor_.Read(count)) return EndsInside("the number of entries");
    if (count < 1 || static_cast<uint64_t>(count) > cursor_.remaining() / kDatEntryBytesMin) {
      return Corrupt(file_,
                     "no importance matrix: its first bytes would be the number of entries, {}, "
                     "expected from 1 to the {} that fit into it",
                     count, cursor_.remaining() / kDatEntryBytesMin);
    }
    imatrix_.rows_known = false;
    for (int32_t i = 0; i < count; ++i) KVANT_TRY(ReadEntry(i));
    KVANT_TRY(ReadOrigin());
    return std::move(imatrix_);
  }

 private:
  Status ReadEntry(int32_t index) {
    std::string_view name;
    if (!cursor_.ReadString<uint32_t>(name)) {
      return EndsInside(fmt::format("the name of entry {}", index));
    }
    if (name.empty() || name.size() > kTensorNameBytesMax) {
      return Corrupt(file_, "the name of entry {} has {} bytes, expected 1 to {}", index,
                     name.size(), kTensorNameBytesMax);
    }
    int32_t calls = 0;
    int32_t count = 0;
    if (!cursor_.Read(calls) || !cursor_.Read(count)) return EndsInside("entry", name);
    if (calls < 0 || count < 1) {
      return Corrupt(file_, "entry {}: expected at least 0 calls and 1 value, found {} and {}",
                     Quoted(name), calls, count);
    }
    const std::byte* data = cursor_.Take(static_cast<uint64_t>(count) * sizeof(float));
    if (data == nullptr) return EndsInside("the values of entry", name);
    const auto [position, added] = imatrix_.entries.try_emplace(std::string(name));
    if (!added) return Corrupt(file_, "entry {} appears more than once", Quoted(name));
    // The values are means times calls. Old files with 0 calls hold the means themselves.
    ImatrixEntry& entry = position->second;
    entry.sums.resize(static_cast<size_t>(count));
    for (size_t i = 0; i < entry.sums.size(); ++i) {
      float value = 0;
      std::memcpy(&value, data + i * sizeof(float), sizeof(float));
      KVANT_TRY(CheckSquare(file_, name, i, value));
      entry.sums[i] = static_cast<double>(value) * kImatrixChunkRows;
    }
    entry.counts = {int64_t{std::max(calls, 1)} * kImatrixChunkRows};
    return {};
  }

  Status ReadOrigin() {
    if (cursor_.remaining() == 0) return {};
    int32_t chunks = 0;
    std::string_view dataset;
    if (!cursor_.Read(chunks) || !cursor_.ReadString<uint32_t>(dataset)) {
      return EndsInside("the name of the dataset");
    }
    if (chunks < 0) return Corrupt(file_, "expected at least 0 chunks, found {}", chunks);
    if (cursor_.remaining() > 0) {
      return Corrupt(file_, "{} bytes follow the last entry and the name of the dataset",
                     cursor_.remaining());
    }
    imatrix_.chunk_count = static_cast<uint32_t>(chunks);
    if (!dataset.empty()) imatrix_.datasets.emplace_back(dataset);
    return {};
  }

  Error EndsInside(std::string_view what) const {
    return Corrupt(file_, "the importance matrix ends inside {}", what);
  }
  Error EndsInside(std::string_view what, std::string_view name) const {
    return EndsInside(fmt::format("{} {}", what, Quoted(name)));
  }

  ByteCursor cursor_;
  const std::string& file_;
  Imatrix imatrix_;
};

Status PutInt(OutputFile& out, const std::string& path, std::string_view what, uint64_t number) {
  if (number > static_cast<uint64_t>(std::numeric_limits<int32_t>::max())) {
    return MakeError(ErrorCode::kInvalid,
                     "{}: {} is {}, more than the dat form of an importance matrix can hold", path,
                     what, number);
  }
  const uint32_t stored = static_cast<uint32_t>(number);
  return out.Write(&stored, sizeof(stored));
}

Status PutText(OutputFile& out, const std::string& path, std::string_view text) {
  KVANT_TRY(PutInt(out, path, "the length of a name", text.size()));
  return out.Write(text.data(), text.size());
}

using NamedEntry = std::pair<std::string_view, const ImatrixEntry*>;

Status WriteDat(const Imatrix& imatrix, std::span<const NamedEntry> entries,
                const std::string& path) {
  KVANT_ASSIGN(OutputFile out, OutputFile::Create(path));
  KVANT_TRY(PutInt(out, path, "the number of entries", entries.size()));
  const int64_t chunk_rows = std::max<uint32_t>(imatrix.chunk_size, 1);
  for (const auto& [name, entry] : entries) {
    // Rounded up, so that a few rows are one call and not none.
    const int64_t rows = *std::max_element(entry->counts.begin(), entry->counts.end());
    const uint64_t calls = static_cast<uint64_t>((rows + chunk_rows - 1) / chunk_rows);
    const size_t columns = entry->sums.size() / entry->counts.size();
    std::vector<float> values(entry->sums.size());
    for (size_t i = 0; i < values.size(); ++i) {
      const int64_t count = entry->counts[i / columns];
      const double mean = count > 0 ? entry->sums[i] / static_cast<double>(count) : 1.0;
      values[i] = static_cast<float>(mean * static_cast<double>(calls));
    }
    KVANT_TRY(PutText(out, path, name));
    KVANT_TRY(PutInt(out, path, "the number of calls", calls));
    KVANT_TRY(PutInt(out, path, "the number of values", values.size()));
    KVANT_TRY(out.Write(values.data(), values.size() * sizeof(float)));
  }
  KVANT_TRY(PutInt(out, path, "the number of chunks", imatrix.chunk_count));
  KVANT_TRY(PutText(out, path, imatrix.datasets.empty() ? "" : imatrix.datasets.back()));
  return out.Commit();
}

// ---- The gguf form -----------------------------------------------------------------------------

const quant::FormatTraits& Float32() { return *quant::FindFormat("F32"); }

// The values of a float tensor, which may be misaligned in a file that lies in memory.
Result<std::vector<float>> FloatValues(const GgufFile& file, const GgufTensor& tensor) {
  if (tensor.format != &Float32()) {
    return Corrupt(file.path(), "tensor {} has type {}, expected F32", Quoted(tensor.name),
                   tensor.format->name);
  }
  std::vector<float> values(static_cast<size_t>(tensor.n_values()));
  std::memcpy(values.data(), tensor.data, tensor.size_bytes);
  return values;
}

Result<ImatrixEntry> GgufEntry(const GgufFile& file, std::string_view name,
                               const GgufTensor& sums_tensor) {
  const GgufTensor* counts_tensor = file.FindTensor(std::string(name) + std::string(kCountsSuffix));
  if (counts_tensor == nullptr) {
    return Corrupt(file.path(), "entry {} has sums but no tensor {}{}", Quoted(name), name,
                   kCountsSuffix);
  }
  KVANT_ASSIGN(const std::vector<float> sums, FloatValues(file, sums_tensor));
  KVANT_ASSIGN(const std::vector<float> counts, FloatValues(file, *counts_tensor));
  if (sums.size() % counts.size() != 0) {
    return Corrupt(file.path(), "entry {} has {} sums for {} counts", Quoted(name), sums.size(),
                   counts.size());
  }
  ImatrixEntry entry;
  entry.sums.assign(sums.begin(), sums.end());
  for (size_t i = 0; i < sums.size(); ++i) KVANT_TRY(CheckSquare(file.path(), name, i, sums[i]));
  for (const float count : counts) {
    if (!(count >= 0 && count <= kCountMax)) {
      return Corrupt(file.path(),
                     "entry {} has the count {}, expected a finite number of at least 0",
                     Quoted(name), count);
    }
    entry.counts.push_back(std::llround(count));
  }
  return entry;
}

Result<Imatrix> FromGguf(const GgufFile& file) {
  KVANT_ASSIGN(const auto type, file.GetString(kTypeKey));
  if (type != kTypeName) {
    return Corrupt(file.path(), "{} is {}, expected \"{}\": this GGUF file is no importance matrix",
                   kTypeKey, type.has_value() ? Quoted(*type) : "absent", kTypeName);
  }
  Imatrix imatrix;
  KVANT_ASSIGN(const GgufArray* datasets, file.GetArray(kDatasetsKey, GgufType::kString));
  if (datasets != nullptr) {
    imatrix.datasets.assign(datasets->strings.begin(), datasets->strings.end());
  }
  KVANT_ASSIGN(const auto chunk_count, file.GetU32(kChunkCountKey));
  KVANT_ASSIGN(const auto chunk_size, file.GetU32(kChunkSizeKey));
  imatrix.chunk_count = chunk_count.value_or(0);
  imatrix.chunk_size = std::max<uint32_t>(chunk_size.value_or(kImatrixChunkRows), 1);
  for (const GgufTensor& tensor : file.tensors()) {
    if (tensor.name.ends_with(kSumsSuffix)) {
      const std::string name(tensor.name.substr(0, tensor.name.size() - kSumsSuffix.size()));
      KVANT_ASSIGN(imatrix.entries[name], GgufEntry(file, name, tensor));
    } else if (tensor.name.ends_with(kCountsSuffix)) {
      const std::string name(tensor.name.substr(0, tensor.name.size() - kCountsSuffix.size()));
      if (file.FindTensor(name + std::string(kSumsSuffix)) == nullptr) {
        return Corrupt(file.path(), "entry {} has counts but no tensor {}{}", Quoted(name), name,
                       kSumsSuffix);
      }
    }
    // Other tensors, such as plain sums (.in_sum), serve other purposes than quantization.
  }
  if (imatrix.entries.empty()) return Corrupt(file.path(), "the importance matrix has no entries");
  return imatrix;
}

Status WriteGguf(const Imatrix& imatrix, std::span<const NamedEntry> entries,
                 const std::string& path) {
  GgufWriter writer;
  writer.AddString(std::string(kTypeKey), kTypeName);
  writer.AddStrings(std::string(kDatasetsKey), imatrix.datasets);
  writer.AddU32(std::string(kChunkCountKey), imatrix.chunk_count);
  writer.AddU32(std::string(kChunkSizeKey), imatrix.chunk_size);
  for (const auto& [name, entry] : entries) {
    const int64_t matrices = static_cast<int64_t>(entry->counts.size());
    const int64_t columns = static_cast<int64_t>(entry->sums.size()) / matrices;
    const int64_t sums_dims[] = {columns, matrices};
    const int64_t counts_dims[] = {1, matrices};
    KVANT_TRY(writer.AddTensor(std::string(name) + std::string(kSumsSuffix), Float32(), sums_dims));
    KVANT_TRY(
        writer.AddTensor(std::string(name) + std::string(kCountsSuffix), Float32(), counts_dims));
  }
  KVANT_TRY(writer.Begin(path));
  for (const auto& [name, entry] : entries) {
    const std::vector<float> sums(entry->sums.begin(), entry->sums.end());
    const std::vector<float> counts(entry->counts.begin(), entry->counts.end());
    KVANT_TRY(writer.WriteTensor(std::as_bytes(std::span(sums))));
    KVANT_TRY(writer.WriteTensor(std::as_bytes(std::span(counts))));
  }
  return writer.Finish();
}

// The counts of `entry` for `matrices` matrices.
std::vector<int64_t> Spread(const ImatrixEntry& entry, size_t matrices) {
  if (entry.counts.size() == matrices) return entry.counts;
  return std::vector<int64_t>(matrices, entry.counts[0]);
}

}  // namespace

Result<std::vector<float>> Imatrix::Importance(const GgufTensor& tensor) const {
  const auto found = entries.find(tensor.name);
  if (found == entries.end()) return std::vector<float>();
  const ImatrixEntry& entry = found->second;
  const int64_t matrices = tensor.dims[2] * tensor.dims[3];
  const int64_t counts = static_cast<int64_t>(entry.counts.size());
  if (static_cast<int64_t>(entry.sums.size()) != matrices * tensor.dims[0] ||
      (counts != 1 && counts != matrices)) {
    return MakeError(ErrorCode::kInvalid,
                     "tensor {}: expected an importance matrix of {} values, one for each column, "
                     "found {}; it belongs to another model",
                     Quoted(tensor.name), matrices * tensor.dims[0], entry.sums.size());
  }
  const size_t columns = entry.sums.size() / entry.counts.size();
  std::vector<float> means(entry.sums.size());
  for (size_t i = 0; i < means.size(); ++i) {
    const int64_t count = entry.counts[i / columns];
    means[i] = count > 0 ? static_cast<float>(entry.sums[i] / static_cast<double>(count)) : 1.0f;
  }
  return means;
}

Status Imatrix::Merge(const Imatrix& other) {
  for (const auto& [name, entry] : other.entries) {
    const auto mine = entries.find(name);
    if (mine == entries.end()) continue;
    const ImatrixEntry& have = mine->second;
    const bool counts_fit = have.counts.size() == entry.counts.size() || have.counts.size() == 1 ||
                            entry.counts.size() == 1;
    if (have.sums.size() == entry.sums.size() && counts_fit) continue;
    return MakeError(ErrorCode::kInvalid,
                     "importance matrix entry {}: {} values and {} counts do not go with {} and "
                     "{}; they belong to different models",
                     Quoted(name), entry.sums.size(), entry.counts.size(), have.sums.size(),
                     have.counts.size());
  }
  for (const auto& [name, entry] : other.entries) {
    const auto [position, added] = entries.try_emplace(name, entry);
    if (added) continue;
    ImatrixEntry& mine = position->second;
    const size_t matrices = std::max(mine.counts.size(), entry.counts.size());
    mine.counts = Spread(mine, matrices);
    const std::vector<int64_t> counts = Spread(entry, matrices);
    for (size_t i = 0; i < matrices; ++i) mine.counts[i] += counts[i];
    for (size_t i = 0; i < mine.sums.size(); ++i) mine.sums[i] += entry.sums[i];
  }
  for (const std::string& dataset : other.datasets) {
    if (std::find(datasets.begin(), datasets.end(), dataset) == datasets.end()) {
      datasets.push_back(dataset);
    }
  }
  chunk_count += other.chunk_count;
  rows_known = rows_known && other.rows_known;
  return {};
}

Result<Imatrix> ParseImatrix(std::span<const std::byte> bytes, const std::string& name) {
  const std::string_view text(reinterpret_cast<const char*>(bytes.data()), bytes.size());
  if (text.empty()) return Corrupt(name, "the file is empty, expected an importance matrix");
  if (!text.starts_with(kGgufMagic)) return DatParser(bytes, name).Parse();
  KVANT_ASSIGN(const GgufFile file, GgufFile::Parse(bytes, name));
  return FromGguf(file);
}

Result<Imatrix> ReadImatrix(const std::string& path) {
  KVANT_ASSIGN(const MappedFile mapping, MappedFile::Open(path));
  return ParseImatrix(mapping.bytes(), path);
}

Status WriteImatrix(const Imatrix& imatrix, const std::string& path, ImatrixForm form) {
  std::vector<NamedEntry> entries;
  for (const auto& [name, entry] : imatrix.entries) {
    const bool any =
        std::any_of(entry.counts.begin(), entry.counts.end(), [](int64_t n) { return n > 0; });
    if (any && !entry.sums.empty()) entries.emplace_back(name, &entry);
  }
  if (entries.empty()) {
    return MakeError(ErrorCode::kInvalid, "{}: the importance matrix has no entries to write",
                     path);
  }
  return form == ImatrixForm::kDat ? WriteDat(imatrix, entries, path)
                                   : WriteGguf(imatrix, entries, path);
}

}  // namespace kvant::formats
