// Answers of OpenAI's Responses: a response of items, whole and as numbered events.
//
// Thread-safety: one thread at a time per object.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "tools/serve/answer/answer_format.h"

namespace kvant::tools {

// Settings of the request that a response repeats.
struct ResponseSettings {
  std::string model;
  Json instructions = nullptr;
  Json max_output_tokens = nullptr;
  Json text_format = {{"type", "text"}};
  Json reasoning_effort = nullptr;
  double temperature = 0;
  double top_p = 0;
  Json tools = Json::array();
  Json tool_choice = "auto";
  bool is_parallel = true;
};

class ResponsesFormat final : public AnswerFormat {
 public:
  explicit ResponsesFormat(ResponseSettings settings);

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
  Json Response(std::string_view status, Json output, const SampleAnswer* ended) const;
  Json OutputOf(const SampleAnswer& sample);
  const std::string& IdOf(size_t item, AnswerBlock::Kind kind);
  Json Item(size_t item, const AnswerBlock& block, std::string_view status);
  Json Place(const SampleAnswer& sample) const;
  void Add(std::string_view type, Json members, Events& events);
  void Open(const SampleAnswer& sample, Events& events);
  void Close(const SampleAnswer& sample, Events& events);

  ResponseSettings settings_;
  std::string id_;
  int64_t created_;
  int64_t sequence_ = 0;          // of the next event
  std::vector<std::string> ids_;  // of the items
  size_t opened_ = 0;             // items whose beginning was told
  bool is_open_ = false;          // the last one of these
};

}  // namespace kvant::tools
