#include "tools/transcribe/transcribe_options.h"

#include <fmt/format.h>

#include <cmath>
#include <cstdlib>
#include <functional>
#include <limits>

#include "engine/text/speech_languages.h"
#include "tools/options/number_list.h"
#include "tools/terminal/console.h"

namespace kvant::tools {
namespace {

constexpr int64_t kTextsMax = 64;  // beams, or texts that are drawn
constexpr float kTemperatureMax = 10;
constexpr float kThresholdMax = 1e6f;
constexpr float kWindowSeconds = 30;

Result<float> ParseReal(const std::string& text, Bounds<float> bounds) {
  char* end = nullptr;
  const float value = std::strtof(text.c_str(), &end);
  const bool is_number = !text.empty() && *end == '\0' && std::isfinite(value);
  if (is_number && value >= bounds.min && value <= bounds.max) return value;
  return MakeError(ErrorCode::kInvalid, "expected a number from {} to {}, found '{}'", bounds.min,
                   bounds.max, Visible(text));
}

// Reads a number, or "none".
std::function<Status(const std::string&)> TakeThreshold(std::optional<float>* target,
                                                        Bounds<float> bounds) {
  return [target, bounds](const std::string& text) -> Status {
    target->reset();
    if (text == "none") return {};
    KVANT_ASSIGN(*target, ParseReal(text, bounds));
    return {};
  };
}

Status TakeTemperatures(const std::string& text, std::vector<float>* target) {
  target->clear();
  for (const std::string& part : SplitList(text)) {
    KVANT_ASSIGN(const float value, ParseReal(part, {0, kTemperatureMax}));
    target->push_back(value);
  }
  return {};
}

Status TakeFormat(const std::string& text, std::optional<TranscriptFormat>* target) {
  *target = TranscriptFormatNamed(text);
  if (target->has_value()) return {};
  return MakeError(ErrorCode::kInvalid, "expected txt, srt, vtt, json, tsv or lrc, found '{}'",
                   Visible(text));
}

}  // namespace

void TranscribeCommandOptions::AddOutput(OptionList& list) {
  list.Group("Output");
  const auto take_format = [this](const std::string& text) { return TakeFormat(text, &format); };
  list.Checked("--format,--output-format", take_format, "txt|srt|vtt|json|tsv|lrc",
               "txt: a line for each segment; srt, vtt: subtitles; tsv: a table of milliseconds; "
               "json: all that is known of the segments; lrc: lines of a song text",
               "as the name of the output ends, else txt");
  list.Values("--format", TranscriptFormatNames());
  list.Text("-o,--output", &output, "FILE|FOLDER",
            "Write to a file, or for each sound file to a file of its name in a folder",
            "standard output");
  list.Flag("-q,--quiet", &quiet, "Show neither progress nor notes");
}

void TranscribeCommandOptions::AddChoice(OptionList& list) {
  list.Group("Text");
  list.Text("-l,--language", &language, "NAME",
            "The spoken language, as a code or in English: de, "
            "german",
            "the likeliest one of the first 30 seconds");
  std::vector<std::string> codes;
  for (const SpeechLanguage& row : SpeechLanguages()) codes.emplace_back(row.code);
  list.Values("--language", std::move(codes));
  list.Flag("--translate", &translates, "Write what is said in English");
  list.Text("--prompt,--initial-prompt", &prompt, "TEXT",
            "Text that seems to come before, for names and spelling");
  list.Flag("--no-context", &no_context, "Do not show the model the text of earlier windows");
  list.Flag("--no-timestamps", &no_timestamps, "Make one segment of each window of 30 seconds");
  list.Checked("--max-initial-timestamp",
               TakeThreshold(&transcribe.max_initial_timestamp, {0, kWindowSeconds}),
               "SECONDS|none", "The first segment of a window begins by then", "1");
  list.Flag("--keep-symbols", &keep_symbols,
            "Allow brackets, notes and other symbols that nobody speaks");
  list.Texts("--suppress-ids", &suppress_ids, "IDS",
             "Ban these tokens, too: 7 or 7,9 or 50257-50300", "none");
  list.Group("Search");
  list.Integer(
      "--beams,--beam-size", &beams, {1, kTextsMax},
      "At temperature 0, follow N texts at once; 1 takes the likeliest token at each step");
  list.Real("--patience", &transcribe.patience, {0, kThresholdMax},
            "End when N times as many texts have ended as there are beams");
  const auto take_temperatures = [this](const std::string& text) {
    return TakeTemperatures(text, &transcribe.temperatures);
  };
  list.Checked("--temperature,--temp", take_temperatures, "N,...",
               "Decode a window at the first temperature, and at the next ones as long as the text "
               "looks wrong",
               "0,0.2,0.4,0.6,0.8,1");
  list.Integer("--best-of", &best_of, {1, kTextsMax},
               "Above temperature 0, draw N texts and take the likeliest");
  list.Real("--length-penalty", &transcribe.length_penalty, {0, 1},
            "Divide a text's sum of log-probabilities by ((5 + length) / 6)^N to rank it",
            "by its length");
  list.Integer("--seed", &seed, {0, std::numeric_limits<int64_t>::max()}, "Seed of all draws");
}

void TranscribeCommandOptions::AddThresholds(OptionList& list) {
  list.Group("When a text looks wrong");
  list.Checked("--compression-ratio-threshold",
               TakeThreshold(&transcribe.compression_ratio_threshold, {0, kThresholdMax}), "N|none",
               "zlib makes it smaller by more than this factor, because it repeats itself", "2.4");
  list.Checked("--log-prob-threshold,--logprob-threshold",
               TakeThreshold(&transcribe.log_prob_threshold, {-kThresholdMax, 0}), "N|none",
               "The mean log-probability of its tokens is lower", "-1");
  list.Checked("--no-speech-threshold", TakeThreshold(&transcribe.no_speech_threshold, {0, 1}),
               "N|none",
               "A window whose probability of no speech is higher has no text, unless the mean "
               "log-probability is above its threshold",
               "0.6");
}

void TranscribeCommandOptions::Add(OptionList& list) {
  AddOutput(list);
  AddChoice(list);
  AddThresholds(list);
  model.AddPath(list);
  model.AddLoading(list);
  session.AddThreads(list);
}

Status TranscribeCommandOptions::Finish(const OptionList& list) {
  if (no_timestamps) KVANT_TRY(list.Exclude({"--max-initial-timestamp"}, "--no-timestamps"));
  transcribe.language = language;
  transcribe.task = translates ? SpeechTask::kTranslate : SpeechTask::kTranscribe;
  transcribe.prompt = prompt.value_or("");
  transcribe.condition_on_previous_text = !no_context;
  transcribe.timestamps = !no_timestamps;
  transcribe.suppress_symbols = !keep_symbols;
  transcribe.beams = static_cast<int32_t>(beams);
  transcribe.best_of = static_cast<int32_t>(best_of);
  transcribe.seed = static_cast<uint64_t>(seed);
  transcribe.cancel = &CancelFlag();
  KVANT_ASSIGN(const auto ids, ParseNumbers("--suppress-ids", suppress_ids,
                                            {0, std::numeric_limits<TokenId>::max()}));
  transcribe.suppress_tokens.assign(ids.begin(), ids.end());
  return {};
}

}  // namespace kvant::tools
