// Chooses the next token from a row of logits.
//
// Names, defaults, order and interplay are those of llama.cpp (October 2026): the chain of stages
// of logit_stage.h, which has the logit bias, then the samplers
//     penalties, dry, top_n_sigma, top_k, typ_p, top_p, min_p, xtc, temperature
// in this or another order, then a draw. Two samplers come last wherever they are named: mirostat,
// which takes the place of all others but the temperature, and adaptive_p. A token whose logit is
// -infinity is no candidate: it is not counted where candidates are.
//
// A temperature of 0 or less leaves the likeliest of the candidates that the samplers in front of
// it leave, the lower id of equal ones. It is the limit of small temperatures: in the default chain
// penalties, DRY, typical sampling and XTC change which token that is; top_n_sigma, top_k, top_p
// and min_p never remove the likeliest token, so where only they stand between another sampler and
// the temperature they are passed over.
//
// Equal logits, options, seed and accepted tokens give the same token on any machine: probabilities
// are integers of 40 fractional bits computed with engine/generate/portable_math.h, so that sums do
// not depend on their order; ties go to the lower token id; random numbers are those of
// include/kvant/random.h.
//
// Thread-safety: one thread at a time per object. After the first calls Sample allocates nothing,
// DRY apart.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "kvant/logit_stage.h"
#include "kvant/random.h"
#include "kvant/result.h"
#include "kvant/tokenizer.h"

namespace kvant {

class LogitChain;

struct LogitBias {
  TokenId token = 0;
  float bias = 0;  // added to the logit; -infinity forbids the token
};

struct SamplingOptions {
  // The chain by the names above, a name as often as it is to apply; absent: all in that order,
  // without adaptive_p. Not looked at with mirostat.
  std::optional<std::vector<std::string>> samplers;

  // Penalties for tokens that occurred. CTRL (Keskar et al., 2019); OpenAI.
  float repeat_penalty = 1.0f;  // divides positive logits, multiplies negative ones; 1: off
  int32_t repeat_last_n = 64;   // accepted tokens that penalties look at; 0: off, -1: all
  float presence_penalty = 0;   // subtracted once from a token that occurred
  float frequency_penalty = 0;  // subtracted for each occurrence

  // DRY (p-e-w, 2024): a token that would continue a repetition of n tokens, n >= allowed_length,
  // loses multiplier * base^(n - allowed_length). Repetitions do not reach across a breaker.
  float dry_multiplier = 0;  // 0: off
  float dry_base = 1.75f;
  int32_t dry_allowed_length = 2;
  int32_t dry_penalty_last_n = 64;  // accepted tokens that are looked at; 0: off, -1: all
  std::vector<std::string> dry_sequence_breakers = {"\n", ":", "\"", "*"};

  float top_n_sigma = -1;       // keep logits >= max - n standard deviations; <= 0: all
  int32_t top_k = 40;           // keep the k likeliest; <= 0: all
  float typical = 1.0f;         // keep the most typical that exceed p together; 1: all
  float top_p = 0.95f;          // keep the fewest whose probabilities reach p; 1: all
  float min_p = 0.05f;          // drop those below p times the likeliest; 0: none
  float xtc_probability = 0;    // XTC (p-e-w, 2024): how often it acts; 0: never
  float xtc_threshold = 0.1f;   // all but the least likely with p >= threshold go; > 0.5: off
  float temperature = 0.8f;     // <= 0: the likeliest
  float dynatemp_range = 0;     // the temperature is from T - range to T + range; 0: fixed at T
  float dynatemp_exponent = 1;  // (entropy / its maximum)^exponent says where in that range
  int32_t min_keep = 0;         // top-p, min-p, typical and XTC keep at least so many

  // Mirostat (Basu et al., 2020), version 1 or 2: keeps the surprise of tokens, in bits, near tau.
  int32_t mirostat = 0;  // 0: off
  float mirostat_tau = 5;
  float mirostat_eta = 0.1f;  // how fast it adapts

  // Adaptive-p (llama.cpp, 2026): draws near this probability; < 0: off. `samplers` must name it.
  float adaptive_target = -1;
  float adaptive_decay = 0.9f;  // of the average over the tokens drawn, 0 to 0.99

  std::vector<LogitBias> logit_bias;
  std::optional<uint64_t> seed;  // absent: one is drawn from the system
};

// SamplingOptions::samplers of names joined by ';' ("top_k;temperature"; llama.cpp's other
// spellings as well), or of letters ("kt"). kInvalid for an unknown one, with those that are known.
Result<std::vector<std::string>> ParseSamplers(std::string_view names);
Result<std::vector<std::string>> ParseSamplerLetters(std::string_view letters);

// A token that the samplers have left, and how likely it was to be drawn then.
struct TokenChance {
  TokenId id = 0;
  double probability = 0;
};

class Sampler {
 public:
  // kInvalid, naming the option, the range and the value, for options that make no sense. The
  // tokenizer is for DRY's breakers, and for the tokens that it says are never to be generated; it
  // is not kept.
  static Result<Sampler> Create(const SamplingOptions& options, int32_t vocab_size,
                                const Tokenizer* tokenizer = nullptr);
  Sampler(const Sampler& other);
  Sampler(Sampler&&) noexcept;
  Sampler& operator=(const Sampler& other);
  Sampler& operator=(Sampler&&) noexcept;
  ~Sampler();

  // The next token of logits [vocab_size]; it is not accepted yet. NaN counts as -infinity, +inf as
  // the largest number. kInvalid if no token has a finite logit.
  Result<TokenId> Sample(std::span<const float> logits);
  // The next token of the text; nullopt where a stage that ends texts has left no token.
  Result<std::optional<TokenId>> Next(std::span<const float> logits, const LogitText& text);

  // The tokens among which the last call of Sample or Next has drawn one, with the probabilities of
  // that draw, which add up to 1: the `count` likeliest, the lower id first of equal ones. There
  // are fewer where the samplers have left fewer, and none where nothing was drawn. Tokens of
  // probability 0 are left out.
  std::vector<TokenChance> Chances(size_t count);
  // The probability that a token had in that draw; 0 for one that the samplers have removed.
  double ChanceOf(TokenId token);

  // Tells stages and samplers that a token of the prompt or of the text has passed. Ids outside the
  // vocabulary are ignored.
  void Accept(TokenId token, TokenFrom from = TokenFrom::kText);

  // Never to be chosen from now on.
  void Forbid(TokenId token);

  // The stages in front of the samplers.
  LogitChain& logits();
  const LogitChain& logits() const;

  int32_t vocab_size() const;
  uint64_t seed() const { return seed_; }

 private:
  struct Chain;

  Sampler(std::unique_ptr<Chain> chain, uint64_t seed);

  std::unique_ptr<Chain> chain_;
  uint64_t seed_;
};

}  // namespace kvant
