#include "tools/options/groups/session_group.h"

#include <fmt/format.h>

#include <algorithm>
#include <fstream>
#include <functional>
#include <iterator>
#include <utility>
#include <vector>

#include "base/counted.h"
#include "base/result.h"
#include "base/thread_pool.h"
#include "cpu/kv_format_list.h"
#include "engine/limits.h"
#include "formats/gguf.h"
#include "tools/options/option_values.h"
#include "tools/terminal/console.h"

namespace kvant::tools {
namespace {

const char* const kRunGroup = "Speed and memory";

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
  placement.Add(list);
  if (use != SessionUse::kWindows) AddContext(list, context_fallback);
  AddKvTypes(list);
  list.Integer(kChunkNames, &chunk, {1, kContextMax},
               "Most tokens of a prompt that are computed together");
  list.Flag("--strict", &strict,
            "Compute prompts in the arithmetic of single tokens, which is slower: the results then "
            "have the same bits as if the tokens came one by one");
  list.Flag("--no-kv-cache", &no_kv_cache,
            "Compute the whole sequence anew for every token: slow, for checking the cache. "
            "Attention is then a loop of its own in double precision, so logits differ from those "
            "with the cache, even with --strict and --kv-type f32: by less than 0.0001 for weights "
            "of f16, bf16 or f32, and by up to 0.2 for quantized weights, whose inputs are rounded "
            "to int8. A sampled text may change where two tokens are nearly equally likely");
  if (use == SessionUse::kPlan) return;
  AddKvChecks(list);
  list.Group("Observation");
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
  list.Text("--log-file", &log_file, "FILE", "Write the log to a file", "stderr");
}

void SessionGroup::AddThreads(OptionList& list) {
  list.Group(kRunGroup);
  list.Integer(kThreadsNames, &threads, {1, kThreadsMax}, "Threads",
               fmt::format("{}, the performance cores available", DefaultThreadCount()));
}

void SessionGroup::AddContext(OptionList& list, const std::string& fallback) {
  list.Group(kRunGroup);
  list.Integer("-c,--ctx-size", &context, {0, kContextMax},
               "Positions that the sequence may hold; 0 means the default", fallback);
}

void SessionGroup::AddKvTypes(OptionList& list) {
  list.Group(kRunGroup);
  list.Checked(kKvTypeNames, TakeKvType(&kv_type), "TYPE", "Type of the KV cache: " + KvTypeNames(),
               std::string(KvTypeName(kv_type)));
  list.Checked(kKTypeNames, TakeKvType(&k_type), "TYPE", "Type of the keys alone");
  list.Checked(kVTypeNames, TakeKvType(&v_type), "TYPE", "Type of the values alone");
  list.Checked(
      "--source-kv-type", TakeKvType(&source_kv_type), "TYPE",
      "For models with an encoder: type of the keys and values that the cache holds of a source",
      "as --kv-type");
  list.Flag("--no-kv-rotation", &no_kv_rotation,
            "Store keys and values of type " + RotatedTypes() +
                " without the rotation that spreads their outliers");
  states.Add(list);
  offload.Add(list);
}

void SessionGroup::AddKvChecks(OptionList& list) {
  list.Group(kRunGroup);
  const auto take_budget = [this](const std::string& text) {
    return TakeSize(text, "500M or 2GiB", &kv_budget);
  };
  list.Checked("--kv-budget", take_budget, "SIZE",
               "Most memory for the KV cache: 500M, 2GiB ...; if it is too little, the message "
               "says what would fit",
               "no limit");
  list.Flag("--kv-prealloc", &kv_prealloc, "Take all of the KV cache's memory at the start");
  list.Flag("--kv-check", &kv_check, "Test the KV cache's invariants after every operation");
  list.Flag("--kv-poison", &kv_poison, "Fill freed blocks of the KV cache with NaN");
}

Result<SessionOptions> SessionGroup::Options() const {
  SessionOptions options;
  options.threads = static_cast<int>(threads.value_or(0));
  options.placement = placement.placement;
  options.context = context.value_or(0);
  options.chunk = chunk;
  options.strict = strict;
  options.kv_cache = !no_kv_cache;
  options.kv_rotation = !no_kv_rotation;
  options.kv_commit = kv_prealloc;
  options.kv_check = kv_check;
  states.Set(&options);
  KVANT_TRY(offload.Set(&options));
  options.kv_poison = kv_poison;
  options.kv_bytes_max = kv_budget;
  options.cancel = &CancelFlag();
  options.k_type = k_type.value_or(kv_type);
  options.v_type = v_type.value_or(kv_type);
  options.source_k_type = options.source_v_type = source_kv_type;
  const bool rotated = IsRotated(options.k_type) || IsRotated(options.v_type) ||
                       IsRotated(source_kv_type.value_or(options.k_type));
  const std::pair<bool, const char*> cached[] = {
      {no_kv_rotation, "--no-kv-rotation"},
      {states.type.has_value(), "--state-type"},
      {states.checkpoints.has_value(), "--state-checkpoints"},
      {states.log.has_value(), "--state-log"},
      {kv_prealloc, "--kv-prealloc"},
      {kv_check, "--kv-check"},
      {kv_poison, "--kv-poison"},
      {kv_budget != 0, "--kv-budget"},
      {source_kv_type.has_value(), "--source-kv-type"},
      {options.offload != Offload::kNone, "--offload"},
      {log_kv, "--log"}};
  for (const auto& [given, name] : cached) {
    if (!given || !no_kv_cache) continue;
    return MakeError(ErrorCode::kInvalid, "{}: not possible together with --no-kv-cache", name);
  }
  if (no_kv_rotation && !rotated) {
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
  if (status.ok() || status.error().code != ErrorCode::kOutOfMemory || kv_budget == 0) {
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
  placement.NoteRest(runner);
  const int64_t trained = runner.model().context_length();
  if (runner.context() <= trained) return;
  Note(fmt::format("a context of {} is beyond the {} positions the model was trained for",
                   runner.context(), trained));
}

}  // namespace kvant::tools
