// Answers of llama-server's own interface: an object for each text, with its settings, and events
// without [DONE].
//
// Thread-safety: one thread at a time per object.
#pragma once

#include <string>
#include <vector>

#include "tools/serve/answer/answer_format.h"
#include "tools/serve/answer/served_model.h"
#include "tools/serve/request/native_fields.h"
#include "tools/serve/request/request_fields.h"

namespace kvant::tools {

class NativeFormat final : public AnswerFormat {
 public:
  // `prompts` are the texts of all prompts, with their control tokens.
  NativeFormat(const ServedModel& served, const TextFields& fields, NativeFields native,
               std::vector<std::string> prompts);

  Json Whole(const std::vector<SampleAnswer>& samples, const std::vector<EchoAnswer>& echo,
             ListUse list_use, const TokenCounts& usage) override;
  Events Begin(SampleAnswer&, const EchoAnswer*, ListUse) override { return {}; }
  Events Piece(SampleAnswer& sample, AnswerPart part, std::string_view text,
               const std::vector<TokenLogProbs>* log_probs) override;
  Events End(SampleAnswer& sample) override;
  Events UsageEvents(const TokenCounts&) override { return {}; }
  Events Progress(SampleAnswer& sample, const PromptProgress& progress) override;
  bool ends_with_done() const override { return false; }

 private:
  Json Text(const SampleAnswer& sample, size_t prompt, Json content) const;
  Json Chunk(const SampleAnswer& sample, std::string_view text) const;
  Json Probabilities(const std::vector<TokenLogProbs>& log_probs) const;
  Json Chosen(Json all) const;

  const ServedModel& served_;
  NativeFields native_;
  std::vector<std::string> prompts_;
  size_t samples_;       // of each prompt
  bool after_sampling_;  // the probabilities are those of draws
  Json settings_;        // of the request, without its seed
};

}  // namespace kvant::tools
