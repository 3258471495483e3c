#include "tools/serve/answer/native_format.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "tools/serve/answer/sampling_json.h"

namespace kvant::tools {
namespace {

// "eos", "limit" or "word".
const char* StopType(const SampleAnswer& sample) {
  if (!sample.stop_text.empty()) return "word";
  return sample.finish_reason == "length" ? "limit" : "eos";
}

}  // namespace

NativeFormat::NativeFormat(const ServedModel& served, const TextFields& fields, NativeFields native,
                           std::vector<std::string> prompts)
    : served_(served),
      native_(std::move(native)),
      prompts_(std::move(prompts)),
      samples_(static_cast<size_t>(fields.samples)),
      after_sampling_(fields.after_sampling),
      settings_(SettingsJson(fields, served.tokenizer())) {}

Json NativeFormat::Probabilities(const std::vector<TokenLogProbs>& log_probs) const {
  const auto entry = [&](const TokenLogProb& one) {
    Json out = {{"id", one.id}};
    out.update(LogProbJson(served_.tokenizer(), one));
    if (after_sampling_) {
      out.erase("logprob");
      out["prob"] = std::exp(one.log_prob);
    }
    return out;
  };
  Json list = Json::array();
  for (const TokenLogProbs& one : log_probs) {
    Json token = entry(one.chosen);
    Json top = Json::array();
    for (const TokenLogProb& other : one.top) top.push_back(entry(other));
    token[after_sampling_ ? "top_probs" : "top_logprobs"] = std::move(top);
    list.push_back(std::move(token));
  }
  return list;
}

// A text that has ended. `content` is what of it comes now.
Json NativeFormat::Text(const SampleAnswer& sample, size_t prompt, Json content) const {
  Json settings = settings_;
  settings["seed"] = sample.seed;
  // The last token of a text is never processed.
  const int64_t processed = sample.prompt_tokens + std::max<int64_t>(sample.completion_tokens, 1);
  return {{"index", sample.index},
          {"content", std::move(content)},
          {"tokens", native_.return_tokens ? Json(sample.tokens) : Json::array()},
          {"id_slot", sample.slot},
          {"stop", true},
          {"model", served_.options().alias},
          {"tokens_predicted", sample.completion_tokens},
          {"tokens_evaluated", sample.prompt_tokens},
          {"generation_settings", std::move(settings)},
          {"prompt", prompts_[prompt]},
          {"has_new_line", sample.content.find('\n') != std::string::npos},
          {"truncated", sample.is_full},
          {"stop_type", StopType(sample)},
          {"stopping_word", sample.stop_text},
          {"tokens_cached", processed - 1},
          {"timings", TimingsJson(sample)}};
}

// The members of an answer that the request has asked for, by their paths.
Json NativeFormat::Chosen(Json all) const {
  if (native_.members.empty()) return all;
  Json out = Json::object();
  for (const std::string& path : native_.members) {
    const Json* place = &all;
    size_t begin = 0;
    while (place != nullptr && begin <= path.size()) {
      const size_t end = std::min(path.find('/', begin), path.size());
      const auto member =
          place->is_object() ? place->find(path.substr(begin, end - begin)) : place->end();
      place = place->is_object() && member != place->end() ? &*member : nullptr;
      begin = end + 1;
    }
    if (place != nullptr) out[path] = *place;
  }
  return out;
}

Json NativeFormat::Whole(const std::vector<SampleAnswer>& samples, const std::vector<EchoAnswer>&,
                         ListUse list_use, const TokenCounts&) {
  Json out = Json::array();
  for (size_t i = 0; i < samples.size(); ++i) {
    Json text = Text(samples[i], i / samples_, samples[i].content);
    text["index"] = i;
    if (list_use == ListUse::kWanted) {
      text["completion_probabilities"] = Probabilities(samples[i].log_probs);
    }
    out.push_back(Chosen(std::move(text)));
  }
  return out.size() == 1 ? Json(out[0]) : out;
}

Json NativeFormat::Chunk(const SampleAnswer& sample, std::string_view text) const {
  return {{"index", sample.index},
          {"content", text},
          {"tokens", sample.tokens},
          {"stop", false},
          {"id_slot", sample.slot},
          {"tokens_predicted", sample.completion_tokens},
          {"tokens_evaluated", sample.prompt_tokens}};
}

Events NativeFormat::Piece(SampleAnswer& sample, AnswerPart, std::string_view text,
                           const std::vector<TokenLogProbs>* log_probs) {
  Json chunk = Chunk(sample, text);
  if (log_probs != nullptr) chunk["completion_probabilities"] = Probabilities(*log_probs);
  return {std::move(chunk)};
}

Events NativeFormat::Progress(SampleAnswer& sample, const PromptProgress& progress) {
  Json chunk = Chunk(sample, "");
  chunk["prompt_progress"] = ProgressJson(sample, progress);
  return {std::move(chunk)};
}

Events NativeFormat::End(SampleAnswer& sample) {
  return {Chosen(Text(sample, sample.index / samples_, ""))};
}

}  // namespace kvant::tools
