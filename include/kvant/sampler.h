// Chooses the next token from a row of logits.
//
// The chain, its order and its defaults are those of llama.cpp (common/sampling.cpp, February
// 2025): logit bias, penalties, top-k, typical, top-p, min-p, temperature, draw. A temperature of 0
// takes the likeliest token.
//
// The same logits, options, seed and accepted tokens give the same token on any machine:
// probabilities are integers of 40 fractional bits computed with engine/generate/portable_math.h,
// so that sums do not depend on their order; ties go to the lower token id; random numbers are
// those of include/kvant/random.h.
//
// Thread-safety: one thread at a time per object. After the first call Sample allocates nothing.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "kvant/random.h"
#include "kvant/result.h"
#include "kvant/tokenizer.h"

namespace kvant {

struct LogitBias {
  TokenId token = 0;
  float bias = 0;  // added to the logit; -infinity forbids the token
};

struct SamplingOptions {
  float temperature = 0.8f;     // <= 0: greedy, the filters below do not matter then
  int32_t top_k = 40;           // keep the k likeliest; <= 0: all
  float top_p = 0.95f;          // keep the fewest whose probabilities reach p; 1: all
  float min_p = 0.05f;          // drop those below p times the likeliest; 0: none
  float typical = 1.0f;         // keep the most typical that exceed p together; 1: all
  int32_t min_keep = 0;         // top-p, min-p and typical keep at least so many
  float repeat_penalty = 1.0f;  // divides positive logits, multiplies negative ones; 1: off
  int32_t repeat_last_n = 64;   // accepted tokens that penalties look at; 0: off, -1: all
  float presence_penalty = 0;   // subtracted once from a token that occurred
  float frequency_penalty = 0;  // subtracted for each occurrence
  std::vector<LogitBias> logit_bias;
  std::optional<uint64_t> seed;  // absent: one is drawn from the system
};

class Sampler {
 public:
  // kInvalid, naming the option, the range and the value, for options that make no sense.
  static Result<Sampler> Create(const SamplingOptions& options, int32_t vocab_size);

  // The next token of logits [vocab_size]; it is not accepted yet. NaN counts as -infinity, +inf as
  // the largest number. kInvalid if no token has a finite logit.
  Result<TokenId> Sample(std::span<const float> logits);

  // Tells the penalties that a token of the prompt or of the text has passed. Ids outside the
  // vocabulary are ignored.
  void Accept(TokenId token);

  // Never to be chosen from now on.
  void Forbid(TokenId token);

  uint64_t seed() const { return seed_; }

 private:
  struct Candidate {
    float logit;
    TokenId id;
    uint64_t weight;  // probability relative to the likeliest candidate, in units of 2^-40
  };

  Sampler(const SamplingOptions& options, int32_t vocab_size, uint64_t seed);

  // The stages, in the order of the chain. Those on candidates_ leave at least one.
  void AdjustLogits(std::span<const float> logits);
  void TakeTopK();
  void ApplyTypical();
  void ApplyTopP();
  void ApplyMinP();
  TokenId Draw();

  bool penalties_active() const;
  void Gather(size_t count);
  void ComputeWeights(double temperature);
  void SortPrefix(size_t count);
  void Keep(size_t count);

  SamplingOptions options_;
  uint64_t seed_;
  Xoshiro256 random_;

  // Penalty window: how often each token occurs in it, which tokens occur, and the window itself as
  // a ring (unused where the window is unlimited).
  std::vector<int32_t> counts_;  // [vocab_size] if penalties are active, else empty
  std::vector<TokenId> present_;
  std::vector<TokenId> window_;
  size_t window_next_ = 0;

  std::vector<float> logits_;          // [vocab_size], after bias and penalties
  std::vector<Candidate> candidates_;  // in id order, then a sorted prefix and a rest
  size_t sorted_ = 0;                  // length of the prefix that is in order
  uint64_t weight_total_ = 0;
  struct Surprise {  // scratch of ApplyTypical
    double distance;
    size_t index;
  };
  std::vector<Surprise> surprises_;
  std::vector<Candidate> kept_;
};

}  // namespace kvant
