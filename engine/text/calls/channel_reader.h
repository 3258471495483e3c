// Tells thoughts, content and calls apart in answers with channels, as gpt-oss writes them:
//
//     <|channel|>analysis<|message|>thoughts<|end|>
//     <|start|>assistant<|channel|>commentary to=functions.f <|constrain|>json<|message|>{}<|call|>
//     <|start|>assistant<|channel|>final<|message|>content<|return|>
//
// Thread-safety: one thread at a time.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "engine/text/calls/answer_events.h"
#include "engine/text/calls/json_scan.h"

namespace kvant {

class ChannelReader {
 public:
  // `events` must outlive the reader. `prompt` may end with the beginning of a message.
  ChannelReader(std::string_view prompt, AnswerEvents& events);

  void Push(std::string_view text);
  void Finish();

 private:
  enum class State : uint8_t { kOutside, kHeader, kReasoning, kContent, kArguments, kBehindCall };

  bool Step();  // whether there may be more to do
  bool StepHeader();
  bool StepBody();
  void Begin(std::string_view header);
  void Hand(std::string_view text);
  void EndCall();

  AnswerEvents& events_;
  State state_ = State::kOutside;
  std::string pending_;
  bool is_finished_ = false;
  bool has_begun_part_ = false;  // a message of the same part came before, and this one is new
  JsonScan scan_;
  bool has_begun_arguments_ = false;
  std::string behind_;  // text behind the arguments of a call
};

}  // namespace kvant
