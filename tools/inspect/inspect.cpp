// kvant inspect: what a model file holds, what a run of it will need, and what this machine offers.
//
// The overview works for every GGUF file, whatever its architecture; --plan, --shares and --memory
// need one that kvant runs. Weights are read by --check-tensors alone.
#include <cstdint>
#include <string>

#include "base/result.h"
#include "formats/gguf.h"
#include "kvant/model.h"
#include "tools/commands.h"
#include "tools/inspect/inspect_check.h"
#include "tools/inspect/inspect_cpu.h"
#include "tools/inspect/inspect_devices.h"
#include "tools/inspect/inspect_file.h"
#include "tools/inspect/inspect_memory.h"
#include "tools/inspect/inspect_metadata.h"
#include "tools/inspect/inspect_shares.h"
#include "tools/options/groups/draft_group.h"
#include "tools/options/groups/idle_options.h"
#include "tools/options/groups/model_group.h"
#include "tools/options/groups/session_group.h"
#include "tools/options/json.h"
#include "tools/options/model_facts.h"
#include "tools/options/option_values.h"
#include "tools/terminal/console.h"

namespace kvant::tools {
namespace {

constexpr HelpText kInspectHelp = {
    "MODEL [--tensors] [--plan] [--shares] [--memory] [OPTIONS] | --cpu | --devices",
    "Shows metadata, size, tensor types and tokenizer of any GGUF file. Long arrays and texts\n"
    "are shortened. --memory tells how much memory a run with the given options will need,\n"
    "before anything is loaded. --cpu tells which instruction set will be used and why, and\n"
    "--devices which CUDA devices there are; both need no model. --check-tensors reads all\n"
    "weights and prints only the tensors that hold NaN or infinite values, with the place of the\n"
    "first; it fails if there are any.",
    "  kvant inspect model.gguf\n"
    "  kvant inspect model.gguf --memory -c 8192 --kv-type q8 --budget 24GiB\n"
    "  kvant inspect model.gguf --shares -t 64 -c 8192\n"
    "  kvant inspect model.gguf --tensors --json | jq '.tensors[0]'\n"
    "  kvant inspect model.gguf --check-tensors\n"
    "  kvant inspect --cpu --devices\n",
};

struct InspectOptions {
  ModelGroup model;
  SessionGroup session;
  DraftGroup draft;  // "mtp" alone
  bool json = false;
  bool tensors = false;
  bool plan = false;
  bool shares = false;
  bool memory = false;
  uint64_t budget = 0;  // bytes; 0 = none given
  bool WantsMemory() const { return memory || budget != 0; }
  bool WantsModel() const { return plan || shares || WantsMemory(); }
  bool cpu = false;
  bool devices = false;
  bool check = false;
};

// A file of which no tensor need be readable.
Result<formats::GgufFile> OpenToList(const std::string& path) {
  return formats::GgufFile::Open(path, FileAccess::kMap, formats::UnreadableTensors::kListed);
}

// Everything that was asked for, as JSON.
Result<Json> Gather(const InspectOptions& options, const std::string& path) {
  Json out = Json::object();
  if (!path.empty()) {
    const ModelOptions model_options = options.draft.With(options.model.Options());
    KVANT_ASSIGN(const auto file, OpenToList(path));
    out["model"] = ModelJson(file, GatherFacts(file));
    out["tokenizer"] = TokenizerJson(file, model_options.tokenizer);
    out["metadata"] = MetadataJson(file);
    if (options.tensors) out["tensors"] = TensorsJson(file);
    if (options.WantsModel()) {
      KVANT_ASSIGN(const auto model, Model::Open(path, model_options));
      KVANT_ASSIGN(SessionOptions session_options, options.session.Options());
      session_options = options.draft.With(session_options);
      if (options.plan) out["plan"] = model->DescribePlan();
      if (options.shares) {
        KVANT_ASSIGN(out["shares"], SharesJson(*model, session_options));
      }
      if (options.WantsMemory()) {
        KVANT_ASSIGN(out["memory"], MemoryJson(*model, session_options, options.budget));
      }
    }
  }
  if (options.cpu) {
    KVANT_ASSIGN(out["cpu"], CpuJson());
  }
  if (options.devices) out["cuda"] = DevicesJson();
  return out;
}

Status Inspect(const InspectOptions& options, const std::string& path, ResultStream& out) {
  KVANT_ASSIGN(const Json json, Gather(options, path));
  if (options.json) {
    out.Write(Dump(json, 2) + "\n");
    return {};
  }
  std::string text;
  if (!path.empty()) {
    text += ModelText(json["model"]) + TokenizerText(json["tokenizer"]);
    // Once more from the file, since JSON has lost the types of the numbers.
    KVANT_ASSIGN(const auto file, OpenToList(path));
    text += MetadataText(file);
  }
  if (options.tensors && !path.empty()) text += "tensors\n" + TensorsText(json["tensors"]);
  if (options.plan && !path.empty()) text += "plan\n" + json["plan"].get<std::string>();
  if (options.shares && !path.empty()) text += SharesText(json["shares"]);
  if (options.WantsMemory() && !path.empty()) text += MemoryText(json["memory"]);
  if (options.cpu) text += CpuText(json["cpu"]);
  if (options.devices) text += DevicesText(json["cuda"]);
  out.Write(text);
  return {};
}

Result<bool> Check(const InspectOptions& options, const std::string& path, ResultStream& out) {
  KVANT_ASSIGN(const auto file, OpenToList(path));
  KVANT_ASSIGN(const SessionOptions session_options, options.session.Options());
  return CheckWeights(file, session_options.threads,
                      options.json ? FindingsForm::kJson : FindingsForm::kText, out);
}

}  // namespace

int InspectCommand(CommandLine& line) {
  InspectOptions options;
  OptionList list;
  list.Group("Sections");
  list.Flag("--tensors", &options.tensors, "List all tensors: name, type, shape, size");
  list.Flag("--plan", &options.plan, "Show what a run computes, in order, and with which kernels");
  list.Flag("--shares", &options.shares,
            "Show how evenly the threads (-t) share the work of two passes: one over --chunk "
            "tokens, and one over a single token at the end of the context (-c)");
  list.Flag("--memory", &options.memory, "Show the memory a run will need");
  list.Checked(
      "--budget",
      [&options](const std::string& text) {
        return TakeSize(text, "500M or 24GiB", &options.budget);
      },
      "SIZE",
      "Like --memory; also shows how many sequences of this context, or how long a single one, fit "
      "into this memory: 24GiB, 500M ...");
  list.Flag("--cpu", &options.cpu, "Show instruction sets, threads and libraries");
  list.Flag("--devices", &options.devices, "Show CUDA devices, or why there are none");
  list.Flag("--check-tensors", &options.check, "Look for NaN and infinite values in all weights");
  list.Text("--draft", &options.draft.model, "mtp[:N]",
            "Plan, shares and memory of a run in which layers of the model guess");
  list.Group("Output");
  list.Flag("--json", &options.json, "Print one JSON object");
  options.model.AddPath(list);
  options.model.AddPre(list);
  options.model.AddIgnoredKeys(list);
  options.session.Add(list, SessionUse::kPlan, "the length the model was trained for");
  AddIdleOptions(list);
  if (const auto code = line.Parse(list, kInspectHelp)) return *code;
  const bool model_optional = (options.cpu || options.devices) && !options.tensors &&
                              !options.WantsModel() && !options.check;
  if (options.draft.model.has_value() && !options.draft.predicts()) {
    return line.UsageError("--draft: expected mtp or mtp:N");
  }
  if (options.draft.predicts() && !options.WantsModel()) {
    return line.UsageError("--draft: expected --plan, --shares or --memory with it");
  }
  Positionals positionals;
  if (const auto code = TakePositionals(
          line, options.model, model_optional ? ModelNeed::kOptional : ModelNeed::kRequired,
          StdinUse::kNone, &positionals)) {
    return *code;
  }
  ResultStream out;
  if (options.check) {
    const auto finite = Check(options, positionals.model, out);
    if (!finite.ok()) return Fail(finite.error());
    return out.Finish(*finite ? kExitDone : kExitFailed);
  }
  const Status status = Inspect(options, positionals.model, out);
  if (!status.ok()) return Fail(status.error());
  return out.Finish(kExitDone);
}

}  // namespace kvant::tools
