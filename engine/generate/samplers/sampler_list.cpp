// AllSamplers: the list as an array; names and letters of chains.
#include <algorithm>
#include <array>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "engine/generate/samplers/stage.h"

namespace kvant {

void SamplerSetting::Set(SamplingOptions& options, double number) const {
  std::visit(
      [&]<class Number>(const SamplerNumber<Number>& member) {
        options.*member.ours = static_cast<Number>(number);
      },
      value);
}

void SamplerSetting::CopyToC(const SamplingOptions& from, kvant_sampling_options& to) const {
  std::visit([&](const auto& member) { to.*member.in_c = from.*member.ours; }, value);
}

void SamplerSetting::CopyFromC(const kvant_sampling_options& from, SamplingOptions& to) const {
  std::visit([&](const auto& member) { to.*member.ours = from.*member.in_c; }, value);
}

std::span<const SamplerRow* const> AllSamplers() {
#define KVANT_SAMPLER(name) &name,
  static constexpr std::array samplers = {
#include "engine/generate/samplers/sampler_list.inl"
  };
#undef KVANT_SAMPLER
  return samplers;
}

const SamplerRow* FindSampler(std::string_view name) {
  for (const SamplerRow* row : AllSamplers()) {
    if (row->letter == 0) continue;
    std::string_view names = row->aliases;
    bool found = row->name == name;
    while (!found && !names.empty()) {
      const size_t end = std::min(names.find(' '), names.size());
      found = names.substr(0, end) == name;
      names.remove_prefix(std::min(end + 1, names.size()));
    }
    if (found) return row;
  }
  return nullptr;
}

namespace {

// "penalties (e), dry (d), ..."
std::string KnownSamplers() {
  std::string known;
  for (const SamplerRow* row : AllSamplers()) {
    if (row->letter == 0) continue;
    known += fmt::format("{}{} ({})", known.empty() ? "" : ", ", row->name, row->letter);
  }
  return known;
}

}  // namespace

Result<std::vector<std::string>> ParseSamplers(std::string_view names) {
  std::vector<std::string> chain;
  while (!names.empty()) {
    const size_t end = std::min(names.find(';'), names.size());
    const std::string_view name = names.substr(0, end);
    names.remove_prefix(std::min(end + 1, names.size()));
    if (name.empty()) continue;
    const SamplerRow* row = FindSampler(name);
    if (row == nullptr) {
      return MakeError(ErrorCode::kInvalid, "expected names of samplers, of {}, found '{}'",
                       KnownSamplers(), name);
    }
    chain.emplace_back(row->name);
  }
  return chain;
}

Result<std::vector<std::string>> ParseSamplerLetters(std::string_view letters) {
  std::vector<std::string> chain;
  for (const char letter : letters) {
    const auto samplers = AllSamplers();
    const auto row = std::find_if(samplers.begin(), samplers.end(), [letter](const SamplerRow* r) {
      return r->letter != 0 && r->letter == letter;
    });
    if (row == samplers.end()) {
      return MakeError(ErrorCode::kInvalid, "expected letters of samplers, of {}, found '{}'",
                       KnownSamplers(), letters);
    }
    chain.emplace_back((*row)->name);
  }
  return chain;
}

}  // namespace kvant
