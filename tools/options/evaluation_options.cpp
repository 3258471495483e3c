#include "tools/options/evaluation_options.h"

#include <fmt/format.h>

#include <utility>

#include "base/result.h"
#include "tools/options/groups/text_group.h"
#include "tools/options/model_names.h"

namespace kvant::tools {

void EvaluationGroup::Add(OptionList& list) {
  list.Group("Text");
  list.Text("-f,--file", &text_option, "FILE",
            "Read the text from a file, in place of the argument TEXT; - is standard input");
  list.Integer("--chunks", &chunks, {1, int64_t{1} << 30}, "Most windows to process",
               "all of the text");
  model.AddPath(list);
  model.AddPre(list);
  model.AddLoading(list);
  session.Add(list, SessionUse::kWindows);
}

std::optional<int> EvaluationGroup::TakeFiles(const CommandLine& line, std::string* model_path,
                                              std::optional<std::string>* text_path) const {
  std::optional<std::string> model_file = model.option_path;
  *text_path = text_option;
  for (const std::string& word : line.positionals()) {
    if (!model_file.has_value()) {
      model_file = word;
    } else if (!text_path->has_value()) {
      *text_path = word;
    } else {
      return line.UsageError(
          fmt::format("unexpected argument '{}': the model is '{}', the text '{}'", word,
                      *model_file, **text_path));
    }
  }
  if (!model_file.has_value()) {
    return line.UsageError(fmt::format(
        "no model given: name a GGUF file, as in 'kvant {} model.gguf'", line.command()));
  }
  if (model_file->empty()) return line.UsageError("the name of the model is empty");
  auto path = FindModel(*model_file);
  if (!path.ok()) return Fail(path.error());
  *model_path = std::move(*path);
  return std::nullopt;
}

Result<std::string> ReadText(const std::string& path) {
  TextGroup source;
  source.file = path;
  KVANT_ASSIGN(const auto text, source.Read({}));
  return text.value_or("");
}

Result<std::vector<TokenId>> TokenizeText(const std::string& path, const Tokenizer& tokenizer) {
  KVANT_ASSIGN(std::string text, ReadText(path));
  if (text.ends_with('\n')) text.pop_back();
  return tokenizer.Encode(text, {.add_special = true, .parse_special = false});
}

Result<SessionOptions> WindowSessionOptions(const SessionGroup& group, int64_t size) {
  KVANT_ASSIGN(SessionOptions options, group.Options());
  options.context = size;
  return options;
}

Status EvaluationProgress::Update(int64_t done, int64_t tokens, const std::string& what) {
  if (CancelFlag().load()) return MakeError(ErrorCode::kCancelled, "interrupted");
  if (!status_.enabled()) return {};
  const double per_unit = seconds() / static_cast<double>(done);
  status_.Set(fmt::format("{} of {} {}, {:.0f} tokens/s, {:.0f} s left{}", done, total_, unit_,
                          static_cast<double>(tokens) / seconds(),
                          per_unit * static_cast<double>(total_ - done),
                          what.empty() ? "" : " (" + what + ")"));
  return {};
}

}  // namespace kvant::tools
