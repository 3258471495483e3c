// GgufFile: joins the shards of a model into one list of tensors and answers look-ups.
#include "formats/gguf.h"

#include <cstring>
#include <filesystem>
#include <iterator>
#include <system_error>
#include <utility>

#include "base/check.h"
#include "base/result.h"
#include "formats/gguf_shard.h"
#include "formats/gguf_split.h"
#include "formats/gguf_value.h"
#include "formats/name_index.h"
#include "formats/quoted.h"
#include "formats/unpack_interleaved.h"
#include "quant/interleaved/interleaved.h"
#include "quant/unsupported_types.h"

namespace kvant::formats {

struct GgufFile::State {
  std::string path;
  std::shared_ptr<const std::vector<MappedFile>> mappings;  // empty after Parse
  uint64_t file_bytes = 0;
  int shards = 1;
  GgufShard model;  // the first shard, with the tensors of the others appended
  NameIndex keys;
  NameIndex tensor_names;
  // The bytes of replaced tensors.
  std::vector<std::shared_ptr<const AlignedBuffer>> replaced;
  UnpackedTensors unpacked;

  // Takes the tensors of the shard with this number.
  void Append(GgufShard shard, uint32_t number);
  Status BuildIndexes();
};

namespace {

// The tables of n-grams have tens of GiB, those with a row for each token a few.
constexpr uint64_t kScatteredBytesMin = uint64_t{8} << 30;

struct OpenShard {
  MappedFile mapping;
  GgufShard shard;
  SplitInfo split;
};

// Where the tables of a shard lie that are left on the disk.
std::vector<FilePart> ScatteredParts(const OpenShard& opened) {
  std::vector<FilePart> parts;
  for (const GgufTensor& tensor : opened.shard.tensors) {
    if (!IsScatteredTable(tensor)) continue;
    parts.push_back({static_cast<size_t>(tensor.data - opened.mapping.bytes().data()),
                     static_cast<size_t>(tensor.size_bytes)});
  }
  return parts;
}

Result<OpenShard> OpenShardFile(const std::string& path, FileAccess access,
                                UnreadableTensors unreadable, const ReadProgress& progress) {
  OpenShard opened;
  std::error_code error;
  const auto bytes = std::filesystem::file_size(path, error);
  if (access == FileAccess::kMap || error || bytes < kScatteredBytesMin) {
    KVANT_ASSIGN(opened.mapping, MappedFile::Open(path, access, progress));
  } else {
    // A mapping says where such tables lie before anything is read.
    KVANT_ASSIGN(opened.mapping, MappedFile::Open(path));
    KVANT_ASSIGN(opened.shard, ParseGgufShard(opened.mapping.bytes(), path, unreadable));
    const std::vector<FilePart> scattered = ScatteredParts(opened);
    KVANT_ASSIGN(opened.mapping, MappedFile::Open(path, access, progress, scattered));
  }
  KVANT_ASSIGN(opened.shard, ParseGgufShard(opened.mapping.bytes(), path, unreadable));
  opened.mapping.Scatter(ScatteredParts(opened));
  KVANT_ASSIGN(opened.split, ReadSplitInfo(opened.shard, path));
  return opened;
}

// The name of a shard must say what its metadata says, because the other names follow from it.
Result<SplitName> CheckedSplitName(const std::string& path, const SplitInfo& split) {
  const auto name = ParseSplitName(path);
  if (name && name->number == split.number && name->count == split.count) return *name;
  return MakeError(ErrorCode::kInvalid,
                   "{}: the file is shard {} of {} of a split model, but its name does not end in "
                   "{}",
                   path, split.number + 1, split.count, SplitPath("", split.number, split.count));
}

// The shards of the model that `given` belongs to, in order.
Result<std::vector<OpenShard>> OpenAllShards(OpenShard given, const std::string& path,
                                             FileAccess access, UnreadableTensors unreadable,
                                             const ReadProgress& progress) {
  const SplitInfo split = given.split;
  std::vector<OpenShard> shards;
  if (split.count == 1) {
    shards.push_back(std::move(given));
    return shards;
  }
  KVANT_ASSIGN(const SplitName name, CheckedSplitName(path, split));
  uint64_t tensor_count = given.shard.tensors.size();
  for (uint32_t number = 0; number < split.count; ++number) {
    if (number == split.number) continue;
    const std::string shard_path = SplitPath(name.prefix, number, split.count);
    auto opened = OpenShardFile(shard_path, access, unreadable, progress);
    if (!opened.ok()) {
      return MakeError(opened.error().code, "{} (shard {} of {} of a split model)",
                       opened.error().message, number + 1, split.count);
    }
    const SplitInfo& found = opened->split;
    if (found.number != number || found.count != split.count ||
        found.tensor_count != split.tensor_count) {
      return MakeError(ErrorCode::kCorrupt,
                       "{}: the file is shard {} of {} of a model with {} tensors, expected shard "
                       "{} of {} with {}",
                       shard_path, found.number + 1, found.count, found.tensor_count, number + 1,
                       split.count, split.tensor_count);
    }
    shards.push_back(std::move(opened).value());
    tensor_count += shards.back().shard.tensors.size();
  }
  shards.insert(shards.begin() + split.number, std::move(given));
  if (tensor_count != split.tensor_count) {
    return MakeError(ErrorCode::kCorrupt, "{}: the {} shards hold {} tensors, but {} is {}", path,
                     split.count, tensor_count, kSplitTensorsKey, split.tensor_count);
  }
  return shards;
}

}  // namespace

bool IsScatteredTable(const GgufTensor& tensor) {
  return tensor.name == "per_layer_token_embd.weight" && tensor.size_bytes >= kScatteredBytesMin;
}

void GgufFile::State::Append(GgufShard shard, uint32_t number) {
  for (GgufTensor& tensor : shard.tensors) tensor.shard = static_cast<int>(number);
  if (number == 0) {
    model = std::move(shard);
  } else {
    std::move(shard.tensors.begin(), shard.tensors.end(), std::back_inserter(model.tensors));
  }
}

Status GgufFile::State::BuildIndexes() {
  keys.Build(model.metadata, [](const auto& entry) { return entry.first; });
  const auto duplicate =
      tensor_names.Build(model.tensors, [](const GgufTensor& tensor) { return tensor.name; });
  if (!duplicate) return {};
  const GgufTensor& first = model.tensors[duplicate->first];
  const GgufTensor& second = model.tensors[duplicate->second];
  return MakeError(ErrorCode::kCorrupt, "{}: tensor {} appears more than once{}", path,
                   Quoted(first.name),
                   first.shard == second.shard
                       ? std::string()
                       : fmt::format(", in shards {} and {}", first.shard + 1, second.shard + 1));
}

Result<GgufFile> GgufFile::Open(const std::string& path, FileAccess access,
                                UnreadableTensors unreadable, const ReadProgress& progress) {
  KVANT_ASSIGN(OpenShard given, OpenShardFile(path, access, unreadable, progress));
  KVANT_ASSIGN(std::vector<OpenShard> shards,
               OpenAllShards(std::move(given), path, access, unreadable, progress));
  auto state = std::make_unique<State>();
  state->path = path;
  state->shards = static_cast<int>(shards.size());
  std::vector<MappedFile> mappings;
  for (OpenShard& shard : shards) {
    state->file_bytes += shard.mapping.bytes().size();
    mappings.push_back(std::move(shard.mapping));
    state->Append(std::move(shard.shard), shard.split.number);
  }
  state->mappings = std::make_shared<const std::vector<MappedFile>>(std::move(mappings));
  return Finished(std::move(state), unreadable);
}

Result<GgufFile> GgufFile::Parse(std::span<const std::byte> bytes, const std::string& name,
                                 UnreadableTensors unreadable) {
  KVANT_ASSIGN(GgufShard shard, ParseGgufShard(bytes, name, unreadable));
  KVANT_ASSIGN(const SplitInfo split, ReadSplitInfo(shard, name));
  if (split.count > 1) {
    return MakeError(ErrorCode::kNotSupported,
                     "{}: shard {} of {} of a split model cannot be read from memory", name,
                     split.number + 1, split.count);
  }
  auto state = std::make_unique<State>();
  state->path = name;
  state->file_bytes = bytes.size();
  state->mappings = std::make_shared<const std::vector<MappedFile>>();
  state->Append(std::move(shard), 0);
  return Finished(std::move(state), unreadable);
}

Result<GgufFile> GgufFile::Finished(std::unique_ptr<State> state, UnreadableTensors unreadable) {
  KVANT_TRY(state->BuildIndexes());
  GgufFile file(std::move(state));
  if (unreadable == UnreadableTensors::kRefused) {
    KVANT_ASSIGN(file.state_->unpacked, UnpackInterleaved(file));
    KVANT_TRY(AlignTensors(file));
  }
  return file;
}

Status GgufFile::AlignTensors(GgufFile& file) {
  for (const GgufTensor& tensor : file.tensors()) {
    const std::span<const std::byte> in_file(tensor.data, tensor.size_bytes);
    const bool aligned = reinterpret_cast<uintptr_t>(tensor.data) % kGgufElementAlignment == 0;
    if (aligned || in_file.empty()) continue;
    KVANT_ASSIGN(AlignedBuffer bytes,
                 AlignedBuffer::Allocate(in_file.size(), "tensors that lie unaligned in the file"));
    std::memcpy(bytes.data(), in_file.data(), in_file.size());
    file.ReplaceTensor(tensor.name, *tensor.format, std::move(bytes));
    if (!file.mappings().empty()) {
      file.mappings()[static_cast<size_t>(tensor.shard)].Release(in_file);
    }
  }
  return {};
}

GgufFile GgufFile::Share() const { return GgufFile(std::make_unique<State>(*state_)); }

std::string TensorTypeName(const GgufTensor& tensor) {
  if (tensor.format != nullptr) return tensor.format->name;
  const auto number = static_cast<uint32_t>(tensor.type);
  if (const auto* interleaved = quant::FindInterleavedType(number)) return interleaved->name;
  const quant::UnsupportedType* type = quant::FindUnsupportedType(number);
  return type == nullptr ? fmt::format("type {}", number) : type->name;
}

GgufFile::GgufFile(std::unique_ptr<State> state) : state_(std::move(state)) {}
GgufFile::GgufFile(GgufFile&&) noexcept = default;
GgufFile& GgufFile::operator=(GgufFile&&) noexcept = default;
GgufFile::~GgufFile() = default;

const std::string& GgufFile::path() const { return state_->path; }
uint32_t GgufFile::version() const { return state_->model.version; }
uint64_t GgufFile::alignment() const { return state_->model.alignment; }
int GgufFile::shards() const { return state_->shards; }
uint64_t GgufFile::file_bytes() const { return state_->file_bytes; }
std::span<const MappedFile> GgufFile::mappings() const { return *state_->mappings; }
const UnpackedTensors& GgufFile::unpacked() const { return state_->unpacked; }

std::span<const std::pair<std::string_view, GgufValue>> GgufFile::metadata() const {
  return state_->model.metadata;
}

const GgufValue* GgufFile::Find(std::string_view key) const {
  const auto position = state_->keys.Find(key);
  return position ? &state_->model.metadata[*position].second : nullptr;
}

Result<std::optional<uint32_t>> GgufFile::GetU32(std::string_view key) const {
  return ValueAsU32(path(), key, Find(key));
}

Result<std::optional<float>> GgufFile::GetF32(std::string_view key) const {
  return ValueAsF32(path(), key, Find(key));
}

Result<std::optional<bool>> GgufFile::GetBool(std::string_view key) const {
  return ValueAsBool(path(), key, Find(key));
}

Result<std::optional<std::string_view>> GgufFile::GetString(std::string_view key) const {
  return ValueAsString(path(), key, Find(key));
}

Result<const GgufArray*> GgufFile::GetArray(std::string_view key, GgufType element) const {
  return ValueAsArray(path(), key, Find(key), element);
}

std::span<const GgufTensor> GgufFile::tensors() const { return state_->model.tensors; }

const GgufTensor* GgufFile::FindTensor(std::string_view name) const {
  const auto position = state_->tensor_names.Find(name);
  return position ? &state_->model.tensors[*position] : nullptr;
}

void GgufFile::ReplaceTensor(std::string_view name, const quant::FormatTraits& format,
                             AlignedBuffer bytes) {
  const auto position = state_->tensor_names.Find(name);
  KVANT_CHECK(position.has_value());
  GgufTensor& tensor = state_->model.tensors[*position];
  const auto size = static_cast<uint64_t>(format.row_bytes(tensor.dims[0]) * tensor.rows());
  KVANT_CHECK(bytes.size() >= size);
  tensor.type = format.type;
  tensor.format = &format;
  tensor.size_bytes = size;
  state_->replaced.push_back(std::make_shared<const AlignedBuffer>(std::move(bytes)));
  tensor.data = state_->replaced.back()->data();
}

}  // namespace kvant::formats
