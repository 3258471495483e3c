// A row for each option of sessions: where it lies in C++ and in C, what it may be, and how the
// command line spells it. Checks, copies to and from C, help and command line walk the rows.
//
// A new option is a field of SessionOptions, a field at the end of kvant_runner_options, and a row
// in session_settings.cpp, which does not compile while one of the three is missing.
// Thread-safety: rows are constant.
#pragma once

#include <cstdint>
#include <limits>
#include <span>
#include <string>
#include <string_view>

#include "engine/option_field.h"
#include "kvant/kvant_runner.h"
#include "kvant/result.h"
#include "kvant/session_options.h"

namespace kvant {

// Commands add the options of a topic together, in the order of the rows.
enum class SessionTopic : uint8_t {
  kThreads,
  kPlacement,
  kContext,
  kTypes,
  kRotation,
  kStates,
  kOffload,
  kPasses,
  kMemory,
  kPrefixes,
  kNone,  // commands decide on these, or have other options for them
};

struct SessionSetting {
  enum class Kind : uint8_t { kNumber, kBytes, kFlag, kChoice };

  struct Field {
    Kind kind;
    WholeField<SessionOptions> ours;
    WholeField<kvant_runner_options> in_c;
    std::span<const std::string_view> choices;  // kChoice: the names of all that there are
    bool may_lack;                              // kChoice: -1 is no choice
  };

  std::string_view name;  // of the field in C and Python: "state_log"; messages have blanks
  Field field;

  // The range in messages has {0} and {1} for these bounds; where it is "" any value will do.
  int64_t min = std::numeric_limits<int64_t>::min();
  int64_t max = std::numeric_limits<int64_t>::max();
  std::string_view range = "";

  SessionTopic topic = SessionTopic::kNone;
  // The spellings on the command line: "-t,--threads". A flag sets the opposite of the default.
  std::string_view flags = "";
  std::string_view type = "N";     // of the value, in the help
  std::string_view help = "";      // "": the command line composes it
  std::string_view fallback = "";  // kBytes and kChoice: in the help
  int64_t typed_min = min;         // the least number that may be typed
  bool is_of_cache = false;        // means nothing without a KV cache
  bool is_for_debugging = false;   // stands apart in the help
  // Reads a typed choice; null: it is one of the names from min to max.
  Status (*parse)(std::string_view text, SessionOptions& options) = nullptr;

  std::string words() const;     // the name in messages: "state log"
  std::string expected() const;  // the range in messages: "0 to 4096 tokens"

  // kInvalid, naming the setting, what was expected and what was found.
  Status Check(const SessionOptions& options) const;
  // kInvalid for a text that is no choice.
  Status Choose(std::string_view text, SessionOptions& options) const;
};

std::span<const SessionSetting> AllSessionSettings();

}  // namespace kvant
