#include "tools/run/text_report.h"

#include <fmt/format.h>

#include "base/counted.h"
#include "tools/options/json.h"
#include "tools/options/model_facts.h"
#include "tools/terminal/console.h"

namespace kvant::tools {
namespace {

Json Rate(int64_t tokens, double seconds) {
  if (tokens == 0 || seconds <= 0) return nullptr;
  return static_cast<double>(tokens) / seconds;
}

std::string SpeedText(const char* phase, int64_t tokens, double seconds) {
  std::string text = fmt::format("{} {}", phase, Counted(tokens, "token"));
  if (tokens > 0 && seconds > 0) {
    text += fmt::format(", {:.1f} tokens/s", static_cast<double>(tokens) / seconds);
  }
  return text;
}

const char* EndText(FinishReason reason) {
  switch (reason) {
    case FinishReason::kStop: return "end token";
    case FinishReason::kStopText: return "stop text";
    case FinishReason::kLength: return "-n";
    case FinishReason::kContext: return "full context";
    case FinishReason::kMemory: return "full KV cache memory";
    case FinishReason::kCancelled: return "interruption";
    case FinishReason::kDeadline: return "time limit";
    case FinishReason::kNoToken: return "no token left";
  }
  return "";
}

}  // namespace

std::string TextJson(const std::string& model, const std::vector<TokenId>& prompt,
                     std::span<const TokenId> source, const Generation& generation, uint64_t seed,
                     double load_seconds) {
  Json out;
  out["model"] = model;
  if (!source.empty()) out["source_ids"] = std::vector<TokenId>(source.begin(), source.end());
  out["prompt_tokens"] = prompt.size();
  out["prompt_ids"] = prompt;
  out["text"] = generation.text;
  out["ids"] = generation.ids;
  out["finish_reason"] = FinishReasonName(generation.finish_reason);
  out["seed"] = seed;
  out["timings"] = {
      {"load_seconds", load_seconds},
      {"prefill_tokens", generation.prefill_tokens},
      {"prefill_seconds", generation.prefill_seconds},
      {"prefill_tokens_per_second", Rate(generation.prefill_tokens, generation.prefill_seconds)},
      {"decode_tokens", generation.decode_tokens},
      {"decode_seconds", generation.decode_seconds},
      {"decode_tokens_per_second", Rate(generation.decode_tokens, generation.decode_seconds)},
  };
  if (generation.drafted_tokens > 0) {
    out["draft"] = {{"drafted_tokens", generation.drafted_tokens},
                    {"accepted_tokens", generation.accepted_tokens},
                    {"passes", generation.decode_passes}};
  }
  return Dump(out) + "\n";
}

// Short lines, for terminals of 40 columns.
void PrintSummary(const Generation& generation, uint64_t kv_bytes, uint64_t kv_bytes_planned) {
  std::string lines;
  if (generation.drafted_tokens > 0) {
    lines += fmt::format("guesses {} of {} right\npasses {} for {}\n", generation.accepted_tokens,
                         generation.drafted_tokens, generation.decode_passes,
                         Counted(generation.decode_tokens, "token"));
  }
  WriteError(
      lines +
      fmt::format("{}\n{}\nKV cache {} of {}\nended by {}\n",
                  SpeedText("prefill", generation.prefill_tokens, generation.prefill_seconds),
                  SpeedText("decode", generation.decode_tokens, generation.decode_seconds),
                  SizeText(kv_bytes), SizeText(kv_bytes_planned),
                  EndText(generation.finish_reason)));
}

std::string EarlyEnd(FinishReason reason, int64_t context, GrammarUse grammar) {
  switch (reason) {
    case FinishReason::kLength:
      return grammar == GrammarUse::kFollowed ? "-n ends the text before its grammar does" : "";
    case FinishReason::kContext:
      return fmt::format("the context of {} is full: the text ends here; -c makes it larger",
                         Counted(context, "token"));
    case FinishReason::kMemory: return "the KV cache's memory is full: the text ends here";
    case FinishReason::kNoToken: return "no token is left to go on with: the text ends here";
    default: return "";
  }
}

}  // namespace kvant::tools
