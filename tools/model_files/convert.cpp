// kvant convert: a folder of Hugging Face or CTranslate2 becomes a GGUF file.
#include <fmt/format.h>

#include <algorithm>
#include <string>
#include <string_view>

#include "base/counted.h"
#include "base/thread_pool.h"
#include "engine/convert/convert.h"
#include "kvant/model.h"
#include "tools/commands.h"
#include "tools/options/groups/session_group.h"
#include "tools/terminal/console.h"
#include "tools/terminal/transfer_progress.h"

namespace kvant::tools {
namespace {

constexpr const char* kDescription =
    "Converts a Hugging Face folder (config.json, safetensors, tokenizer files) to a GGUF file,\n"
    "or a CTranslate2 folder (model.bin) of Whisper or of a translator.\n"
    "Memory for one tensor is enough. A model that cannot be converted faithfully is refused\n"
    "with the reason. License, languages, tags, base models and datasets come from README.md,\n"
    "settings for sampling from generation_config.json.\n"
    "\n"
    "Models\n"
    "  ";

constexpr size_t kColumns = 96;
constexpr size_t kClassColumn = 40;  // of the list of classes

// The description with the models of all families, separated by commas.
std::string Description() {
  std::string text = kDescription;
  size_t line = text.rfind('\n') + 1;
  bool is_first = true;
  for (const KnownArchitecture& known : KnownArchitectures()) {
    std::string_view models = known.models;
    while (!models.empty()) {
      const std::string_view model = models.substr(0, models.find(", "));
      models.remove_prefix(std::min(models.size(), model.size() + 2));
      const bool fits = text.size() - line + model.size() + 3 <= kColumns;
      if (!is_first) text += fits ? ", " : ",\n  ";
      if (!fits) line = text.size() - 2;
      text += model;
      is_first = false;
    }
  }
  return text;
}

constexpr const char* kExamples =
    "  kvant convert TinyLlama-1.1B-Chat-v1.0 tinyllama.gguf\n"
    "  kvant convert Phi-3-mini-4k-instruct phi3-q8_0.gguf --type q8_0\n"
    "  kvant convert faster-whisper-base whisper-base.gguf\n";

int ListClasses() {
  ResultStream out;
  for (const convert::ConvertibleClass& known : convert::ConvertibleClasses()) {
    out.Write(fmt::format("{:<{}} {}\n", known.name, kClassColumn, known.arch));
  }
  return out.Finish(kExitDone);
}

}  // namespace

int ConvertCommand(CommandLine& line) {
  std::optional<std::string> type;
  std::optional<std::string> name;
  std::optional<std::string> task;
  bool list_classes = false;
  SessionGroup session;
  OptionList list;
  list.Group("Output");
  list.Text("--type,--outtype", &type, "TYPE",
            "Type of matrices: f32, f16, bf16 or q8_0; vectors are always f32",
            "the type that the folder has them in");
  list.Text("--name", &name, "NAME", "Name of the model in the file, general.name",
            "the one that README.md, config.json or the folder's name gives it");
  list.Text("--task", &task, "NAME",
            "Task whose adapters become part of the weights, of an embedding model that has some");
  session.AddThreads(list);
  list.Group("Information");
  list.Flag("--list-classes", &list_classes,
            "List Hugging Face's classes that can be converted, and the architectures that they "
            "become");
  const std::string description = Description();
  const HelpText help = {"DIR OUT.gguf [OPTIONS]", description.c_str(), kExamples};
  if (const auto code = line.Parse(list, help)) return *code;
  if (list_classes) return ListClasses();
  if (line.positionals().size() != 2) {
    return line.UsageError("expected a folder and the file to write");
  }
  TransferProgress progress("converted");
  convert::ConvertOptions options;
  options.type = type.value_or("");
  options.name = name.value_or("");
  options.task = task.value_or("");
  options.threads = session.ThreadCount();
  options.on_progress = [&](const convert::ConvertProgress& now) {
    return progress.Update(now.bytes_done, now.bytes_total, now.tensor);
  };
  const std::string& output = line.positionals()[1];
  const auto summary = convert::ConvertFolder(line.positionals()[0], output, options);
  progress.Clear();
  if (!summary.ok()) return Fail(summary.error());
  ResultStream out;
  out.Write(fmt::format("{}: {}, {}, {} parameters, matrices in {}\n", Visible(output),
                        summary->arch, Counted(summary->tensors, "tensor"), summary->parameters,
                        summary->type));
  return out.Finish(kExitDone);
}

}  // namespace kvant::tools
