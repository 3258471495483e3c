#include "engine/convert/authorship.h"

#include <algorithm>
#include <cctype>
#include <cmath>
#include <filesystem>
#include <limits>
#include <nlohmann/json.hpp>

#include "base/log.h"
#include "base/result.h"
#include "engine/convert/front_matter.h"

namespace kvant::convert {
namespace {

namespace fs = std::filesystem;
using formats::GgufWriter;
using formats::Json;

bool IsLower(char c) { return std::islower(static_cast<unsigned char>(c)) != 0; }
bool IsUpper(char c) { return std::isupper(static_cast<unsigned char>(c)) != 0; }
bool IsDigit(char c) { return std::isdigit(static_cast<unsigned char>(c)) != 0; }

// "v2", "v0.1".
bool IsVersion(std::string_view word) {
  if (word.size() < 2 || word[0] != 'v' || !IsDigit(word[1]) || word.ends_with('.')) return false;
  return std::all_of(word.begin() + 1, word.end(), [](char c) { return IsDigit(c) || c == '.'; });
}

// Each letter that follows none becomes a capital.
std::string Capitalized(std::string word) {
  bool after_letter = false;
  for (char& c : word) {
    if (!after_letter) c = static_cast<char>(std::toupper(static_cast<unsigned char>(c)));
    after_letter = IsLower(c) || IsUpper(c);
  }
  return word;
}

// The first text of the keys that the card has.
std::string FirstText(const FrontMatter& card, std::initializer_list<std::string_view> keys) {
  for (const std::string_view key : keys) {
    const auto found = card.find(key);
    if (found != card.end() && !found->second.empty()) return found->second.front();
  }
  return "";
}

std::vector<std::string> AllTexts(const FrontMatter& card,
                                  std::initializer_list<std::string_view> keys) {
  std::vector<std::string> texts;
  for (const std::string_view key : keys) {
    const auto found = card.find(key);
    if (found != card.end()) texts.insert(texts.end(), found->second.begin(), found->second.end());
  }
  return texts;
}

// The texts of the first of the keys that the card has.
std::vector<std::string> FirstList(const FrontMatter& card,
                                   std::initializer_list<std::string_view> keys) {
  for (const std::string_view key : keys) {
    const auto found = card.find(key);
    if (found != card.end()) return found->second;
  }
  return {};
}

// "organization/name", or a name alone.
struct ModelId {
  std::string organization;
  std::string name;
};

ModelId ParseId(const std::string& id) {
  const size_t slash = id.find('/');
  if (slash == std::string::npos || id.find(' ') != std::string::npos) return {"", id};
  const bool is_relative = id.starts_with('.');
  return {is_relative ? "" : id.substr(0, slash), id.substr(slash + 1)};
}

// The id that config.json gives the model, unless that is a path on its author's machine, or else
// the folder's name.
Result<ModelId> OwnId(const FolderConfig& config) {
  KVANT_ASSIGN(const auto origin, config.model.String("_name_or_path"));
  const std::string path = origin.value_or("");
  const bool is_path = path.empty() || path.front() == '.' || path.front() == '/' ||
                       std::count(path.begin(), path.end(), '/') > 1;
  if (!is_path) return ParseId(path);
  std::error_code error;
  const fs::path folder = fs::weakly_canonical(config.named_folder, error);
  return ModelId{"", error ? config.named_folder : folder.filename().string()};
}

void AddText(std::string_view key, const std::string& text, GgufWriter& writer) {
  if (!text.empty()) writer.AddString(std::string(key), text);
}

// The models or datasets that a model was made from, by their ids or addresses.
void AddSources(std::string_view prefix, const std::vector<std::string>& sources,
                GgufWriter& writer) {
  constexpr std::string_view kHub = "https://huggingface.co/";
  if (sources.empty()) return;
  writer.AddU32(fmt::format("{}.count", prefix), static_cast<uint32_t>(sources.size()));
  for (size_t i = 0; i < sources.size(); ++i) {
    const std::string& source = sources[i];
    const bool is_address = source.find("://") != std::string::npos;
    std::string id = source;
    if (is_address) id = source.starts_with(kHub) ? source.substr(kHub.size()) : "";
    if (is_address && std::count(id.begin(), id.end(), '/') != 1) id.clear();
    const ModelId parsed = ParseId(id);
    const auto key = [&](std::string_view name) {
      return fmt::format("{}.{}.{}", prefix, i, name);
    };
    AddText(key("name"), ReadableName(parsed.name), writer);
    AddText(key("organization"), ReadableName(parsed.organization), writer);
    if (is_address) {
      AddText(key("repo_url"), source, writer);
    } else if (!parsed.organization.empty()) {
      AddText(key("repo_url"), std::string(kHub) + id, writer);
    }
  }
}

void AddTexts(std::string_view key, const std::vector<std::string>& texts, GgufWriter& writer) {
  if (!texts.empty()) writer.AddStrings(std::string(key), texts);
}

// Texts that are taken as they are, under the first of the keys that the card has.
struct CardText {
  std::string_view gguf_key;
  std::string_view key;
  std::string_view other_key = {};
  std::string_view third_key = {};
};

constexpr CardText kCardTexts[] = {
    {"general.author", "author", "model_author", "model_creator"},
    {"general.version", "version", "model_version"},
    {"general.description", "description", "model_description"},
    {"general.finetune", "finetune", "model_finetune"},
    {"general.basename", "basename", "model_basename", "model_type"},
    {"general.license.name", "license_name"},
    {"general.license.link", "license_link"},
    {"general.source.url", "url", "model_url"},
    {"general.source.doi", "doi", "model_doi"},
    {"general.source.uuid", "uuid", "model_uuid"},
    {"general.source.repo_url", "repo_url", "model_repo_url"},
};

struct SamplingKey {
  std::string_view hf_name;
  std::string_view gguf_name;
  bool whole;
  double min;
  double max;
};

constexpr double kInt32Max = std::numeric_limits<int32_t>::max();
constexpr double kFloatMax = std::numeric_limits<float>::max();

constexpr SamplingKey kSamplingKeys[] = {
    {"top_k", "top_k", true, -1, kInt32Max},
    {"top_p", "top_p", false, 0, 1},
    {"min_p", "min_p", false, 0, 1},
    {"xtc_probability", "xtc_probability", false, 0, 1},
    {"xtc_threshold", "xtc_threshold", false, 0, 1},
    {"temperature", "temp", false, 0, kFloatMax},
    {"penalty_last_n", "penalty_last_n", true, -1, kInt32Max},
    {"penalty_repeat", "penalty_repeat", false, 0, kFloatMax},
    {"mirostat", "mirostat", true, 0, 2},
    {"mirostat_tau", "mirostat_tau", false, 0, kFloatMax},
    {"mirostat_eta", "mirostat_eta", false, 0, kFloatMax},
};

}  // namespace

std::string ReadableName(std::string_view id) {
  std::string name;
  std::string word;
  const auto finish_word = [&] {
    if (word.empty()) return;
    const bool is_lower = std::any_of(word.begin(), word.end(), IsLower) &&
                          std::none_of(word.begin(), word.end(), IsUpper);
    const bool stays = !is_lower || IsDigit(word[0]) || IsVersion(word);
    if (!name.empty()) name += ' ';
    name += stays ? word : Capitalized(word);
    word.clear();
  };
  for (const char c : id) {
    if (c == '-' || std::isspace(static_cast<unsigned char>(c)) != 0) {
      finish_word();
    } else {
      word += c;
    }
  }
  finish_word();
  return name;
}

Status AddAuthorship(const FolderConfig& config, const std::string& name, GgufWriter& writer) {
  KVANT_ASSIGN(const FrontMatter card, ReadModelCard(config.named_folder));
  KVANT_ASSIGN(const ModelId id, OwnId(config));
  std::string own_name = name.empty() ? FirstText(card, {"name", "model_name"}) : name;
  if (own_name.empty()) own_name = ReadableName(id.name);
  writer.AddString("general.name", own_name);
  std::string organization = FirstText(card, {"organization", "model_organization"});
  if (organization.empty()) organization = ReadableName(id.organization);
  AddText("general.organization", organization, writer);
  for (const CardText& row : kCardTexts) {
    AddText(row.gguf_key, FirstText(card, {row.key, row.other_key, row.third_key}), writer);
  }

  std::string license;
  for (const std::string& text : AllTexts(card, {"license"})) {
    license += (license.empty() ? "" : ",") + text;
  }
  AddText("general.license", license, writer);
  AddSources("general.base_model",
             FirstList(card, {"base_model", "base_models", "base_model_sources"}), writer);
  AddSources("general.dataset", FirstList(card, {"datasets", "dataset", "dataset_sources"}),
             writer);
  AddTexts("general.tags", AllTexts(card, {"tags", "pipeline_tag"}), writer);
  AddTexts("general.languages", AllTexts(card, {"languages", "language"}), writer);
  return {};
}

void AddSampling(const JsonObject& generation, GgufWriter& writer) {
  const Json* sequence = generation.Find("sequence");
  if (sequence != nullptr && sequence->is_string()) {
    writer.AddString("general.sampling.sequence", sequence->get<std::string>());
  }
  for (const SamplingKey& row : kSamplingKeys) {
    const Json* value = generation.Find(row.hf_name);
    if (value == nullptr) continue;
    const double number = value->is_number() ? value->get<double>() : std::nan("");
    const bool usable =
        number >= row.min && number <= row.max && (!row.whole || number == std::floor(number));
    if (!usable) {
      Log(LogLevel::kWarning,
          fmt::format("{} is left out: it is {}, expected {} from {} to {}",
                      generation.Where(row.hf_name), formats::Shown(*value),
                      row.whole ? "a whole number" : "a number", row.min, row.max));
      continue;
    }
    std::string key = fmt::format("general.sampling.{}", row.gguf_name);
    if (row.whole) {
      writer.AddI32(std::move(key), static_cast<int32_t>(number));
    } else {
      writer.AddF32(std::move(key), static_cast<float>(number));
    }
  }
}

}  // namespace kvant::convert
