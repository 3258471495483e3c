// kvant merge: the shards of a model become one file.
#include <fmt/format.h>

#include "base/result.h"
#include "formats/gguf_resplit.h"
#include "tools/commands.h"
#include "tools/options/model_names.h"
#include "tools/terminal/console.h"
#include "tools/terminal/transfer_progress.h"

namespace kvant::tools {
namespace {

constexpr HelpText kMergeHelp = {
    "ANY_SHARD OUT",
    "Joins the shards of a model, given any one of them, to one file. Tensors keep their bytes\n"
    "and metadata their values; only the entries split.* are left out.",
    "  kvant merge model-00001-of-00003.gguf model.gguf\n",
};

Status Merge(const std::string& input, const std::string& output) {
  KVANT_ASSIGN(const std::string path, FindModel(input));
  KVANT_ASSIGN(const auto file, formats::GgufFile::Open(path, FileAccess::kMap,
                                                        formats::UnreadableTensors::kListed));
  TransferProgress progress("merged");
  uint64_t done = 0;
  return formats::WriteMerged(file, output, [&](const formats::GgufTensor& tensor) {
    const Status status = progress.Update(done, file.file_bytes(), tensor.name);
    done += tensor.size_bytes;
    return status;
  });
}

}  // namespace

int MergeCommand(CommandLine& line) {
  OptionList list;
  if (const auto code = line.Parse(list, kMergeHelp)) return *code;
  if (line.positionals().size() != 2) {
    return line.UsageError("expected a shard of a model and the file to write");
  }
  const Status status = Merge(line.positionals()[0], line.positionals()[1]);
  return status.ok() ? kExitDone : Fail(status.error());
}

}  // namespace kvant::tools
