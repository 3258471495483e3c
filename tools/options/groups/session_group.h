// The options of threads, context and KV cache, and the sessions and runners that are opened with
// them: one list for all commands that compute.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>

#include "base/result.h"
#include "kvant/kv_type.h"
#include "kvant/session.h"
#include "tools/options/command_line.h"
#include "tools/options/groups/settings_group.h"

namespace kvant::tools {

// How a command uses sequences, which decides on the options that have a meaning for it.
enum class SessionUse : uint8_t {
  kTexts,    // runs texts of any length: all options
  kWindows,  // the same, but has a -c of its own
  kPlan,     // tells what a run would need
};

// Threads, context and KV cache: one list for all commands that compute.
struct SessionGroup {
  SettingsGroup settings;
  KvType kv_type = KvType::kF16;
  std::optional<KvType> source_kv_type;
  bool log_kv = false;
  std::optional<std::string> log_file;

  // `context_fallback` says what -c is where it is not given.
  void Add(OptionList& list, SessionUse use, const std::string& context_fallback = "");
  void AddThreads(OptionList& list);  // alone, for commands without sequences
  int ThreadCount() const;            // that of -t, or the default

  // kInvalid for options that contradict each other.
  Result<SessionOptions> Options() const;

  // Opens a session or a runner with these options and the log that was asked for.
  Result<std::unique_ptr<Session>> Open(std::shared_ptr<const Model> model,
                                        const SessionOptions& options) const;
  Result<std::unique_ptr<Runner>> OpenRunner(std::shared_ptr<const Model> model,
                                             const SessionOptions& options) const;

  // An error of a full --kv-budget, with the budget that would be enough; others as they are.
  Status Explain(const Status& status, const Model& model, const SessionOptions& options) const;

 private:
  void AddKvTypes(OptionList& list);
  Status CheckCached(const SessionOptions& options) const;
  // Notes on stderr: a context that is longer than what the model was trained for, memory that was
  // not placed as asked for.
  void NoteOpened(const Runner& runner) const;
  // The function that writes the lines of --log kv; empty without that option.
  Result<Runner::LogSink> KvLog() const;
  Status CheckSource(const Model& model) const;
};

// A line on stderr, of the program's first runner: where --numa has nothing to do, on a machine
// with one node, and where the system has left pages of weights where they were.
void NotePlacement(const Runner& runner);

}  // namespace kvant::tools
