#include "tools/options/model_names.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <array>
#include <filesystem>
#include <set>
#include <system_error>
#include <vector>

namespace kvant::tools {
namespace {

namespace fs = std::filesystem;

// Relative to the program's folder: PREFIX/bin of an installation, build/PRESET of the source tree.
constexpr std::array kFolders = {"../share/kvant/models", "../../models"};

bool LooksLikePath(const std::string& name) {
  return name.empty() || name.find('/') != std::string::npos || name.ends_with(".gguf");
}

// The folders of the models that come with kvant: "PREFIX/share/kvant/models/shakespeare".
std::vector<fs::path> ModelFolders() {
  std::vector<fs::path> found;
  std::error_code error;
  const fs::path program = fs::read_symlink("/proc/self/exe", error);
  for (const char* folder : kFolders) {
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

}  // namespace

std::string ModelPath(const std::string& name) {
  std::error_code error;
  if (LooksLikePath(name) || fs::exists(name, error)) return name;
  for (const fs::path& folder : ModelFolders()) {
    if (HasModel(folder, name)) {
      return fs::weakly_canonical(folder / (name + ".gguf"), error).string();
    }
  }
  return name;
}

std::string NoModelHint(const std::string& path) {
  std::error_code error;
  if (fs::is_regular_file(fs::path(path) / "config.json", error)) {
    return fmt::format(
        "{}: a folder of Hugging Face; 'kvant convert {} model.gguf' makes a GGUF file of it", path,
        path);
  }
  if (LooksLikePath(path) || fs::exists(path, error)) return "";
  std::set<std::string> names;
  for (const fs::path& folder : ModelFolders()) {
    if (HasModel(folder, folder.filename())) names.insert(folder.filename());
  }
  if (names.empty()) return "";
  return fmt::format("{}: no such file, and no model that comes with kvant: {}", path,
                     fmt::join(names, ", "));
}

}  // namespace kvant::tools
