#include "tools/options/groups/sampling_group.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <iterator>
#include <limits>
#include <variant>

#include "base/result.h"
#include "engine/generate/samplers/stage.h"
#include "tools/options/option_values.h"

namespace kvant::tools {
namespace {

constexpr float kRealMax = 1e6f;  // of what is a factor, a penalty or a temperature
constexpr float kFactorMin = 1e-6f;
constexpr int64_t kSamplerWindowMax = int64_t{1} << 30;

const char* const kSamplingGroup = "Sampling (in this order)";

// "15043+1", "15043-1.5", "2-inf"
Result<LogitBias> ParseLogitBias(const std::string& text) {
  const auto wrong = [&] {
    return MakeError(ErrorCode::kInvalid, "expected ID+BIAS or ID-BIAS, as in 15043+1, found '{}'",
                     text);
  };
  LogitBias entry;
  const char* end = text.data() + text.size();
  const auto [sign, id_error] = std::from_chars(text.data(), end, entry.token);
  if (id_error != std::errc() || sign == end || (*sign != '+' && *sign != '-')) return wrong();
  const auto [stop, bias_error] = std::from_chars(sign + 1, end, entry.bias);
  if (bias_error != std::errc() || stop != end || std::isnan(entry.bias)) return wrong();
  if (std::signbit(entry.bias)) return wrong();  // "5+-1"
  if (*sign == '-') entry.bias = -entry.bias;
  return entry;
}

void AddSetting(const SamplerSetting& setting, SamplingGroup& group, OptionList& list) {
  const std::string flags(setting.flags);
  const std::string help(setting.help);
  if (const auto* member = std::get_if<SamplerNumber<int32_t>>(&setting.value)) {
    int32_t* value = &(group.options.*member->ours);
    list.Integer(
        flags, [value](int64_t number) { *value = static_cast<int32_t>(number); },
        {static_cast<int64_t>(setting.min),
         setting.min < -1 ? static_cast<int64_t>(setting.max)
                          : std::min(static_cast<int64_t>(setting.max), kSamplerWindowMax)},
        help, std::to_string(*value));
    return;
  }
  float* value = &(group.options.*std::get<SamplerNumber<float>>(setting.value).ours);
  const float min = static_cast<float>(setting.min);
  const bool is_above_0 = min > 0 && min < kFactorMin;
  list.Real(flags, value,
            {is_above_0 ? kFactorMin : std::max(min, -kRealMax),
             std::min(static_cast<float>(setting.max), kRealMax)},
            help);
}

}  // namespace

void SamplingGroup::Add(OptionList& list) {
  list.Group(kSamplingGroup);
  const auto take_bias = [this](const std::string& text) -> Status {
    KVANT_ASSIGN(const LogitBias entry, ParseLogitBias(text));
    options.logit_bias.push_back(entry);
    return {};
  };
  list.CheckedEach("-l,--logit-bias", take_bias, "ID+BIAS",
                   "Add to the logit of a token: 15043+1, 15043-1.5, 2-inf; may be repeated");
  for (const SamplerRow* row : AllSamplers()) {
    for (const SamplerSetting& setting : row->settings) AddSetting(setting, *this, list);
    if (row == &kDrySampler) {
      list.Texts(
          "--dry-sequence-breaker", &breakers, "TEXT",
          "DRY: repetitions do not reach across this text, in place of \\n, :, \" and *; may be "
          "repeated; none is no text");
    }
  }
  AddChain(list);
  list.Integer("-s,--seed", &seed, {-1, std::numeric_limits<int64_t>::max()},
               "Seed of the random numbers; equal seeds give equal texts; -1 draws a new one");
}

void SamplingGroup::AddChain(OptionList& list) {
  const auto take_names = [this](const std::string& text) -> Status {
    KVANT_ASSIGN(options.samplers, ParseSamplers(text));
    return {};
  };
  const auto take_letters = [this](const std::string& text) -> Status {
    KVANT_ASSIGN(options.samplers, ParseSamplerLetters(text));
    return {};
  };
  std::string names;
  std::string letters;
  for (const SamplerRow* row : AllSamplers()) {
    if (row->order != SamplerRow::Order::kDefault) continue;
    names += fmt::format("{}{}", names.empty() ? "" : ", ", row->name);
    letters += row->letter;
  }
  list.Checked(
      "--samplers", take_names, "NAMES",
      fmt::format("Samplers to use, in this order, joined by ;. The default is {}; adaptive_p can "
                  "be added. Options of samplers that are not named have no effect",
                  names));
  list.Checked("--sampler-seq,--sampling-seq", take_letters, "LETTERS",
               "Samplers to use, as one letter each; a is adaptive_p", letters);
}

SamplingOptions SamplingGroup::Options() const {
  SamplingOptions out = options;
  if (!breakers.empty()) out.dry_sequence_breakers.clear();
  for (const std::string& text : breakers) {
    if (text != "none") out.dry_sequence_breakers.push_back(Unescape(text));
  }
  if (seed >= 0) out.seed = static_cast<uint64_t>(seed);
  return out;
}

Status SamplingGroup::Check(const OptionList& list) const {
  const auto& chain = options.samplers;
  const bool named = chain.has_value() && std::find(chain->begin(), chain->end(),
                                                    kAdaptivePSampler.name) != chain->end();
  if (named || options.adaptive_target < 0) return {};
  return list.Need({"--adaptive-target"}, "adaptive_p in --samplers");
}

Status SamplingGroup::CheckBeams(const OptionList& list) {
  constexpr std::string_view kKnown[] = {"repeat-penalty", "temperature", "top-k", "top-p"};
  for (const SamplerRow* row : AllSamplers()) {
    for (const SamplerSetting& setting : row->settings) {
      if (std::find(std::begin(kKnown), std::end(kKnown), setting.name) != std::end(kKnown)) {
        continue;
      }
      KVANT_TRY(list.Exclude({FirstFlag(setting.flags).c_str()}, "--beams"));
    }
  }
  return list.Exclude({"--logit-bias", "--dry-sequence-breaker", "--samplers", "--sampler-seq"},
                      "--beams");
}

}  // namespace kvant::tools
