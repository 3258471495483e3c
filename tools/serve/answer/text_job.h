// A request for texts on its way: its samples in the scheduler, and the answer that they make
// together, whole or as a stream of events.
//
// A job lives as long as one of its texts or its stream does. It is made and started by the thread
// that reads requests; the scheduler's thread brings tokens; the server's thread tells that the
// client has gone. Its members are guarded by a mutex.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "kvant/reasoning_text.h"
#include "kvant/stop_text.h"
#include "kvant/text_request.h"
#include "kvant/tool_calls.h"
#include "tools/serve/answer/answer_format.h"
#include "tools/serve/answer/chat_prompt.h"
#include "tools/serve/answer/exchange.h"
#include "tools/serve/answer/gap_limits.h"
#include "tools/serve/answer/served_model.h"
#include "tools/serve/request/request_fields.h"

namespace kvant::tools {

class TextJob final : public std::enable_shared_from_this<TextJob> {
 public:
  using Clock = std::chrono::steady_clock;

  TextJob(ServedModel& served, TextUse use, TextFields fields, std::vector<JobPrompt> prompts,
          std::shared_ptr<const Grammar> grammar, std::unique_ptr<AnswerFormat> format,
          Exchange exchange);

  // The answers of a chat may have calls. Comes before Start.
  void UseTools(ToolUse tools) { tools_ = std::move(tools); }

  // Hands the texts to the scheduler, and answers where it refuses them.
  void Start();

 private:
  // One text: sample number `index` % samples of a prompt.
  struct Sample {
    size_t index = 0;
    const JobPrompt* prompt = nullptr;
    std::shared_ptr<TextRequest> request;    // null once it has ended
    std::optional<ReasoningText> reasoning;  // of a chat without tools
    std::optional<ToolAnswer> calls;         // of one with tools
    std::optional<StopTextFilter> stops;
    std::optional<GapLimits> limits;
    SampleAnswer answer;
    SlotTable::Place place = {};
    std::string raw;                           // the content of a chat with its stop text
    std::vector<TokenLogProbs> waiting;        // of tokens whose text is not out yet
    std::vector<TokenId> waiting_tokens = {};  // these, in a stream
    int64_t tokens = 0;
    std::vector<TokenLogProbs> prompt_log_probs = {};  // once it has ended
    bool thinks = false;                               // reasoning has come, and no content yet
    int64_t thoughts_begin = 0;                        // tokens before this reasoning
    bool told_progress = false;                        // of its prompt
    bool begun = false;                                // its first event is out
    bool stopped = false;
    bool ended = false;
    bool has_new_line = false;  // in what was shown
    double log_prob_sum = 0;
    Clock::time_point first_token = {};
    Clock::time_point last_token = {};
  };

  TextRequest::Setup SetupOf(Sample& sample, std::shared_ptr<const TextInput> input);
  void TakeProgress(Sample& sample, int64_t tokens);
  void SendProgress(Sample& sample, const PromptProgress& progress);
  void ShowInSlot(const Sample& sample, int64_t prompt);
  void TakeToken(Sample& sample, TokenId id, const TokenLogProbs* log_probs);
  bool TakeText(Sample& sample, std::string_view piece);
  bool TakePart(Sample& sample, AnswerPart part, std::string_view text);
  void EndThoughts(Sample& sample);
  void Emit(Sample& sample, AnswerPart part, std::string_view text);
  using EventMaker = std::function<Events(const std::vector<TokenLogProbs>* log_probs)>;
  void EmitEvents(Sample& sample, const EventMaker& make);
  bool TakeCompletion(Sample& sample, std::string_view piece);
  void BeginSample(Sample& sample);
  void Send(const Events& events);
  std::string StopTextOf(const Sample& sample) const;
  std::string StopTextIn(const Generation& generation) const;
  void LeaveSlot(const Sample& sample, const Generation& generation);
  void EndSample(Sample& sample, TextRequest& request);
  void Finish(const ApiError& error);
  void Complete();
  EchoAnswer EchoOf(const Sample& sample) const;
  std::vector<size_t> Kept() const;
  void Leave();
  void CancelAll();

  // text_job_calls.cpp
  void ReadCalls(Sample& sample, GenerateOptions& options);
  bool TakeEvent(Sample& sample, const ToolEvent& event);
  void ReleaseContent(Sample& sample);
  std::string IdOfCall(const ToolEvent& event);
  void EmitCall(Sample& sample, std::string_view text);
  static bool HasCalled(const SampleAnswer& answer);

  bool wants_log_probs() const { return fields_.log_probs.has_value(); }
  ListUse list_use() const { return wants_log_probs() ? ListUse::kWanted : ListUse::kNone; }
  TokenCounts Usage() const;

  ServedModel& served_;
  const TextUse use_;
  const TextFields fields_;
  const std::vector<JobPrompt> prompts_;
  const std::shared_ptr<const Grammar> grammar_;
  Exchange exchange_;
  const std::unique_ptr<AnswerFormat> format_;
  const Clock::time_point came_ = Clock::now();

  std::mutex mutex_;  // guards what follows
  std::optional<ToolUse> tools_;
  std::vector<Sample> samples_;
  size_t ended_ = 0;
  bool first_token_ = false;
  bool answered_ = false;
  bool gone_ = false;  // the client is
};

}  // namespace kvant::tools
