// Answers of Anthropic's Messages: a message of blocks, whole and as events.
//
// Thread-safety: one thread at a time per object.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "tools/serve/answer/answer_format.h"

namespace kvant::tools {

class MessagesFormat final : public AnswerFormat {
 public:
  explicit MessagesFormat(std::string model) : model_(std::move(model)), id_(RandomId("msg_")) {}

  Json Whole(const std::vector<SampleAnswer>& samples, const std::vector<EchoAnswer>& echo,
             ListUse list_use, const TokenCounts& usage) override;
  Events Begin(SampleAnswer& sample, const EchoAnswer* echo, ListUse list_use) override;
  Events Piece(SampleAnswer& sample, AnswerPart part, std::string_view text,
               const std::vector<TokenLogProbs>* log_probs) override;
  Events CallPiece(SampleAnswer& sample, std::string_view text,
                   const std::vector<TokenLogProbs>* log_probs) override;
  Events CallEnd(SampleAnswer& sample) override;
  Events End(SampleAnswer& sample) override;
  Events UsageEvents(const TokenCounts&) override { return {}; }
  Events Failure(const ApiError& error) override;
  bool names_events() const override { return true; }

 private:
  Json Message(Json content, const SampleAnswer& sample) const;
  void Open(const SampleAnswer& sample, Events& events);
  void Close(Events& events);
  Json Delta(std::string_view type, std::string_view member, std::string_view text) const;

  std::string model_;
  std::string id_;
  size_t opened_ = 0;     // blocks whose beginning was told
  bool is_open_ = false;  // the last one of these
};

// {"type": "error", "error": {"type", "message"}}, and "details" where an error has some.
Json MessagesErrorJson(const ApiError& error);

}  // namespace kvant::tools
