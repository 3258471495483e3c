#include "tools/options/model_names.h"

#include <array>
#include <filesystem>
#include <system_error>

namespace kvant::tools {
namespace {

namespace fs = std::filesystem;

// Relative to the program's folder: PREFIX/bin of an installation, build/PRESET of the source tree.
constexpr std::array kFolders = {"../share/kvant/models", "../../models"};

}  // namespace

std::string ModelPath(const std::string& name) {
  std::error_code error;
  const bool is_path =
      name.empty() || name.find('/') != std::string::npos || name.ends_with(".gguf");
  if (is_path || fs::exists(name, error)) return name;
  const fs::path program = fs::read_symlink("/proc/self/exe", error);
  for (const char* folder : kFolders) {
    std::error_code end;
    for (fs::directory_iterator models(program.parent_path() / folder, end);
         !end && models != fs::directory_iterator(); models.increment(end)) {
      const fs::path file = models->path() / (name + ".gguf");
      if (fs::is_regular_file(file, error)) return fs::weakly_canonical(file, error).string();
    }
  }
  return name;
}

}  // namespace kvant::tools
