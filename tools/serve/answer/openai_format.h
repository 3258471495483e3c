// Answers of OpenAI's older interfaces: chat.completion and text_completion, whole and in chunks.
//
// Thread-safety: one thread at a time per object.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "tools/serve/answer/answer_format.h"
#include "tools/serve/answer/served_model.h"
#include "tools/serve/request/request_fields.h"

namespace kvant::tools {

class OpenAiFormat final : public AnswerFormat {
 public:
  OpenAiFormat(const ServedModel& served, TextUse use);

  Json Whole(const std::vector<SampleAnswer>& samples, const std::vector<EchoAnswer>& echo,
             ListUse list_use, const TokenCounts& usage) override;
  Events Begin(SampleAnswer& sample, const EchoAnswer* echo, ListUse list_use) override;
  Events Piece(SampleAnswer& sample, AnswerPart part, std::string_view text,
               const std::vector<TokenLogProbs>* log_probs) override;
  Events CallPiece(SampleAnswer& sample, std::string_view text,
                   const std::vector<TokenLogProbs>* log_probs) override;
  Events End(SampleAnswer& sample) override;
  Events UsageEvents(const TokenCounts& usage) override;
  // Without a choice, so that no client takes it for the begin of the text.
  Events Progress(SampleAnswer& sample, const PromptProgress& progress) override;

  static Json UsageJson(const TokenCounts& usage);

 private:
  enum class FrameUse : uint8_t { kWhole, kChunk };

  Json Frame(FrameUse frame) const;
  Json ChunkOf(Json choice) const;
  Json DeltaOf(const SampleAnswer& sample, Json delta,
               const std::vector<TokenLogProbs>* log_probs) const;
  std::string TokenText(TokenId id) const;
  Json ChatLogProbs(const std::vector<TokenLogProbs>& log_probs) const;
  Json ListLogProbs(const EchoAnswer* echo, const std::vector<TokenLogProbs>& log_probs,
                    int64_t* text_offset) const;
  void AddToLists(TokenId id, const TokenLogProbs* log_probs, Json& lists,
                  int64_t* text_offset) const;

  const ServedModel& served_;
  TextUse use_;
  std::string id_;
  int64_t created_ = 0;
};

}  // namespace kvant::tools
