#include "engine/evaluate/text_pairs.h"

#include <algorithm>
#include <nlohmann/json.hpp>

#include "base/result.h"
#include "engine/evaluate/token_scores.h"
#include "formats/gguf.h"
#include "formats/json.h"

namespace kvant::evaluate {
namespace {

Result<std::string> TextOf(const formats::Json& json, const char* key, const std::string& place) {
  const auto found = json.find(key);
  if (found != json.end() && found->is_string()) return found->get<std::string>();
  return MakeError(ErrorCode::kInvalid, "{}: \"{}\" is no text", place, key);
}

Result<TextPair> ParsePair(std::string_view text, const std::string& place) {
  KVANT_ASSIGN(const formats::Json json, formats::ParseJson(text, place));
  if (!json.is_object()) {
    return MakeError(ErrorCode::kInvalid, "{}: expected a JSON object, found {}", place,
                     formats::Shown(json));
  }
  TextPair pair;
  KVANT_ASSIGN(pair.source, TextOf(json, "source", place));
  KVANT_ASSIGN(pair.target, TextOf(json, "target", place));
  return pair;
}

}  // namespace

TextPairs ParseTextPairs(std::string_view text, const std::string& file) {
  TextPairs out;
  for (int64_t number = 1; !text.empty(); ++number) {
    const std::string_view line = text.substr(0, text.find('\n'));
    text.remove_prefix(std::min(line.size() + 1, text.size()));
    if (line.find_first_not_of(" \t\r") == std::string_view::npos) continue;
    auto pair = ParsePair(line, fmt::format("{}:{}", file, number));
    if (!pair.ok()) {
      out.problems.push_back(pair.error().message);
      continue;
    }
    pair->line = number;
    out.pairs.push_back(std::move(*pair));
  }
  return out;
}

Result<PairTokens> EncodePair(const TextPair& pair, const Model& model,
                              const LanguageNames& names) {
  const std::string& file = model.file().path();
  if (!model.has_encoder()) {
    return MakeError(ErrorCode::kInvalid, "{}: pairs: the model reads no source", file);
  }
  KVANT_ASSIGN(const Translation translation, MakeTranslation(model, names));
  if (!translation.first) {
    return MakeError(ErrorCode::kInvalid, "{}: the file names no token that texts begin with",
                     file);
  }
  if (translation.forces_language && !translation.forced) {
    return MakeError(ErrorCode::kInvalid,
                     "{}: pairs: this model's texts begin with their language: expected "
                     "--target-lang LANGUAGE, found none",
                     file);
  }
  PairTokens out;
  KVANT_ASSIGN(out.source, EncodeSource(model, translation, pair.source));
  KVANT_ASSIGN(out.target, EncodeTarget(model, translation, pair.target, TargetEnd::kClosed));
  const bool no_target = out.target.size() < 2;
  if (!out.source.empty() && !no_target) return out;
  return MakeError(ErrorCode::kInvalid, "the {} has no tokens", no_target ? "target" : "source");
}

Status PairScorer::Add(const PairTokens& pair) {
  Runner& runner = session_.runner();
  KVANT_TRY(runner.Reset(session_.sequence()));
  KVANT_ASSIGN(const SourceId source, runner.Encode(pair.source));
  const Status set = runner.SetSource(session_.sequence(), source);
  KVANT_TRY(runner.FreeSource(source));
  if (!set.ok()) return set.error();
  KVANT_ASSIGN(const auto scores, ScoreTokens(session_, pair.target, 0));
  for (const TokenScore& score : scores) nll_.Add(-score.log_prob);
  tokens_ += std::ssize(scores);
  ++pairs_;
  return {};
}

PairReport PairScorer::report() const {
  PairReport report = {.pairs = pairs_, .tokens = tokens_, .perplexity = {}, .nll = {}};
  if (tokens_ == 0) return report;
  report.nll = nll_.Mean(tokens_);
  report.perplexity = Exp(report.nll);
  return report;
}

}  // namespace kvant::evaluate
