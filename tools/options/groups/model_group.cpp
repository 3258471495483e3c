#include "tools/options/groups/model_group.h"

#include <fmt/format.h>

#include <array>
#include <string_view>
#include <utility>

#include "base/result.h"
#include "tools/options/model_names.h"
#include "tools/options/number_list.h"
#include "tools/terminal/console.h"

namespace kvant::tools {
namespace {

const char* const kModelGroup = "Model";

// llama.cpp's words. Direct access to the disk is not there: files are read through the system.
Status TakeLoadMode(const std::string& text, ModelGroup* group) {
  struct Mode {
    std::string_view name;
    bool maps;
    bool locks;
  };
  constexpr std::array kModes = {Mode{"mmap", true, false}, Mode{"none", false, false},
                                 Mode{"mlock", true, true}, Mode{"mmap+mlock", true, true},
                                 Mode{"dio", false, false}};
  for (const Mode& mode : kModes) {
    if (text != mode.name) continue;
    group->no_mmap = !mode.maps;
    group->lock_memory = mode.locks;
    return {};
  }
  return MakeError(ErrorCode::kInvalid, "expected mmap, none, mlock, mmap+mlock or dio, found '{}'",
                   Visible(text));
}

}  // namespace

void ModelGroup::AddPath(OptionList& list) {
  list.Group(kModelGroup);
  list.Text("-m,--model", &option_path, "FILE",
            "GGUF file, any shard of a split model, or the name of a model that comes with kvant; "
            "in place of the argument MODEL");
  list.Values("--model", ModelNames());
  list.Values("", ModelNames());
}

void ModelGroup::AddPre(OptionList& list) {
  list.Group(kModelGroup);
  list.Text("--pre", &pre, "NAME", "Use this pre-tokenizer instead of the one the file names");
}

void ModelGroup::AddIgnoredKeys(OptionList& list) {
  list.Group(kModelGroup);
  list.Texts("--ignore-keys", &ignored_keys, "NAME,...",
             "Open a file that is refused for these keys, and leave out what they do: the model "
             "then computes something else than it was made for");
}

void ModelGroup::AddLoading(OptionList& list) {
  AddIgnoredKeys(list);
  list.Flag("--mlock", &lock_memory, "Keep the model in memory, never swapped out");
  list.Flag("--no-mmap", &no_mmap,
            "Read the model into memory instead of mapping the file: helps with slow file systems, "
            "and may make decoding faster");
  const auto take_mode = [this](const std::string& text) { return TakeLoadMode(text, this); };
  list.Checked("--load-mode", take_mode, "mmap|none|mlock|mmap+mlock|dio",
               "How to load the model: mmap maps the file, none and dio read it, mlock keeps it in "
               "memory",
               "mmap");
}

ModelOptions ModelGroup::Options() const {
  ModelOptions options;
  options.access = no_mmap ? FileAccess::kRead : FileAccess::kMap;
  options.lock_memory = lock_memory;
  options.tokenizer.pre_override = pre.value_or("");
  for (const std::string& list : ignored_keys) {
    for (std::string& name : SplitList(list)) {
      if (!name.empty()) options.ignored_keys.push_back(std::move(name));
    }
  }
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
      return line.UsageError(fmt::format("unexpected argument '{}': the model is '{}'{}", word,
                                         out->model,
                                         line.takes_text() ? ", and a text comes with -p" : ""));
    }
    out->model = word;
    model_given = true;
  }
  if (model_given && out->model.empty()) return line.UsageError("the name of the model is empty");
  if (!model_given && need == ModelNeed::kRequired) {
    return line.UsageError(fmt::format(
        "no model given: name a GGUF file, as in 'kvant {} model.gguf'", line.command()));
  }
  if (!model_given) return std::nullopt;
  auto path = FindModel(out->model);
  if (!path.ok()) return Fail(path.error());
  out->model = std::move(*path);
  return std::nullopt;
}

}  // namespace kvant::tools
