#include "tools/run/options/search_options.h"

#include <limits>

#include "engine/limits.h"
#include "kvant/token_id.h"

namespace kvant::tools {
namespace {

constexpr float kFactorMax = 1e6f;

}  // namespace

void SearchOptions::Add(OptionList& list) {
  list.Group("Beam search");
  list.Integer("--beams", &count, {1, kSequencesMax},
               "Follow N texts at once and show the best; 1 takes the likeliest token at each step",
               "off");
  list.Real("--length-penalty", &length_penalty, {-kFactorMax, kFactorMax},
            "Divide a text's sum of log-probabilities by length^N to get its score", "1");
  list.Text("--early-stopping", &early_stopping, "true|false|never",
            "When to end, once as many texts have ended as there are beams. true: at once; false: "
            "when the best live text now scores less than the worst ended one; never: when no live "
            "text can beat an ended one any more",
            "false");
  list.Integer("--num-return", &num_return, {1, kSequencesMax}, "Texts to show");
  list.Integer("--beam-groups", &groups, {1, kSequencesMax},
               "Groups of beams that avoid each other's tokens");
  list.Real(
      "--diversity,--diversity-penalty", &diversity_penalty, {0, kFactorMax},
      "Penalty on a token for each beam of an earlier group that has chosen it in the same step");
  list.Text("--beam-scoring", &scoring, "hf|ct2|whisper|oga",
            "Score and end texts as another program does: hf (Hugging Face transformers), ct2 "
            "(CTranslate2), whisper (OpenAI Whisper) or oga (ONNX Runtime GenAI)",
            "hf");
  list.Real(
      "--patience", &patience, {0, kFactorMax},
      "With --beam-scoring ct2 or whisper: end when N times as many texts have ended as there "
      "are beams");
}

void SearchOptions::AddSample(OptionList& list) {
  list.Flag("--beam-sample", &sample,
            "Draw tokens by --temp, --top-k and --top-p instead of taking the likeliest");
}

void TokenRuleOptions::Add(OptionList& list) {
  constexpr Bounds<int64_t> kIds = {0, std::numeric_limits<TokenId>::max()};
  constexpr const char* kNoTokens = "none";
  list.Group("Beam search: rules for the next token (in this order)");
  list.Integer("--no-repeat-ngram", &no_repeat_ngram, {0, kContextMax},
               "Allow no sequence of N tokens twice; 0 is off", "0");
  list.Texts("--bad-words-ids", &bad_words, "IDS",
             "Ban sequences of tokens: 5,6;9 is 5 followed by 6, and 9 alone; may be repeated",
             kNoTokens);
  list.Integer("--min-length", &min_length, {0, kContextMax},
               "Allow no end token before the text has N tokens, the prompt included", "0");
  list.Integer("--min-tokens", &min_tokens, {0, kContextMax},
               "Allow no end token before N generated tokens; replaces --min-length", "0");
  list.Integer("--forced-bos-id", &forced_bos, kIds, "Token that follows a prompt of one token",
               kNoTokens);
  list.Texts(
      "--forced-eos-id", &forced_eos, "IDS",
      "Last token of a text that reaches its greatest length, or several to choose from: 2,3",
      kNoTokens);
  list.Texts("--suppress-ids", &suppress, "IDS", "Ban these tokens: 7 or 7,9 or 50257-50300",
             kNoTokens);
  list.Texts(
      "--begin-suppress-ids", &begin_suppress, "IDS",
      "Ban these tokens as the first generated one, or as the second where the first is forced",
      kNoTokens);
  list.Flag(
      "--renormalize", &renormalize,
      "Normalize the probabilities again, after all the rules above and before scores are summed");
}

}  // namespace kvant::tools
