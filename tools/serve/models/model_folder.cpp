#include "tools/serve/models/model_folder.h"

#include <cctype>
#include <filesystem>
#include <map>
#include <string_view>
#include <system_error>
#include <utility>

#include "base/result.h"

namespace kvant::tools {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view kModelEnding = ".gguf";

// The name of "NAME-00002-of-00003" and its number; of another stem all of it and 1.
std::pair<std::string, int> SplitShard(const std::string& stem) {
  constexpr std::string_view kForm = "-00000-of-00000";
  if (stem.size() <= kForm.size()) return {stem, 1};
  const std::string_view end = std::string_view(stem).substr(stem.size() - kForm.size());
  for (size_t i = 0; i < kForm.size(); ++i) {
    const bool is_digit = std::isdigit(static_cast<unsigned char>(end[i])) != 0;
    if (kForm[i] == '0' ? !is_digit : end[i] != kForm[i]) return {stem, 1};
  }
  return {stem.substr(0, stem.size() - kForm.size()), std::stoi(std::string(end.substr(1, 5)))};
}

// Adds a file to the models, if it is one. `name` is the only one that counts, "" for any.
void AddModelFile(const fs::directory_entry& file, const std::string& name,
                  std::map<std::string, FolderModel>& found) {
  std::error_code error;
  if (file.path().extension() != kModelEnding || !file.is_regular_file(error)) return;
  const auto [model, shard] = SplitShard(file.path().stem().string());
  if (!name.empty() && model != name) return;
  FolderModel& entry = found[model];
  entry.name = model;
  const uint64_t bytes = file.file_size(error);
  entry.bytes += error ? 0 : bytes;
  if (shard == 1) entry.path = file.path().string();
}

}  // namespace

Result<std::vector<FolderModel>> ModelsIn(const std::string& folder) {
  std::error_code error;
  std::map<std::string, FolderModel> found;
  std::map<std::string, FolderModel> below;
  for (const fs::directory_entry& entry : fs::directory_iterator(folder, error)) {
    std::error_code end;
    if (!entry.is_directory(end)) {
      AddModelFile(entry, "", found);
      continue;
    }
    for (const fs::directory_entry& file : fs::directory_iterator(entry.path(), end)) {
      AddModelFile(file, entry.path().filename().string(), below);
    }
  }
  if (error) {
    return MakeError(ErrorCode::kIo, "--models: cannot read the folder '{}': {}", folder,
                     error.message());
  }
  found.merge(below);
  std::vector<FolderModel> out;
  for (auto& [name, model] : found) {
    if (!model.path.empty()) out.push_back(std::move(model));
  }
  return out;
}

}  // namespace kvant::tools
