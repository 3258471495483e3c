#include "tools/options/common_options.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <charconv>
#include <cmath>
#include <cstring>
#include <fstream>

#include "base/result.h"
#include "base/thread_pool.h"
#include "cpu/kv_format_list.h"
#include "engine/limits.h"
#include "kvant/kv_type.h"
#include "tools/options/llama_words.h"
#include "tools/options/model_names.h"
#include "tools/options/number_list.h"
#include "tools/terminal/console.h"

namespace kvant::tools {
namespace {

const char* const kModelGroup = "Model";
const char* const kRunGroup = "Speed and memory";

// The value of one hexadecimal digit, -1 for other characters.
int HexDigit(char c) {
  if (c >= '0' && c <= '9') return c - '0';
  if (c >= 'a' && c <= 'f') return c - 'a' + 10;
  if (c >= 'A' && c <= 'F') return c - 'A' + 10;
  return -1;
}

Result<std::string> ReadAll(int fd, const std::string& name) {
  std::string text;
  std::string buffer(size_t{1} << 16, '\0');
  while (true) {
    const ssize_t count = read(fd, buffer.data(), buffer.size());
    if (CancelFlag().load()) return MakeError(ErrorCode::kCancelled, "interrupted");
    if (count < 0 && errno == EINTR) continue;
    if (count < 0) {
      return MakeError(ErrorCode::kIo, "{}: cannot read: {}", name, std::strerror(errno));
    }
    if (count == 0) return text;
    text.append(buffer, 0, static_cast<size_t>(count));
  }
}

Result<std::string> ReadFile(const std::string& path) {
  const int fd = open(path.c_str(), O_RDONLY | O_CLOEXEC);
  if (fd < 0) {
    return MakeError(ErrorCode::kIo, "{}: cannot open: {}", path, std::strerror(errno));
  }
  auto text = ReadAll(fd, path);
  close(fd);
  return text;
}

template <class T>
std::function<Status(const std::string&)> TakeKvType(T* target) {
  return [target](const std::string& text) -> Status {
    KVANT_ASSIGN(*target, ParseKvType(text));
    return {};
  };
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

void ModelGroup::AddPath(OptionList& list) {
  list.Group(kModelGroup);
  list.Text("-m,--model", &option_path, "FILE",
            "GGUF file, any shard of a split model, or the name of a model that comes with kvant; "
            "in place of the argument MODEL");
}

void ModelGroup::AddPre(OptionList& list) {
  list.Group(kModelGroup);
  list.Text("--pre", &pre, "NAME", "Use this pre-tokenizer instead of the one the file names");
}

void ModelGroup::AddLoading(OptionList& list) {
  list.Group(kModelGroup);
  list.Flag("--mlock", &lock_memory, "Keep the model in memory, never swapped out");
  list.Flag("--no-mmap", &no_mmap,
            "Read the model into memory instead of mapping the file: helps with slow file systems, "
            "and may make decoding faster");
}

ModelOptions ModelGroup::Options() const {
  ModelOptions options;
  options.access = no_mmap ? FileAccess::kRead : FileAccess::kMap;
  options.lock_memory = lock_memory;
  options.tokenizer.pre_override = pre.value_or("");
  return options;
}

std::optional<int> TakePositionals(const CommandLine& line, const ModelGroup& model, ModelNeed need,
                                   StdinUse stdin_use, Positionals* out) {
  out->model = model.option_path.value_or("");
  bool model_given = model.option_path.has_value();
  for (const std::string& word : line.positionals()) {
    if (word == "-" && stdin_use == StdinUse::kAccepted && !out->stdin_text) {
      out->stdin_text = true;
      continue;
    }
    if (model_given) {
      return line.UsageError(
          fmt::format("unexpected argument '{}': the model is '{}'", word, out->model));
    }
    out->model = word;
    model_given = true;
  }
  if (model_given && out->model.empty()) return line.UsageError("the name of the model is empty");
  if (!model_given && need == ModelNeed::kRequired) {
    return line.UsageError(fmt::format(
        "no model given: name a GGUF file, as in 'kvant {} model.gguf'", line.command()));
  }
  out->model = ModelPath(out->model);
  if (const std::string hint = NoModelHint(out->model); model_given && !hint.empty()) {
    return Fail(hint);
  }
  return std::nullopt;
}

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

void StateGroup::Add(OptionList& list) {
  const auto take = [this](const std::string& text) -> Status {
    if (text != "f32" && text != "f16") {
      return MakeError(ErrorCode::kInvalid, "expected f32 or f16, found '{}'", Visible(text));
    }
    KVANT_ASSIGN(type, ParseKvType(text));
    return {};
  };
  list.Checked("--state-type", take, "TYPE",
               "For models with recurrent layers: type of the states of their scans, f32 or f16, "
               "which takes half the memory",
               "f32");
  list.Integer("--state-checkpoints", &checkpoints, {0, kStateCheckpointsMax},
               "For models with recurrent layers: most earlier states to keep of a sequence, so "
               "that a rewind need not begin at the first token",
               std::to_string(kDefaultStateCheckpoints));
  list.Integer("--state-log", &log, {0, kStateLogMax},
               "For models with recurrent layers: keep the state updates of the last N tokens, so "
               "that a rewind over these tokens computes no token again",
               "0");
}

void StateGroup::Set(SessionOptions* options) const {
  options->state_type = type.value_or(options->state_type);
  options->state_checkpoints = checkpoints.value_or(options->state_checkpoints);
  options->state_log = log.value_or(options->state_log);
}

void OffloadGroup::Add(OptionList& list) {
  const auto take_what = [this](const std::string& text) -> Status {
    if (text != "none" && text != "attention") {
      return MakeError(ErrorCode::kInvalid, "expected none or attention, found '{}'",
                       Visible(text));
    }
    what = text == "none" ? Offload::kNone : Offload::kAttention;
    return {};
  };
  list.Checked("--offload", take_what, "WHAT",
               "attention: a CUDA device keeps keys and values and computes attention, the CPU "
               "does the rest; none: the CPU does everything",
               "none");
  const auto take_device = [this](const std::string& text) -> Status {
    for (const auto& [name, device] :
         {std::pair("cpu", KvDevice::kCpu), std::pair("cuda", KvDevice::kCuda),
          std::pair("auto", KvDevice::kAuto)}) {
      if (text != name) continue;
      kv_device = device;
      return {};
    }
    return MakeError(ErrorCode::kInvalid, "expected cpu, cuda or auto, found '{}'", Visible(text));
  };
  list.Checked("--kv-device", take_device, "DEVICE",
               "Memory for keys and values of offloaded layers. cuda: the device's; auto: the "
               "device's, where layers that do not fit stay with the CPU; cpu: the host's, which "
               "the device reads over the bus",
               "auto");
  list.Texts("--offload-layers", &layers, "LIST",
             "Offload only these attention layers, by number from 0: 0-15, or 0,4,8-11");
}

Status OffloadGroup::Set(SessionOptions* options) const {
  options->offload = what.value_or(options->offload);
  options->kv_device = kv_device.value_or(options->kv_device);
  if (options->offload == Offload::kNone) {
    for (const auto& [given, name] : {std::pair(kv_device.has_value(), "--kv-device"),
                                      std::pair(!layers.empty(), "--offload-layers")}) {
      if (!given) continue;
      return MakeError(ErrorCode::kInvalid, "{}: expected --offload attention with it", name);
    }
  }
  if (layers.empty()) return {};
  KVANT_ASSIGN(const auto numbers, ParseNumbers("--offload-layers", layers, {0, kLayersMax}));
  options->offload_layers.assign(numbers.begin(), numbers.end());
  return {};
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
            "Store keys and values of type q8 without the rotation that spreads their outliers");
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
  const auto rotates = [](KvType type) { return cpu::KvTraitsOf(type).is_rotated; };
  const bool rotated = rotates(options.k_type) || rotates(options.v_type) ||
                       rotates(source_kv_type.value_or(options.k_type));
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
    return MakeError(ErrorCode::kInvalid, "--no-kv-rotation: expected --kv-type q8 with it");
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
  return MakeError(ErrorCode::kOutOfMemory, "{}; --kv-budget {} would fit {} of {} positions{}",
                   message.substr(0, message.find(';')), plan.kv,
                   full.sequences == 1 ? "a text" : fmt::format("{} texts", full.sequences),
                   full.context, full.sequences == 1 ? "" : " each");
}

void TextGroup::Add(OptionList& list, const std::string& group, const std::string& what) {
  list.Group(group);
  list.Text("-p,--prompt", &text, "TEXT", "The " + what);
  list.Text("-f,--file", &file, "FILE",
            "Read the " + what + " from a file, as it is; - is standard input");
  list.Flag(
      "-e,--escape", &escape,
      "Read \\n, \\t, \\r, \\', \\\", \\\\ and \\xHH in TEXT as the characters they stand for");
}

Result<std::optional<std::string>> TextGroup::Read(const Positionals& positionals) const {
  const bool from_stdin = positionals.stdin_text || file == "-";
  const bool from_file = file.has_value() && file != "-";
  if ((text.has_value() ? 1 : 0) + (from_file ? 1 : 0) + (from_stdin ? 1 : 0) > 1) {
    return MakeError(ErrorCode::kInvalid,
                     "-p, -f and - exclude each other: give the text in one way");
  }
  if (text.has_value()) return std::optional(escape ? Unescape(*text) : *text);
  if (!from_file && !from_stdin) return std::optional<std::string>();
  KVANT_ASSIGN(std::string content,
               from_file ? ReadFile(*file) : ReadAll(STDIN_FILENO, "standard input"));
  return std::optional(std::move(content));
}

void AddLanguageOptions(OptionList& list, LanguageNames& names) {
  list.Text("--source-lang", &names.source, "LANGUAGE",
            "For translators of several languages: the source's language, such as de_DE or de");
  list.Text("--target-lang", &names.target, "LANGUAGE",
            "For translators of several languages: the translation's language, which some models "
            "read in front of the source");
}

void AddIdleOptions(OptionList& list) {
  for (const IdleOption& option : IdleOptions()) {
    if (option.takes_value) {
      list.IdleValue(option.names, option.reason);
    } else {
      list.IdleFlag(option.names, option.reason);
    }
  }
}

std::string Unescape(const std::string& text) {
  std::string out;
  for (size_t i = 0; i < text.size(); ++i) {
    if (text[i] != '\\' || i + 1 == text.size()) {
      out += text[i];
      continue;
    }
    const char next = text[++i];
    switch (next) {
      case 'n': out += '\n'; continue;
      case 't': out += '\t'; continue;
      case 'r': out += '\r'; continue;
      case '\'':
      case '"':
      case '\\': out += next; continue;
      default: break;
    }
    if (next == 'x' && i + 2 < text.size() && HexDigit(text[i + 1]) >= 0 &&
        HexDigit(text[i + 2]) >= 0) {
      out += static_cast<char>(HexDigit(text[i + 1]) * 16 + HexDigit(text[i + 2]));
      i += 2;
      continue;
    }
    out += '\\';
    out += next;
  }
  return out;
}

std::optional<uint64_t> ParseSize(std::string_view text) {
  struct Unit {
    std::string_view suffix;
    uint64_t bytes;
  };
  static constexpr Unit kUnits[] = {{"KiB", 1 << 10}, {"MiB", 1 << 20},  {"GiB", 1 << 30},
                                    {"KB", 1'000},    {"MB", 1'000'000}, {"GB", 1'000'000'000},
                                    {"K", 1'000},     {"M", 1'000'000},  {"G", 1'000'000'000}};
  uint64_t unit = 1;
  for (const Unit& candidate : kUnits) {
    if (!text.ends_with(candidate.suffix)) continue;
    unit = candidate.bytes;
    text.remove_suffix(candidate.suffix.size());
    break;
  }
  uint64_t count = 0;
  const char* end = text.data() + text.size();
  const auto [stop, error] = std::from_chars(text.data(), end, count);
  uint64_t size = 0;
  if (error == std::errc() && stop == end && count > 0 &&
      !__builtin_mul_overflow(count, unit, &size)) {
    return size;
  }
  // Digits, a point and digits, of a unit.
  if (text.find_first_not_of("0123456789.") != std::string_view::npos || unit == 1) return {};
  double number = 0;
  const auto [after, wrong] = std::from_chars(text.data(), end, number);
  number *= static_cast<double>(unit);
  if (wrong != std::errc() || after != end || !(number >= 1 && number < 0x1p63)) return {};
  return static_cast<uint64_t>(number);
}

Status TakeSize(std::string_view text, std::string_view example, uint64_t* bytes) {
  const auto size = ParseSize(text);
  if (!size.has_value()) {
    return MakeError(ErrorCode::kInvalid, "expected a size such as {}, found '{}'", example,
                     Visible(text));
  }
  *bytes = *size;
  return {};
}

}  // namespace kvant::tools
