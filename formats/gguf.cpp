// GgufFile: joins the parts of a model into one list of tensors and answers look-ups.
#include "formats/gguf.h"

#include <iterator>
#include <utility>

#include "formats/gguf_part.h"
#include "formats/gguf_split.h"
#include "formats/gguf_value.h"
#include "formats/name_index.h"
#include "formats/quoted.h"

namespace kvant::formats {

struct GgufFile::State {
  std::string path;
  std::vector<MappedFile> mappings;  // empty after Parse
  uint64_t file_bytes = 0;
  int parts = 1;
  GgufPart model;  // the first part, with the tensors of the others appended
  NameIndex keys;
  NameIndex tensor_names;

  // Takes the tensors of the part with this number.
  void Append(GgufPart part, uint32_t number);
  Status BuildIndexes();
};

namespace {

struct OpenPart {
  MappedFile mapping;
  GgufPart part;
  SplitInfo split;
};

Result<OpenPart> OpenPartFile(const std::string& path, FileAccess access) {
  OpenPart opened;
  KVANT_ASSIGN(opened.mapping, MappedFile::Open(path, access));
  KVANT_ASSIGN(opened.part, ParseGgufPart(opened.mapping.bytes(), path));
  KVANT_ASSIGN(opened.split, ReadSplitInfo(opened.part, path));
  return opened;
}

// The name of a part must say what its metadata says, because the other names follow from it.
Result<SplitName> CheckedSplitName(const std::string& path, const SplitInfo& split) {
  const auto name = ParseSplitName(path);
  if (name && name->number == split.number && name->count == split.count) return *name;
  return MakeError(ErrorCode::kInvalid,
                   "{}: the file is part {} of {} of a split model, but its name does not end in "
                   "{}",
                   path, split.number + 1, split.count, SplitPath("", split.number, split.count));
}

// The parts of the model that `given` belongs to, in order.
Result<std::vector<OpenPart>> OpenAllParts(OpenPart given, const std::string& path,
                                           FileAccess access) {
  const SplitInfo split = given.split;
  std::vector<OpenPart> parts;
  if (split.count == 1) {
    parts.push_back(std::move(given));
    return parts;
  }
  KVANT_ASSIGN(const SplitName name, CheckedSplitName(path, split));
  uint64_t tensor_count = given.part.tensors.size();
  for (uint32_t number = 0; number < split.count; ++number) {
    if (number == split.number) continue;
    const std::string part_path = SplitPath(name.prefix, number, split.count);
    auto opened = OpenPartFile(part_path, access);
    if (!opened.ok()) {
      return MakeError(opened.error().code, "{} (part {} of {} of a split model)",
                       opened.error().message, number + 1, split.count);
    }
    const SplitInfo& found = opened->split;
    if (found.number != number || found.count != split.count ||
        found.tensor_count != split.tensor_count) {
      return MakeError(ErrorCode::kCorrupt,
                       "{}: the file is part {} of {} of a model with {} tensors, expected part "
                       "{} of {} with {}",
                       part_path, found.number + 1, found.count, found.tensor_count, number + 1,
                       split.count, split.tensor_count);
    }
    parts.push_back(std::move(opened).value());
    tensor_count += parts.back().part.tensors.size();
  }
  parts.insert(parts.begin() + split.number, std::move(given));
  if (tensor_count != split.tensor_count) {
    return MakeError(ErrorCode::kCorrupt, "{}: the {} parts hold {} tensors, but {} is {}", path,
                     split.count, tensor_count, kSplitTensorsKey, split.tensor_count);
  }
  return parts;
}

}  // namespace

void GgufFile::State::Append(GgufPart part, uint32_t number) {
  for (GgufTensor& tensor : part.tensors) tensor.part = static_cast<int>(number);
  if (number == 0) {
    model = std::move(part);
  } else {
    std::move(part.tensors.begin(), part.tensors.end(), std::back_inserter(model.tensors));
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
                   first.part == second.part
                       ? std::string()
                       : fmt::format(", in parts {} and {}", first.part + 1, second.part + 1));
}

Result<GgufFile> GgufFile::Open(const std::string& path, FileAccess access) {
  KVANT_ASSIGN(OpenPart given, OpenPartFile(path, access));
  KVANT_ASSIGN(std::vector<OpenPart> parts, OpenAllParts(std::move(given), path, access));
  auto state = std::make_unique<State>();
  state->path = path;
  state->parts = static_cast<int>(parts.size());
  for (OpenPart& part : parts) {
    state->file_bytes += part.mapping.bytes().size();
    state->mappings.push_back(std::move(part.mapping));
    state->Append(std::move(part.part), part.split.number);
  }
  KVANT_TRY(state->BuildIndexes());
  return GgufFile(std::move(state));
}

Result<GgufFile> GgufFile::Parse(std::span<const std::byte> bytes, const std::string& name) {
  KVANT_ASSIGN(GgufPart part, ParseGgufPart(bytes, name));
  KVANT_ASSIGN(const SplitInfo split, ReadSplitInfo(part, name));
  if (split.count > 1) {
    return MakeError(ErrorCode::kNotSupported,
                     "{}: part {} of {} of a split model cannot be read from memory", name,
                     split.number + 1, split.count);
  }
  auto state = std::make_unique<State>();
  state->path = name;
  state->file_bytes = bytes.size();
  state->Append(std::move(part), 0);
  KVANT_TRY(state->BuildIndexes());
  return GgufFile(std::move(state));
}

GgufFile::GgufFile(std::unique_ptr<State> state) : state_(std::move(state)) {}
GgufFile::GgufFile(GgufFile&&) noexcept = default;
GgufFile& GgufFile::operator=(GgufFile&&) noexcept = default;
GgufFile::~GgufFile() = default;

const std::string& GgufFile::path() const { return state_->path; }
uint32_t GgufFile::version() const { return state_->model.version; }
uint64_t GgufFile::alignment() const { return state_->model.alignment; }
int GgufFile::parts() const { return state_->parts; }
uint64_t GgufFile::file_bytes() const { return state_->file_bytes; }
std::span<const MappedFile> GgufFile::mappings() const { return state_->mappings; }

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

}  // namespace kvant::formats
