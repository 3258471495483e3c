#include "tools/options/model_names.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <array>
#include <filesystem>
#include <optional>
#include <set>
#include <span>
#include <string_view>
#include <system_error>
#include <vector>

#include "base/result.h"
#include "engine/convert/ctranslate2/folder.h"
#include "tools/options/llama_words.h"

namespace kvant::tools {
namespace {

namespace fs = std::filesystem;

// Relative to the program's folder: PREFIX/bin of an installation, build/PRESET of the source tree.
constexpr std::array kOwnFolders = {"../share/kvant/models", "../../models"};
constexpr std::array kFetchedFolders = {"../../build/models"};

bool LooksLikePath(const std::string& name) {
  return name.empty() || name.find('/') != std::string::npos || name.ends_with(".gguf");
}

// The folders in folders relative to the program's: "PREFIX/share/kvant/models/shakespeare".
std::vector<fs::path> FoldersIn(std::span<const char* const> relative) {
  std::vector<fs::path> found;
  std::error_code error;
  const fs::path program = fs::read_symlink("/proc/self/exe", error);
  for (const char* folder : relative) {
    std::error_code end;
    for (fs::directory_iterator models(program.parent_path() / folder, end);
         !end && models != fs::directory_iterator(); models.increment(end)) {
      found.push_back(models->path());
    }
  }
  return found;
}

bool HasModel(const fs::path& folder, const std::string& name) {
  std::error_code error;
  return fs::is_regular_file(folder / (name + ".gguf"), error);
}

bool IsFolderToConvert(const fs::path& folder) {
  std::error_code error;
  return fs::is_regular_file(folder / "config.json", error) ||
         convert::IsCTranslate2Folder(folder.string());
}

// Looks for the model of a name in the folders: its file, or a folder to be converted. Adds the
// names of the models that are there.
std::optional<fs::path> Find(const std::string& name, const std::vector<fs::path>& folders,
                             std::set<std::string>* known) {
  for (const fs::path& folder : folders) {
    if (!LooksLikePath(name)) {
      if (HasModel(folder, name)) return folder / (name + ".gguf");
      if (folder.filename() == name && IsFolderToConvert(folder)) return folder;
    }
    if (HasModel(folder, folder.filename())) known->insert(folder.filename());
  }
  return std::nullopt;
}

Error FolderToConvert(const std::string& folder) {
  return MakeError(
      ErrorCode::kIo, "{}: a folder of {}; 'kvant convert {} model.gguf' makes a GGUF file of it",
      folder, convert::IsCTranslate2Folder(folder) ? "CTranslate2" : "Hugging Face", folder);
}

std::string Listed(std::string_view before, const std::set<std::string>& names) {
  return names.empty() ? "" : fmt::format("{} ({})", before, fmt::join(names, ", "));
}

}  // namespace

std::vector<std::string> ModelNames() {
  std::set<std::string> names;
  for (const std::span<const char* const> relative :
       {std::span<const char* const>(kOwnFolders), std::span<const char* const>(kFetchedFolders)}) {
    for (const fs::path& folder : FoldersIn(relative)) {
      if (HasModel(folder, folder.filename())) names.insert(folder.filename());
    }
  }
  return {names.begin(), names.end()};
}

Result<std::string> FindModel(const std::string& name) {
  std::error_code error;
  if (IsFolderToConvert(name)) return FolderToConvert(name);
  const fs::file_type type = fs::status(name, error).type();
  const bool folder_only = type == fs::file_type::directory && !LooksLikePath(name);
  if (type != fs::file_type::not_found && !folder_only) return name;
  std::set<std::string> own;
  std::set<std::string> fetched;
  auto found = Find(name, FoldersIn(kOwnFolders), &own);
  if (!found) found = Find(name, FoldersIn(kFetchedFolders), &fetched);
  if (found) {
    const std::string path = fs::weakly_canonical(*found, error).string();
    return fs::is_directory(*found, error) ? Result<std::string>(FolderToConvert(path)) : path;
  }
  if (folder_only) return name;  // opening it tells what it is
  if (const std::string_view advice = ModelAdvice(name); !advice.empty()) {
    return MakeError(ErrorCode::kIo, "{}: {}", name, advice);
  }
  return MakeError(ErrorCode::kIo, "{}: expected a GGUF file{}{}, found no such file", name,
                   Listed(" or a model that comes with kvant", own),
                   Listed(" or one of './dev models'", fetched));
}

}  // namespace kvant::tools
