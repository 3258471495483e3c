// Tells content and calls apart, in all formats but that of channels.
//
// The text that is not yet understood is read again from its beginning when more has come. It is
// short: what calls have before their arguments, one value between tags, what stands between calls.
//
// Thread-safety: one thread at a time.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "engine/text/calls/answer_events.h"
#include "engine/text/calls/call_cursor.h"
#include "engine/text/calls/json_scan.h"
#include "engine/text/calls/tool_list.h"
#include "kvant/tool_calls.h"

namespace kvant {

class CallReader {
 public:
  // All must outlive the reader. `prompt` may end with the mark that begins a call.
  CallReader(const ToolFormat& format, const ToolList& tools, std::string_view prompt,
             AnswerEvents& events);

  void Push(std::string_view text);
  void Finish();

 private:
  enum class State : uint8_t { kContent, kHeader, kArguments, kBehind, kBetween, kRest };
  enum class Next : uint8_t { kAgain, kWait };

  Next Step();
  Next StepContent();
  Next StepHeader();
  Next StepArguments();
  Next StepBehind();
  Next StepBetween();
  Next StepRest();

  Next StepJson();
  Next StepTextArguments();
  Next StepTag();
  Next StepValue();
  Next StepItem();

  Next NoCall();
  Next Malformed();
  Next WaitOrCut();
  Next EndArguments();
  Next EndItems();
  void BeginArgument(std::string_view key);

  std::string_view Pending() const { return std::string_view(pending_).substr(head_); }
  void Drop(size_t bytes) { head_ += bytes; }

  const ToolFormat& format_;
  const ToolList& tools_;
  AnswerEvents& events_;
  bool is_bare_ = false;
  std::vector<std::string> opens_;   // what begins a call
  std::vector<std::string> skips_;   // what is left out
  std::vector<std::string> closes_;  // what may stand behind a call

  State state_ = State::kContent;
  std::string pending_;
  size_t head_ = 0;  // bytes of it that are done
  bool is_finished_ = false;
  bool may_begin_bare_ = true;  // nothing but blanks and calls came so far
  bool is_in_array_ = false;
  bool is_behind_skipped_ = false;

  // The call under way.
  JsonScan scan_;
  std::string name_;
  int depth_ = 0;
  bool has_text_arguments_ = false;
  bool has_argument_ = false;
  // The value between tags under way.
  bool is_in_value_ = false;
  bool is_first_of_value_ = false;
  ToolTypes types_ = kTypeAny;
  size_t searched_ = 0;  // bytes in which its end is not
};

}  // namespace kvant
