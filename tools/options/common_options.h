// Options that several commands share, each group declared by one function, with llama.cpp's
// spellings, and the library objects made of them.
//
// A group is a struct of plain values that Add… binds to a command's options before parsing; the
// member functions turn it into what the library takes. Errors name the option.
#pragma once

#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "engine/text/languages.h"
#include "kvant/sampler.h"
#include "kvant/session.h"
#include "tools/options/command_line.h"

namespace kvant {
struct SamplerSetting;
}

namespace kvant::tools {

// The model file and how it is opened.
struct ModelGroup {
  std::optional<std::string> option_path;  // -m
  std::optional<std::string> pre;
  bool lock_memory = false;
  bool no_mmap = false;

  void AddPath(OptionList& list);  // -m alone; the positional MODEL belongs to CommandLine
  void AddPre(OptionList& list);
  void AddLoading(OptionList& list);  // --mlock, --no-mmap

  ModelOptions Options() const;
};

// The arguments that belong to no option: MODEL, and "-" for standard input where a command takes
// it.
struct Positionals {
  std::string model;  // "" if absent
  bool stdin_text = false;
};

// Sorts them out together with -m. Returns the exit code of wrong usage: an argument too many, no
// model although `model_required`.
enum class ModelNeed : uint8_t { kRequired, kOptional };
enum class StdinUse : uint8_t { kAccepted, kNone };
std::optional<int> TakePositionals(const CommandLine& line, const ModelGroup& model, ModelNeed need,
                                   StdinUse stdin_use, Positionals* out);

// How a command uses sequences, which decides on the options that have a meaning for it.
enum class SessionUse : uint8_t {
  kTexts,    // runs texts of any length: all options
  kWindows,  // the same, but has a -c of its own
  kPlan,     // tells what a run would need
};

// The options for states of recurrent layers.
struct StateGroup {
  std::optional<KvType> type;
  std::optional<int64_t> checkpoints;
  std::optional<int64_t> log;

  void Add(OptionList& list);
  void Set(SessionOptions* options) const;
};

// The options for the work of a CUDA device.
struct OffloadGroup {
  std::optional<Offload> what;
  std::optional<KvDevice> kv_device;
  std::vector<std::string> layers;

  void Add(OptionList& list);
  Status Set(SessionOptions* options) const;
};

// The options for the places of threads and memory.
struct PlacementGroup {
  ThreadPlacement placement;

  void Add(OptionList& list);
  // A line on stderr, of the program's first runner: where --numa has nothing to do, on a machine
  // with one node, and where the system has left pages of weights where they were.
  void NoteRest(const Runner& runner) const;
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

// How the next token is chosen.
struct SamplingGroup {
  SamplingOptions options;
  std::map<std::string_view, int64_t> whole;  // settings that are whole numbers, by name
  int64_t seed = -1;
  std::vector<std::string> breakers;  // of DRY, as given

  void Add(OptionList& list);
  SamplingOptions Options() const;

  // kInvalid for --adaptive-target without adaptive_p.
  Status Check(const OptionList& list) const;

  // kInvalid if an option was given that beams do not know; they know some with `sample` only.
  static Status CheckBeams(const OptionList& list);

 private:
  void AddChain(OptionList& list);
};

// The first of the option's spellings: "--typical".
std::string FirstFlag(const SamplerSetting& setting);

// A text from -p, -f or standard input.
struct TextGroup {
  std::optional<std::string> text;
  std::optional<std::string> file;
  bool escape = false;

  // `what` names the text in the help: "prompt".
  void Add(OptionList& list, const std::string& group, const std::string& what);

  // At most one source may be given; none gives nullopt. Files and standard input are taken as they
  // are; kCancelled if a signal ends the reading.
  Result<std::optional<std::string>> Read(const Positionals& positionals) const;
};

// llama.cpp's options that mean nothing here are accepted; each one given is noted on stderr.
void AddIdleOptions(OptionList& list);

// --source-lang and --target-lang, of models that translate between languages.
void AddLanguageOptions(OptionList& list, LanguageNames& names);

// "500M", "2GB", "4.5GiB", "1500000000": K, M and G, also with a B, are powers of 1000, KiB, MiB
// and GiB of 1024. Nothing if it is no size above 0.
std::optional<uint64_t> ParseSize(std::string_view text);

// ParseSize for OptionList::Checked; the error gives `example`, as "500M or 2GiB".
Status TakeSize(std::string_view text, std::string_view example, uint64_t* bytes);

// \n, \t, \r, \', \", \\ and \xHH become the bytes they stand for; other backslashes stay.
std::string Unescape(const std::string& text);

}  // namespace kvant::tools
