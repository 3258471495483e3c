// Finds the files that hold the weights of a Hugging Face folder and checks that none is missing.
//
// "total_size" of an index is not compared: published models count shared tensors in it or not, as
// their exporter did.
#include <algorithm>
#include <charconv>
#include <filesystem>
#include <map>
#include <nlohmann/json.hpp>
#include <optional>
#include <set>

#include "base/result.h"
#include "formats/json.h"
#include "formats/quoted.h"
#include "formats/safetensors.h"

namespace kvant::formats {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view kSingleName = "model.safetensors";
constexpr std::string_view kIndexName = "model.safetensors.index.json";

// The limit of a file's header holds for the index too: both have one entry per tensor.
constexpr uint64_t kIndexBytesMax = 100'000'000;

std::string PathIn(const std::string& folder, std::string_view name) {
  return (fs::path(folder) / name).string();
}

bool Exists(const std::string& path) {
  std::error_code error;
  return fs::exists(path, error);
}

using WeightMap = std::map<std::string, std::string>;  // tensor -> file name

Result<WeightMap> ReadIndex(const std::string& path) {
  KVANT_ASSIGN(const Json index, ReadJson(path, kIndexBytesMax));
  if (!index.is_object() || !index.contains("weight_map") || !index["weight_map"].is_object()) {
    return MakeError(ErrorCode::kCorrupt, "{}: \"weight_map\" is missing, expected an object",
                     path);
  }
  WeightMap files;
  for (const auto& [tensor, file] : index["weight_map"].items()) {
    const std::string name = file.is_string() ? file.get<std::string>() : "";
    // A name and nothing else: an index must not lead out of its folder.
    const bool plain = !name.empty() && name != "." && name != ".." &&
                       name.find('/') == std::string::npos && name.find('\0') == std::string::npos;
    if (!plain) {
      return MakeError(ErrorCode::kCorrupt, "{}: tensor {}: expected a file name, found {}", path,
                       Quoted(tensor), Shown(file));
    }
    files.emplace(tensor, name);
  }
  if (files.empty()) {
    return MakeError(ErrorCode::kCorrupt, "{}: \"weight_map\" is empty", path);
  }
  return files;
}

struct Shard {
  uint32_t number = 0;  // from 1
  uint32_t count = 0;
};

// "model-00002-of-00005.safetensors"
std::optional<Shard> ParseShardName(std::string_view name) {
  constexpr std::string_view kPrefix = "model-";
  constexpr std::string_view kMiddle = "-of-";
  constexpr std::string_view kSuffix = ".safetensors";
  if (!name.starts_with(kPrefix) || !name.ends_with(kSuffix)) return std::nullopt;
  Shard shard;
  const char* position = name.data() + kPrefix.size();
  const char* end = name.data() + name.size() - kSuffix.size();
  if (position >= end) return std::nullopt;
  const auto number = std::from_chars(position, end, shard.number);
  const std::string_view rest(number.ptr, static_cast<size_t>(end - number.ptr));
  if (number.ec != std::errc() || !rest.starts_with(kMiddle)) return std::nullopt;
  const auto count = std::from_chars(number.ptr + kMiddle.size(), end, shard.count);
  if (count.ec != std::errc() || count.ptr != end) return std::nullopt;
  return shard;
}

std::string Join(const std::vector<std::string>& names) {
  constexpr size_t kNamesMax = 5;
  std::string text;
  for (size_t i = 0; i < std::min(names.size(), kNamesMax); ++i) {
    text += fmt::format("{}{}", i == 0 ? "" : ", ", names[i]);
  }
  if (names.size() > kNamesMax) text += fmt::format(" and {} more", names.size() - kNamesMax);
  return text;
}

// The shards of a folder without an index, in order.
Result<std::vector<std::string>> FindShards(const std::string& folder) {
  std::error_code error;
  std::map<uint32_t, std::string> found;
  uint32_t count = 0;
  bool has_pickles = false;
  fs::directory_iterator entries(folder, error);
  if (error) {
    return MakeError(ErrorCode::kIo, "{}: cannot read the folder: {}", folder, error.message());
  }
  for (; !error && entries != fs::directory_iterator(); entries.increment(error)) {
    const std::string name = entries->path().filename().string();
    has_pickles |= name.starts_with("pytorch_model") && name.ends_with(".bin");
    const auto shard = ParseShardName(name);
    if (!shard) continue;
    if (shard->number < 1 || shard->number > shard->count ||
        (count != 0 && shard->count != count) || !found.emplace(shard->number, name).second) {
      return MakeError(ErrorCode::kCorrupt, "{}: {} contradicts the numbers of the other shards",
                       folder, name);
    }
    count = shard->count;
  }
  if (found.empty()) {
    return MakeError(
        ErrorCode::kIo, "{}: no weights: expected {}, {} or {}{}", folder, kSingleName, kIndexName,
        "model-00001-of-0000N.safetensors",
        has_pickles ? " (PyTorch's .bin files must be saved as safetensors first)" : "");
  }
  std::vector<std::string> names;
  for (uint32_t number = 1; number <= count; ++number) {
    const auto shard = found.find(number);
    if (shard == found.end()) {
      return MakeError(ErrorCode::kIo, "{}: shard {} of {} is missing ({} found)", folder, number,
                       count, found.size());
    }
    names.push_back(shard->second);
  }
  return names;
}

// The shards that an index lists, every one present.
Result<std::vector<std::string>> ListedShards(const std::string& folder, const WeightMap& map) {
  std::set<std::string> names;
  for (const auto& [tensor, file] : map) names.insert(file);
  std::vector<std::string> missing;
  for (const std::string& name : names) {
    if (!Exists(PathIn(folder, name))) missing.push_back(name);
  }
  if (!missing.empty()) {
    return MakeError(ErrorCode::kIo, "{}: missing, although {} lists it: {}", folder, kIndexName,
                     Join(missing));
  }
  return std::vector<std::string>(names.begin(), names.end());
}

// Every tensor is where the index says, and the index knows every tensor.
Status CompareWithIndex(const SafetensorsModel& model, const WeightMap& map,
                        const std::string& index_path) {
  for (const SafetensorsTensor& tensor : model.tensors()) {
    const std::string file = fs::path(model.FileOf(tensor)).filename().string();
    const auto entry = map.find(tensor.name);
    if (entry == map.end()) {
      return MakeError(ErrorCode::kCorrupt, "{}: tensor {} of {} is not listed", index_path,
                       Quoted(tensor.name), file);
    }
    if (entry->second != file) {
      return MakeError(ErrorCode::kCorrupt, "{}: tensor {} is listed in {}, but found in {}",
                       index_path, Quoted(tensor.name), entry->second, file);
    }
  }
  for (const auto& [tensor, file] : map) {
    if (model.Find(tensor) != nullptr) continue;
    return MakeError(ErrorCode::kCorrupt, "{}: tensor {} is listed in {}, but missing there",
                     index_path, Quoted(tensor), file);
  }
  return {};
}

}  // namespace

Result<SafetensorsModel> SafetensorsModel::OpenFolder(const std::string& folder,
                                                      FileAccess access) {
  const std::string single = PathIn(folder, kSingleName);
  const std::string index_path = PathIn(folder, kIndexName);
  const bool has_index = Exists(index_path);
  if (Exists(single) && !has_index) return OpenFile(single, access);

  WeightMap map;
  std::vector<std::string> names;
  if (has_index) {
    KVANT_ASSIGN(map, ReadIndex(index_path));
    KVANT_ASSIGN(names, ListedShards(folder, map));
    if (Exists(single) && std::find(names.begin(), names.end(), kSingleName) == names.end()) {
      return MakeError(ErrorCode::kCorrupt, "{}: {} is not listed in {}: which are the weights?",
                       folder, kSingleName, kIndexName);
    }
  } else {
    KVANT_ASSIGN(names, FindShards(folder));
  }
  SafetensorsModel model;
  for (const std::string& name : names) {
    KVANT_TRY(model.AddMapped(PathIn(folder, name), access));
  }
  KVANT_TRY(model.BuildIndex());
  if (has_index) KVANT_TRY(CompareWithIndex(model, map, index_path));
  return model;
}

}  // namespace kvant::formats
