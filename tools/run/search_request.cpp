#include "tools/run/search_request.h"

#include <algorithm>
#include <limits>
#include <sstream>
#include <string>
#include <vector>

#include "base/result.h"
#include "base/system_random.h"
#include "kvant/beam_search.h"
#include "tools/options/number_list.h"

namespace kvant::tools {
namespace {

// Leaves `tokens` as they are where the option was not given.
Status TakeIds(const char* option, const std::vector<std::string>& texts,
               std::vector<TokenId>& tokens) {
  if (texts.empty()) return {};
  constexpr int64_t kMost = std::numeric_limits<TokenId>::max();
  KVANT_ASSIGN(const auto numbers, ParseNumbers(option, texts, {0, kMost}));
  tokens.assign(numbers.begin(), numbers.end());
  return {};
}

// "5,6;9": the tokens 5 and 6 in this order, and token 9.
Status TakeWords(const std::vector<std::string>& texts, std::vector<std::vector<TokenId>>& words) {
  for (const std::string& text : texts) {
    std::istringstream lists(text + ";");
    for (std::string list; std::getline(lists, list, ';');) {
      KVANT_TRY(TakeIds("--bad-words-ids", {list}, words.emplace_back()));
    }
  }
  return {};
}

// Takes the options that force and ban tokens; where one is not given, the model's file decides.
Status TakeRules(const TokenRuleOptions& rules, BeamOptions& out) {
  if (rules.forced_bos) out.forced_bos = static_cast<TokenId>(*rules.forced_bos);
  KVANT_TRY(TakeIds("--forced-eos-id", rules.forced_eos, out.forced_eos));
  KVANT_TRY(TakeIds("--suppress-ids", rules.suppress, out.suppress));
  KVANT_TRY(TakeIds("--begin-suppress-ids", rules.begin_suppress, out.begin_suppress));
  KVANT_TRY(TakeWords(rules.bad_words, out.bad_words));
  out.min_length = rules.min_length.value_or(out.min_length);
  out.min_new_tokens = rules.min_tokens.value_or(out.min_new_tokens);
  out.no_repeat_ngram = static_cast<int32_t>(rules.no_repeat_ngram.value_or(out.no_repeat_ngram));
  out.renormalize = out.renormalize || rules.renormalize;
  return {};
}

}  // namespace

Result<BeamOptions> ToBeamOptions(const RunOptions& options, const Model& model,
                                  const Translation& translation) {
  const SearchOptions& search = options.search;
  BeamOptions out = search.model;
  out.beams = static_cast<int32_t>(search.beams());
  out.num_return = static_cast<int32_t>(search.num_return);
  out.groups = static_cast<int32_t>(search.groups);
  out.diversity_penalty = search.diversity_penalty;
  out.patience = search.patience;
  KVANT_ASSIGN(out.scoring, ParseBeamScoring(search.scoring.value_or("hf")));
  if (search.early_stopping) {
    KVANT_ASSIGN(out.early_stopping, ParseEarlyStopping(*search.early_stopping));
  }
  if (search.length_penalty) out.length_penalty = search.length_penalty;
  KVANT_TRY(TakeRules(search.rules, out));
  if (translation.forced) out.forced_bos = translation.forced;
  const auto& ends = model.tokenizer().special().end_of_generation;
  if (options.ignore_eos) {
    out.suppress.insert(out.suppress.end(), ends.begin(), ends.end());
    out.forced_eos.clear();
    out.end_tokens.clear();
  } else {
    out.end_tokens.assign(ends.begin(), ends.end());
  }
  const SamplingOptions sampling = options.sampling.Options();
  out.repetition_penalty = sampling.repeat_penalty;
  if (search.sample) {
    out.sample = true;
    out.temperature = sampling.temperature;
    out.top_k = sampling.top_k;
    out.top_p = sampling.top_p;
    out.seed = sampling.seed.has_value() ? *sampling.seed : SystemRandom();
  }
  return out;
}

Result<BeamOptions> Processors(const RunOptions& options, const Model& model, size_t first,
                               int64_t* max_tokens) {
  Translation translation;
  if (!model.frame_shape().has_value()) {
    KVANT_ASSIGN(translation, MakeTranslation(model, options.translation.languages));
  }
  KVANT_ASSIGN(BeamOptions out, ToBeamOptions(options, model, translation));
  out.repetition_penalty = 1.0f;  // the sampler's
  *max_tokens = options.max_tokens;
  if (options.max_tokens < 0 && out.max_length > 0) {
    *max_tokens = std::max<int64_t>(1, out.max_length - static_cast<int64_t>(first));
  }
  return out;
}

}  // namespace kvant::tools
