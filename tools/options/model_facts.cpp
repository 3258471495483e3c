#include "tools/options/model_facts.h"

#include <fmt/format.h>

#include <algorithm>

#include "engine/quantize/recipe.h"
#include "tools/terminal/console.h"

namespace kvant::tools {

namespace {

// The mix that the file says it is, else the type that most values have.
std::string NameOfTypes(const formats::GgufFile& file, const ModelFacts& facts) {
  const auto file_type = file.GetU32("general.file_type");
  for (const quantize::Recipe& recipe : quantize::AllRecipes()) {
    if (file_type.ok() && file_type->has_value() && **file_type == recipe.file_type) {
      return recipe.name;
    }
  }
  return facts.types.empty() ? "" : facts.types[0].name;
}

}  // namespace

double ModelFacts::bits_per_weight() const {
  if (parameters == 0) return 0;
  return 8.0 * static_cast<double>(tensor_bytes) / static_cast<double>(parameters);
}

ModelFacts GatherFacts(const formats::GgufFile& file) {
  ModelFacts facts;
  std::map<std::string, ModelFacts::TypeShare> types;
  for (const formats::GgufTensor& tensor : file.tensors()) {
    const std::string type = formats::TensorTypeName(tensor);
    ModelFacts::TypeShare& share = types[type];
    share.name = type;
    ++share.tensors;
    share.values += static_cast<uint64_t>(tensor.n_values());
    share.bytes += tensor.size_bytes;
    facts.parameters += static_cast<uint64_t>(tensor.n_values());
    facts.tensor_bytes += tensor.size_bytes;
  }
  for (const auto& [name, share] : types) facts.types.push_back(share);
  std::stable_sort(facts.types.begin(), facts.types.end(),
                   [](const auto& a, const auto& b) { return a.values > b.values; });
  const auto architecture = file.GetString("general.architecture");
  if (architecture.ok()) facts.architecture = Visible(architecture->value_or(""));
  facts.description =
      fmt::format("{} {} {}", facts.architecture.empty() ? "model" : facts.architecture,
                  CountText(facts.parameters), NameOfTypes(file, facts));
  return facts;
}

std::string SizeText(uint64_t bytes) {
  static constexpr const char* kUnits[] = {"B", "KiB", "MiB", "GiB", "TiB"};
  double value = static_cast<double>(bytes);
  size_t unit = 0;
  while (value >= 1024 && unit + 1 < std::size(kUnits)) {
    value /= 1024;
    ++unit;
  }
  return unit == 0 ? fmt::format("{} B", bytes) : fmt::format("{:.2f} {}", value, kUnits[unit]);
}

std::string CountText(uint64_t count) {
  const double value = static_cast<double>(count);
  if (value >= 1e9) return fmt::format("{:.2f} B", value / 1e9);
  if (value >= 1e6) return fmt::format("{:.2f} M", value / 1e6);
  if (value >= 1e3) return fmt::format("{:.2f} K", value / 1e3);
  return fmt::format("{}", count);
}

}  // namespace kvant::tools
