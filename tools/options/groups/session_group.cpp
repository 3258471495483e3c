#include "tools/options/groups/session_group.h"

#include <fmt/format.h>

#include <algorithm>
#include <fstream>
#include <functional>
#include <iterator>
#include <mutex>
#include <utility>
#include <vector>

#include "base/counted.h"
#include "base/result.h"
#include "base/thread_pool.h"
#include "cpu/kv_format_list.h"
#include "formats/gguf.h"
#include "tools/options/help_text.h"
#include "tools/options/option_values.h"
#include "tools/terminal/console.h"

namespace kvant::tools {
namespace {

template <class T>
std::function<Status(const std::string&)> TakeKvType(T* target) {
  return [target](const std::string& text) -> Status {
    KVANT_ASSIGN(*target, ParseKvType(text));
    return {};
  };
}

bool IsRotated(KvType type) { return cpu::KvTraitsOf(type).is_rotated; }

std::string RotatedTypes() {
  std::vector<KvType> types;
  std::ranges::copy_if(AllKvTypes(), std::back_inserter(types), IsRotated);
  return KvTypeNames(types);
}

// kvant run --log-file FILE: what cannot be written ends the log, not the run.
Result<Runner::LogSink> LogFile(const std::string& path) {
  const auto file = std::make_shared<std::ofstream>(path);
  if (!*file) return MakeError(ErrorCode::kIo, "--log-file: cannot write '{}'", Visible(path));
  return Runner::LogSink([file, path](std::string_view line) {
    if (*file && !(*file << line << std::endl)) {
      Note(fmt::format("--log-file: cannot write '{}'; the log ends here", Visible(path)));
    }
  });
}

}  // namespace

void SessionGroup::Add(OptionList& list, SessionUse use, const std::string& context_fallback) {
  AddThreads(list);
  settings.Add(list, SessionTopic::kPlacement);
  if (use != SessionUse::kWindows) settings.Add(list, SessionTopic::kContext, context_fallback);
  AddKvTypes(list);
  for (const SessionTopic topic :
       {SessionTopic::kStates, SessionTopic::kOffload, SessionTopic::kPasses}) {
    settings.Add(list, topic);
  }
  if (use == SessionUse::kPlan) return;
  settings.Add(list, SessionTopic::kMemory);
  list.Group(kDebuggingGroup);
  const auto take_log = [this](const std::string& what) -> Status {
    if (what != "kv") {
      return MakeError(ErrorCode::kInvalid, "expected kv, found '{}'", Visible(what));
    }
    log_kv = true;
    return {};
  };
  list.Checked(
      "--log", take_log, "WHAT",
      "kv: the shape of every layer's cache at each step, and blocks taken, copied and dropped");
  list.Values("--log", {"kv"});
  list.Text("--log-file", &log_file, "FILE", "Write the log to a file", "stderr");
}

void SessionGroup::AddThreads(OptionList& list) {
  list.Group(kRunGroup);
  settings.Add(list, SessionTopic::kThreads,
               fmt::format("{}, the performance cores available", DefaultThreadCount()));
}

int SessionGroup::ThreadCount() const {
  const int typed = settings.options.threads;
  return typed > 0 ? typed : DefaultThreadCount();
}

void SessionGroup::AddKvTypes(OptionList& list) {
  list.Checked("--kv-type", TakeKvType(&kv_type), "TYPE", "Type of the KV cache: " + KvTypeNames(),
               std::string(KvTypeName(kv_type)));
  std::vector<std::string> types;
  for (const KvType type : AllKvTypes()) types.emplace_back(KvTypeName(type));
  list.Values("--kv-type", types);
  list.Values("--source-kv-type", types);
  settings.Add(list, SessionTopic::kTypes);
  list.Checked(
      "--source-kv-type", TakeKvType(&source_kv_type), "TYPE",
      "For models with an encoder: type of the keys and values that the cache holds of a source",
      "as --kv-type");
  settings.Add(list, SessionTopic::kRotation, "",
               "Store keys and values of type " + RotatedTypes() +
                   " without the rotation that spreads their outliers");
}

// kInvalid for what means nothing without a cache, where there is none.
Status SessionGroup::CheckCached(const SessionOptions& options) const {
  if (options.kv_cache) return {};
  const auto wrong = [](std::string_view name) {
    return MakeError(ErrorCode::kInvalid, "{}: not possible together with --no-kv-cache", name);
  };
  for (const SessionSetting& setting : AllSessionSettings()) {
    if (setting.is_of_cache && settings.given.contains(setting.name)) {
      return wrong(FirstFlag(setting.flags));
    }
  }
  if (source_kv_type.has_value()) return wrong("--source-kv-type");
  if (options.offload != Offload::kNone) return wrong("--offload");
  if (log_kv) return wrong("--log");
  return {};
}

Result<SessionOptions> SessionGroup::Options() const {
  KVANT_ASSIGN(SessionOptions options, settings.Options());
  options.cancel = &CancelFlag();
  if (!settings.given.contains("k_type")) options.k_type = kv_type;
  if (!settings.given.contains("v_type")) options.v_type = kv_type;
  options.source_k_type = options.source_v_type = source_kv_type;
  KVANT_TRY(CheckCached(options));
  const bool rotated = IsRotated(options.k_type) || IsRotated(options.v_type) ||
                       IsRotated(source_kv_type.value_or(options.k_type));
  if (!options.kv_rotation && !rotated) {
    return MakeError(ErrorCode::kInvalid, "--no-kv-rotation: expected --kv-type {} with it",
                     RotatedTypes());
  }
  if (log_file.has_value() && !log_kv) {
    return MakeError(ErrorCode::kInvalid, "--log-file: expected --log kv with it");
  }
  return options;
}

Result<Runner::LogSink> SessionGroup::KvLog() const {
  if (!log_kv) return Runner::LogSink();
  if (log_file.has_value()) return LogFile(*log_file);
  return Runner::LogSink([](std::string_view line) { WriteError(fmt::format("{}\n", line)); });
}

Status SessionGroup::CheckSource(const Model& model) const {
  if (!source_kv_type.has_value() || model.has_encoder()) return {};
  return MakeError(ErrorCode::kInvalid,
                   "--source-kv-type: expected a model with an encoder, {} has "
                   "none",
                   model.file().path());
}

Result<std::unique_ptr<Session>> SessionGroup::Open(std::shared_ptr<const Model> model,
                                                    const SessionOptions& options) const {
  KVANT_TRY(CheckSource(*model));
  KVANT_ASSIGN(auto session, Session::Create(model, options));
  KVANT_ASSIGN(auto log, KvLog());
  if (log) session->SetKvLog(std::move(log));
  NoteOpened(session->runner());
  return session;
}

Result<std::unique_ptr<Runner>> SessionGroup::OpenRunner(std::shared_ptr<const Model> model,
                                                         const SessionOptions& options) const {
  KVANT_TRY(CheckSource(*model));
  KVANT_ASSIGN(auto runner, Runner::Create(model, options));
  KVANT_ASSIGN(auto log, KvLog());
  if (log) runner->SetKvLog(std::move(log));
  NoteOpened(*runner);
  return runner;
}

Status SessionGroup::Explain(const Status& status, const Model& model,
                             const SessionOptions& options) const {
  if (status.ok() || status.error().code != ErrorCode::kOutOfMemory || options.kv_bytes_max == 0) {
    return status;
  }
  KVANT_ASSIGN(SessionOptions full, ResolveOptions(model, options));
  full.kv_bytes_max = 0;
  KVANT_ASSIGN(const MemoryPlan plan, PlanMemory(model, full));
  const std::string& message = status.error().message;
  return MakeError(ErrorCode::kOutOfMemory, "{}; --kv-budget {} would fit {} of {}{}",
                   message.substr(0, message.find(';')), plan.kv, Counted(full.sequences, "text"),
                   Counted(full.context, "position"), full.sequences == 1 ? "" : " each");
}

void SessionGroup::NoteOpened(const Runner& runner) const {
  NotePlacement(runner);
  const int64_t trained = runner.model().context_length();
  if (runner.context() <= trained) return;
  Note(fmt::format("a context of {} is beyond the {} positions the model was trained for",
                   runner.context(), trained));
}

void NotePlacement(const Runner& runner) {
  static std::once_flag noted;
  std::call_once(noted, [&] {
    if (runner.options().placement.numa == Numa::kNone) return;
    if (CountNumaNodes() == 1) {
      return Note("--numa: this machine has one memory node, there is nothing to place");
    }
    const RunnerStats stats = runner.stats();
    if (stats.weight_pages_placed == stats.weight_pages) return;
    Note(fmt::format("--numa: {} of {} pages of weights stay where the system has put them",
                     stats.weight_pages - stats.weight_pages_placed, stats.weight_pages));
  });
}

}  // namespace kvant::tools
