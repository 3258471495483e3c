// Decides which prompts a round of a scheduler processes, and how many of their tokens.
//
// Thread-safety: none; it belongs to the thread that serves.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "kvant/request.h"

namespace kvant {

class PromptTurns {
 public:
  // Both as in SchedulerOptions: tokens and seconds of a round.
  PromptTurns(int64_t slice, double stall) : slice_(slice), stall_(stall) {}

  // No limit to the tokens of a round.
  static constexpr int64_t kUnlimited = INT64_MAX;

  // How many tokens of prompts the next round may process. `texts`: how many requests are beyond
  // their prompts, and wait for the round.
  int64_t Budget(const PromptCut& cut, int64_t texts) const;

  // Learns from a step with so many tokens of prompts and so many others.
  void Learn(int64_t prompt_tokens, int64_t other_tokens, double seconds);

  // The requests that process their prompts, in the order of this round: as they began, or those
  // with the least left first, so that both orders process as many tokens. Valid until the next
  // call.
  std::span<Request* const> InTurn(std::span<Request* const> running);

  // Whether the request, which has not begun its prompt, waits for another one that is computing
  // what both begin with.
  static bool Waits(const Request& request, std::span<Request* const> running,
                    int64_t prefix_block);

 private:
  static int64_t Left(const Request& request);

  int64_t slice_;
  double stall_;
  double token_seconds_ = 0;  // of a token of a prompt; 0: not known yet
  double text_seconds_ = 0;   // of a step without prompts
  bool shortest_first_ = false;
  bool has_choice_ = false;  // the order of the last round mattered
  // Tokens of prompts that rounds of each order have processed since there was a choice. Turns
  // would not do: a round may process ten times the tokens of the one before.
  int64_t begun_tokens_ = 0;
  int64_t shortest_tokens_ = 0;
  std::vector<Request*> order_;
};

}  // namespace kvant
