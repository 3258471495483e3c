#include "tools/chat/chat_settings.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <iterator>
#include <variant>

#include "base/result.h"
#include "engine/generate/samplers/stage.h"
#include "engine/limits.h"
#include "tools/options/nearest_word.h"
#include "tools/options/option_values.h"
#include "tools/terminal/console.h"

namespace kvant::tools {
namespace {

// Settings that are shown also where they are what they were at first.
constexpr std::array<std::string_view, 4> kUsual = {"temperature", "top-k", "top-p", "min-p"};

// Names that other programs give to what only the beginning of the program can set.
constexpr std::array<std::string_view, 4> kOfTheBeginning = {"ctx-size", "num-ctx", "c",
                                                             "num-thread"};

std::string PlainName(std::string_view name) {
  name.remove_prefix(std::min(name.find_first_not_of('-'), name.size()));
  std::string out(name);
  std::replace(out.begin(), out.end(), '_', '-');
  return out == "n" || out == "num-predict" ? "predict" : out;
}

double NumberOf(const SamplerSetting& setting, const SamplingOptions& options) {
  return std::visit([&](const auto& member) { return static_cast<double>(options.*member.ours); },
                    setting.value);
}

Status TakeOnOff(const std::string& text, bool* value) {
  if (text != "on" && text != "off") {
    return MakeError(ErrorCode::kInvalid, "expected on or off, found '{}'", Visible(text));
  }
  *value = text == "on";
  return {};
}

}  // namespace

void TalkSettings::Add(OptionList& list) {
  sampling.Add(list);
  list.Integer("--predict", &max_tokens, {-1, kContextMax}, "");
  const auto take_stop = [this](const std::string& text) -> Status {
    if (text == "-") {
      stop_texts.clear();
    } else {
      stop_texts.push_back(Unescape(text));
    }
    return {};
  };
  list.Checked("--stop", take_stop, "TEXT", "");
  const auto take_reasoning = [this](const std::string& text) -> Status {
    KVANT_ASSIGN(reasoning, ParseReasoning(text));
    return {};
  };
  list.Checked("--reasoning", take_reasoning, "HOW", "");
  list.Checked(
      "--word-wrap", [this](const std::string& text) { return TakeOnOff(text, &word_wrap); },
      "on|off", "");
}

Status TalkSettings::Set(std::string_view name, const std::string& value) {
  const std::string plain = PlainName(name);
  if (std::ranges::find(kOfTheBeginning, plain) != kOfTheBeginning.end()) {
    return MakeError(ErrorCode::kInvalid,
                     "{}: can only be set when the program begins: see 'kvant chat --help'", plain);
  }
  TalkSettings next = *this;
  OptionList list;
  next.Add(list);
  if (!list.Has("--" + plain)) {
    const std::string nearest = Nearest(plain, Names());
    return MakeError(ErrorCode::kInvalid, "unknown setting '{}'{}; /set lists them", Visible(name),
                     nearest.empty() ? "" : fmt::format("; did you mean {}?", nearest));
  }
  KVANT_TRY(list.Take("--" + plain, value));
  KVANT_TRY(next.sampling.Check(list));
  *this = std::move(next);
  return {};
}

std::vector<std::string> TalkSettings::Names() {
  TalkSettings settings;
  OptionList list;
  settings.Add(list);
  std::vector<std::string> names;
  for (const std::string& name : list.Names()) {
    if (name.starts_with("--")) names.push_back(name.substr(2));
  }
  return names;
}

std::string TalkSettings::Text() const {
  std::vector<std::string> out;
  const SamplingOptions at_first;
  for (const SamplerRow* row : AllSamplers()) {
    for (const SamplerSetting& setting : row->settings) {
      const double number = NumberOf(setting, sampling.options);
      const bool usual = std::ranges::find(kUsual, setting.name) != kUsual.end();
      if (!usual && number == NumberOf(setting, at_first)) continue;
      out.push_back(
          fmt::format("{} {}", FirstFlag(setting.flags).substr(2), static_cast<float>(number)));
    }
  }
  if (sampling.seed >= 0) out.push_back(fmt::format("seed {}", sampling.seed));
  if (max_tokens >= 0) out.push_back(fmt::format("predict {}", max_tokens));
  for (const std::string& text : stop_texts) out.push_back(fmt::format("stop '{}'", text));
  out.push_back(fmt::format("reasoning {}", ReasoningName(reasoning)));
  out.push_back(fmt::format("word-wrap {}", word_wrap ? "on" : "off"));
  return fmt::format("{}", fmt::join(out, ", "));
}

}  // namespace kvant::tools
