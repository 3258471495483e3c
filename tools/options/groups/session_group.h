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
#include "tools/options/groups/offload_group.h"
#include "tools/options/groups/placement_group.h"
#include "tools/options/groups/state_group.h"

namespace kvant::tools {

// How a command uses sequences, which decides on the options that have a meaning for it.
enum class SessionUse : uint8_t {
  kTexts,    // runs texts of any length: all options
  kWindows,  // the same, but has a -c of its own
  kPlan,     // tells what a run would need
};

// Threads, context and KV cache: one list for all commands that compute.
struct SessionGroup {
  std::optional<int64_t> threads;
  std::optional<int64_t> context;
  int64_t chunk = kDefaultChunk;
  KvType kv_type = KvType::kF16;
  std::optional<KvType> k_type;
  std::optional<KvType> v_type;
  std::optional<KvType> source_kv_type;
  bool strict = false;
  bool no_kv_cache = false;
  bool no_kv_rotation = false;
  PlacementGroup placement;
  StateGroup states;
  OffloadGroup offload;
  bool kv_prealloc = false;
  bool kv_check = false;
  bool kv_poison = false;
  uint64_t kv_budget = 0;  // bytes; 0 = no limit
  bool log_kv = false;
  std::optional<std::string> log_file;

  // `context_fallback` says what -c is where it is not given.
  void Add(OptionList& list, SessionUse use, const std::string& context_fallback = "");
  void AddThreads(OptionList& list);  // alone, for commands without sequences

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
  void AddContext(OptionList& list, const std::string& fallback);
  void AddKvTypes(OptionList& list);
  void AddKvChecks(OptionList& list);
  // Notes on stderr: a context that is longer than what the model was trained for, memory that was
  // not placed as asked for.
  void NoteOpened(const Runner& runner) const;
  // The function that writes the lines of --log kv; empty without that option.
  Result<Runner::LogSink> KvLog() const;
  Status CheckSource(const Model& model) const;
};

// The spellings of options that `kvant bench` has, too, for lists of values.
inline constexpr const char* kThreadsNames = "-t,--threads";
inline constexpr const char* kChunkNames = "--chunk,--ubatch-size";
inline constexpr const char* kKvTypeNames = "--kv-type";
inline constexpr const char* kKTypeNames = "--cache-type-k,--kv-type-k";
inline constexpr const char* kVTypeNames = "--cache-type-v,--kv-type-v";

}  // namespace kvant::tools
