// kvant inspect: what a model file holds, what a run of it will need, and what this machine offers.
//
// The overview works for every GGUF file, whatever its architecture; --plan, --shares and --memory
// need one that kvant runs. Weights are read by --check-tensors alone.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <cstring>

#include "base/result.h"
#include "base/thread_pool.h"
#include "cpu/dispatch.h"
#include "cpu/float_gemm.h"
#include "cpu/kernels/table.h"
#include "engine/text/languages.h"
#include "formats/check_tensors.h"
#include "formats/gguf.h"
#include "kvant/tokenizer.h"
#include "tools/commands.h"
#include "tools/model_files/inspect_devices.h"
#include "tools/model_files/inspect_memory.h"
#include "tools/model_files/inspect_shares.h"
#include "tools/options/groups/idle_options.h"
#include "tools/options/groups/model_group.h"
#include "tools/options/groups/session_group.h"
#include "tools/options/json.h"
#include "tools/options/model_facts.h"
#include "tools/options/option_values.h"
#include "tools/terminal/console.h"
#include "tools/terminal/transfer_progress.h"

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

constexpr size_t kArrayShown = 8;  // elements of an array that are shown
constexpr size_t kTextShown = 76;  // bytes of a text that are shown, in the overview for people

struct InspectOptions {
  ModelGroup model;
  SessionGroup session;
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

// ---- Metadata ----------------------------------------------------------------------------------

template <class T>
T LoadElement(const formats::GgufArray& array, size_t index) {
  T value;
  std::memcpy(&value, array.data + index * sizeof(T), sizeof(T));
  return value;
}

Json ArrayElement(const formats::GgufArray& array, size_t index) {
  using formats::GgufType;
  switch (array.type) {
    case GgufType::kUint8: return LoadElement<uint8_t>(array, index);
    case GgufType::kInt8: return LoadElement<int8_t>(array, index);
    case GgufType::kUint16: return LoadElement<uint16_t>(array, index);
    case GgufType::kInt16: return LoadElement<int16_t>(array, index);
    case GgufType::kUint32: return LoadElement<uint32_t>(array, index);
    case GgufType::kInt32: return LoadElement<int32_t>(array, index);
    case GgufType::kUint64: return LoadElement<uint64_t>(array, index);
    case GgufType::kInt64: return LoadElement<int64_t>(array, index);
    case GgufType::kFloat32: return LoadElement<float>(array, index);
    case GgufType::kFloat64: return LoadElement<double>(array, index);
    case GgufType::kBool: return LoadElement<uint8_t>(array, index) != 0;
    case GgufType::kString: return std::string(array.strings[index]);
    case GgufType::kArray: break;
  }
  return nullptr;
}

// An array becomes {count, type, first}, everything else its value.
Json ValueJson(const formats::GgufValue& value) {
  if (const auto* array = std::get_if<formats::GgufArray>(&value.value)) {
    Json first = Json::array();
    for (size_t i = 0; i < std::min<uint64_t>(array->count, kArrayShown); ++i) {
      first.push_back(ArrayElement(*array, i));
    }
    return {{"count", array->count},
            {"type", formats::GgufTypeName(array->type)},
            {"first", std::move(first)}};
  }
  if (const auto* text = std::get_if<std::string_view>(&value.value)) return std::string(*text);
  if (const auto* number = std::get_if<double>(&value.value)) {
    // Shortest form of what the file holds, not of its widening to double.
    if (value.type == formats::GgufType::kFloat32) return static_cast<float>(*number);
    return *number;
  }
  if (const auto* number = std::get_if<int64_t>(&value.value)) return *number;
  if (const auto* flag = std::get_if<bool>(&value.value)) return *flag;
  return std::get<uint64_t>(value.value);
}

std::string Shorten(const std::string& text) {
  if (text.size() <= kTextShown) return text;
  size_t end = kTextShown;
  while ((static_cast<unsigned char>(text[end]) & 0xc0) == 0x80) --end;  // whole characters
  return fmt::format("{}… ({} bytes)", text.substr(0, end), text.size());
}

// Text as it is, numbers of the file's type at their shortest, elements of arrays in quotes where
// they are texts.
std::string ElementText(const Json& value, formats::GgufType type) {
  if (value.is_string()) return fmt::format("\"{}\"", Visible(value.get<std::string>()));
  if (value.is_number_float() && type == formats::GgufType::kFloat32) {
    return fmt::format("{}", value.get<float>());
  }
  if (value.is_number_float()) return fmt::format("{}", value.get<double>());
  return Dump(value, -1);
}

std::string ValueText(const formats::GgufValue& value) {
  const Json json = ValueJson(value);
  if (!json.is_object()) {
    return json.is_string() ? Shorten(Visible(json.get<std::string>()))
                            : ElementText(json, value.type);
  }
  std::vector<std::string> elements;
  const formats::GgufType type = std::get<formats::GgufArray>(value.value).type;
  for (const Json& element : json["first"]) elements.push_back(ElementText(element, type));
  const uint64_t count = json["count"].get<uint64_t>();
  return Shorten(fmt::format("[{}{}]", fmt::join(elements, ", "),
                             count > elements.size() ? ", …" : "")) +
         fmt::format(" {} {}", count, json["type"].get<std::string>());
}

// ---- Sections: each as JSON, and as text made of that JSON -------------------------------------

Json ModelJson(const formats::GgufFile& file, const ModelFacts& facts) {
  Json types = Json::array();
  for (const ModelFacts::TypeShare& share : facts.types) {
    types.push_back({{"type", share.name},
                     {"tensors", share.tensors},
                     {"values", share.values},
                     {"bytes", share.bytes}});
  }
  return {{"file", file.path()},
          {"gguf_version", file.version()},
          {"shards", file.shards()},
          {"file_bytes", file.file_bytes()},
          {"alignment", file.alignment()},
          {"architecture", facts.architecture},
          {"parameters", facts.parameters},
          {"tensors", file.tensors().size()},
          {"tensor_bytes", facts.tensor_bytes},
          {"bits_per_weight", facts.bits_per_weight()},
          {"types", std::move(types)}};
}

std::string ModelText(const Json& model) {
  std::string out = fmt::format(
      "file          {}\n"
      "format        GGUF v{}, {} shard{}, {}\n"
      "architecture  {}\n"
      "parameters    {} ({})\n"
      "weights       {} in {} tensors, {:.2f} bits per weight\n",
      Visible(model["file"].get<std::string>()), model["gguf_version"].get<uint32_t>(),
      model["shards"].get<int>(), model["shards"].get<int>() == 1 ? "" : "s",
      SizeText(model["file_bytes"].get<uint64_t>()),
      model["architecture"].get<std::string>().empty() ? "not named in the file"
                                                       : model["architecture"].get<std::string>(),
      CountText(model["parameters"].get<uint64_t>()), model["parameters"].get<uint64_t>(),
      SizeText(model["tensor_bytes"].get<uint64_t>()), model["tensors"].get<size_t>(),
      model["bits_per_weight"].get<double>());
  for (const Json& type : model["types"]) {
    out += fmt::format("  {:<10}  {:>5} tensors  {:>10} values  {:>12}\n",
                       type["type"].get<std::string>(), type["tensors"].get<uint64_t>(),
                       CountText(type["values"].get<uint64_t>()),
                       SizeText(type["bytes"].get<uint64_t>()));
  }
  return out;
}

Json TokenizerJson(const formats::GgufFile& file, const TokenizerOptions& options) {
  const auto created = Tokenizer::Create(file, options);
  if (!created.ok()) return {{"error", created.error().message}};
  const Tokenizer& tokenizer = **created;
  const SpecialTokens& special = tokenizer.special();
  Json out = {{"kind", tokenizer.kind()},
              {"pre", tokenizer.pre_tokenizer()},
              {"vocab_size", tokenizer.vocab_size()},
              {"add_bos", special.add_bos},
              {"add_eos", special.add_eos}};
  const std::pair<const char*, std::optional<TokenId>> named[] = {
      {"bos", special.bos}, {"eos", special.eos}, {"eot", special.eot}, {"unk", special.unk},
      {"sep", special.sep}, {"pad", special.pad}, {"cls", special.cls}, {"mask", special.mask}};
  for (const auto& [name, id] : named) {
    if (id.has_value()) out[name] = {{"id", *id}, {"piece", std::string(tokenizer.piece(*id))}};
  }
  out["end_of_generation"] = special.end_of_generation;
  const auto arch = file.GetString("general.architecture");
  if (!arch.ok() || !*arch) return out;
  const auto languages = ReadLanguages(file, **arch, tokenizer.vocab_size());
  if (!languages.ok()) return {{"error", languages.error().message}};
  for (const TokenId token : languages->tokens) {
    out["languages"].push_back(std::string(LanguageName(tokenizer.piece(token))));
  }
  return out;
}

std::string TokenizerText(const Json& tokenizer) {
  if (tokenizer.contains("error")) {
    return fmt::format("tokenizer     not usable: {}\n",
                       Visible(tokenizer["error"].get<std::string>()));
  }
  const std::string pre = tokenizer["pre"].get<std::string>();
  std::string out = fmt::format(
      "tokenizer     {}{}, {} tokens", tokenizer["kind"].get<std::string>(),
      pre.empty() ? "" : " (" + Visible(pre) + ")", tokenizer["vocab_size"].get<int32_t>());
  for (const char* name : {"bos", "eos", "eot", "unk", "sep", "pad", "cls", "mask"}) {
    if (!tokenizer.contains(name)) continue;
    const Json& token = tokenizer[name];
    out += fmt::format(", {} {} {}", name, token["id"].get<TokenId>(),
                       Visible(token["piece"].get<std::string>()));
  }
  out += tokenizer["add_bos"].get<bool>() ? ", BOS is added\n" : "\n";
  if (!tokenizer.contains("languages")) return out;
  std::string names;
  for (const Json& name : tokenizer["languages"]) {
    names += (names.empty() ? "" : ", ") + Visible(name.get<std::string>());
  }
  return out + fmt::format("languages     {}: {}\n", tokenizer["languages"].size(), names);
}

Json TensorsJson(const formats::GgufFile& file) {
  Json out = Json::array();
  for (const formats::GgufTensor& tensor : file.tensors()) {
    out.push_back({{"name", std::string(tensor.name)},
                   {"type", formats::TensorTypeName(tensor)},
                   {"shape", std::vector<int64_t>(tensor.dims, tensor.dims + tensor.n_dims)},
                   {"bytes", tensor.size_bytes},
                   {"shard", tensor.shard}});
  }
  return out;
}

std::string TensorsText(const Json& tensors) {
  std::string out;
  for (const Json& tensor : tensors) {
    out += fmt::format(
        "  {:<36} {:<6} {:>20} {:>12}\n", Visible(tensor["name"].get<std::string>()),
        tensor["type"].get<std::string>(),
        fmt::format("{}", fmt::join(tensor["shape"].get<std::vector<int64_t>>(), " x ")),
        SizeText(tensor["bytes"].get<uint64_t>()));
  }
  return out;
}

Result<Json> CpuJson() {
  Json isas = Json::array();
  for (const cpu::IsaReport& report : cpu::ReportIsas()) {
    isas.push_back({{"name", report.name},
                    {"compiled", report.compiled},
                    {"supported", report.supported},
                    {"refused_because", report.reason}});
  }
  KVANT_ASSIGN(const cpu::KernelTable* chosen, cpu::ChooseKernelsFromEnvironment());
  KVANT_ASSIGN(const cpu::FloatGemm* gemm, cpu::ChooseFloatGemmFromEnvironment());
  std::vector<std::string> gemms;
  for (const cpu::FloatGemm& entry : cpu::AllFloatGemms()) gemms.emplace_back(entry.name);
  std::string reason;
  const int threads = DefaultThreadCount(&reason);
  return Json{{"isa", chosen->isa},       {"isas", std::move(isas)},  {"threads", threads},
              {"threads_reason", reason}, {"float_gemm", gemm->name}, {"float_gemms", gemms}};
}

std::string CpuText(const Json& cpu) {
  const std::string chosen = cpu["isa"].get<std::string>();
  std::string out = fmt::format("instruction set  {}\n", chosen);
  for (const Json& isa : cpu["isas"]) {
    const std::string name = isa["name"].get<std::string>();
    const std::string reason = isa["refused_because"].get<std::string>();
    std::string verdict = "usable";
    if (!isa["supported"].get<bool>()) verdict = "refused: " + reason;
    if (name == chosen) verdict = "chosen";
    out += fmt::format("  {:<15}{}\n", name, verdict);
  }
  out += fmt::format("threads          {} ({})\n", cpu["threads"].get<int>(),
                     cpu["threads_reason"].get<std::string>());
  return out + fmt::format("float matrices   {} (this build has {})\n",
                           cpu["float_gemm"].get<std::string>(),
                           fmt::join(cpu["float_gemms"].get<std::vector<std::string>>(), ", "));
}

// ---- The command -------------------------------------------------------------------------------

// A file of which no tensor need be readable.
Result<formats::GgufFile> OpenToList(const std::string& path) {
  return formats::GgufFile::Open(path, FileAccess::kMap, formats::UnreadableTensors::kListed);
}

// Everything that was asked for, as JSON.
Result<Json> Gather(const InspectOptions& options, const std::string& path) {
  Json out = Json::object();
  if (!path.empty()) {
    const ModelOptions model_options = options.model.Options();
    KVANT_ASSIGN(const auto file, OpenToList(path));
    out["model"] = ModelJson(file, GatherFacts(file));
    out["tokenizer"] = TokenizerJson(file, model_options.tokenizer);
    out["metadata"] = Json::object();
    for (const auto& [key, value] : file.metadata()) {
      out["metadata"][std::string(key)] = ValueJson(value);
    }
    if (options.tensors) out["tensors"] = TensorsJson(file);
    if (options.WantsModel()) {
      KVANT_ASSIGN(const auto model, Model::Open(path, model_options));
      KVANT_ASSIGN(const SessionOptions session_options, options.session.Options());
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

// Reads the metadata again from the file, since its numbers have types that JSON has not.
Result<std::string> MetadataText(const std::string& path) {
  KVANT_ASSIGN(const auto file, OpenToList(path));
  std::string out = fmt::format("metadata      {} keys\n", file.metadata().size());
  for (const auto& [key, value] : file.metadata()) {
    out += fmt::format("  {:<40} {}\n", Visible(key), ValueText(value));
  }
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
    KVANT_ASSIGN(const std::string metadata, MetadataText(path));
    text += metadata;
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

std::string FindingText(const formats::TensorFinding& finding) {
  return formats::DescribeNonFinite(*finding.tensor, finding.values) + "\n";
}

Json FindingJson(const formats::TensorFinding& finding) {
  const int64_t columns = finding.tensor->dims[0];
  return {{"tensor", std::string(finding.tensor->name)},
          {"count", finding.values.count},
          {"first_row", finding.values.first / columns},
          {"first_column", finding.values.first % columns},
          {"first_value", fmt::format("{}", finding.values.value)}};
}

// Whether all weights are finite.
Result<bool> CheckWeights(const InspectOptions& options, const std::string& path,
                          ResultStream& out) {
  KVANT_ASSIGN(const auto file, OpenToList(path));
  KVANT_ASSIGN(const SessionOptions session_options, options.session.Options());
  ThreadPool pool(session_options.threads > 0 ? session_options.threads : DefaultThreadCount());
  TransferProgress progress("checked");
  KVANT_ASSIGN(
      const auto findings,
      formats::CheckTensors(file, pool, [&](const formats::GgufTensor& next, uint64_t bytes_done) {
        return progress.Update(bytes_done, file.file_bytes(), next.name);
      }));
  progress.Clear();
  size_t unchecked = 0;
  for (const formats::GgufTensor& tensor : file.tensors()) {
    if (tensor.format != nullptr) continue;
    ++unchecked;
    Note(fmt::format("tensor {} is not checked: kvant cannot read type {}", Visible(tensor.name),
                     formats::TensorTypeName(tensor)));
  }
  std::string text;
  if (options.json) {
    Json json = {{"tensors", file.tensors().size()},
                 {"not_checked", unchecked},
                 {"not_finite", Json::array()}};
    for (const auto& finding : findings) json["not_finite"].push_back(FindingJson(finding));
    text = Dump(json, 2) + "\n";
  } else {
    for (const auto& finding : findings) text += FindingText(finding);
    if (findings.empty()) {
      text = fmt::format("{} tensors, all values are finite\n", file.tensors().size() - unchecked);
    }
  }
  out.Write(text);
  return findings.empty();
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
  list.Group("Output");
  list.Flag("--json", &options.json, "Print one JSON object");
  options.model.AddPath(list);
  options.model.AddPre(list);
  options.session.Add(list, SessionUse::kPlan, "the length the model was trained for");
  AddIdleOptions(list);
  if (const auto code = line.Parse(list, kInspectHelp)) return *code;
  const bool model_optional = (options.cpu || options.devices) && !options.tensors &&
                              !options.WantsModel() && !options.check;
  Positionals positionals;
  if (const auto code = TakePositionals(
          line, options.model, model_optional ? ModelNeed::kOptional : ModelNeed::kRequired,
          StdinUse::kNone, &positionals)) {
    return *code;
  }
  ResultStream out;
  if (options.check) {
    const auto finite = CheckWeights(options, positionals.model, out);
    if (!finite.ok()) return Fail(finite.error());
    return out.Finish(*finite ? kExitDone : kExitFailed);
  }
  const Status status = Inspect(options, positionals.model, out);
  if (!status.ok()) return Fail(status.error());
  return out.Finish(kExitDone);
}

}  // namespace kvant::tools
