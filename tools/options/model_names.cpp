#include "tools/options/model_names.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <array>
#include <filesystem>
#include <set>
#include <system_error>
#include <vector>

#include "base/result.h"

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

Result<std::string> FindModel(const std::string& name) {
  std::error_code error;
  if (fs::is_regular_file(fs::path(name) / "config.json", error)) {
    return MakeError(
        ErrorCode::kIo,
        "{}: a folder of Hugging Face; 'kvant convert {} model.gguf' makes a GGUF file of it", name,
        name);
  }
  const fs::file_type type = fs::status(name, error).type();
  const bool folder_only = type == fs::file_type::directory && !LooksLikePath(name);
  if (type != fs::file_type::not_found && !folder_only) return name;
  std::set<std::string> known;
  for (const fs::path& folder : ModelFolders()) {
    if (!LooksLikePath(name) && HasModel(folder, name)) {
      return fs::weakly_canonical(folder / (name + ".gguf"), error).string();
    }
    if (HasModel(folder, folder.filename())) known.insert(folder.filename());
  }
  if (folder_only) return name;  // opening it tells what it is
  const std::string names =
      known.empty() ? ""
                    : fmt::format(" or a model that comes with kvant ({})", fmt::join(known, ", "));
  return MakeError(ErrorCode::kIo, "{}: expected a GGUF file{}, found no such file", name, names);
}

}  // namespace kvant::tools
