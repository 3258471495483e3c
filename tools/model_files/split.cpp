// kvant split: a model becomes several files.
#include <fmt/format.h>

#include "base/counted.h"
#include "base/result.h"
#include "formats/gguf_resplit.h"
#include "tools/commands.h"
#include "tools/options/model_names.h"
#include "tools/options/option_values.h"
#include "tools/terminal/console.h"
#include "tools/terminal/transfer_progress.h"

namespace kvant::tools {
namespace {

constexpr HelpText kSplitHelp = {
    "IN OUT_PREFIX (--max-size SIZE | --max-tensors N) [--dry-run]",
    "Cuts a model into shards named OUT_PREFIX-00001-of-0000N.gguf. A command that is given any\n"
    "one of the shards reads the whole model. Sizes count tensor bytes; K, M and G mean 1000,\n"
    "1000^2 and 1000^3.",
    "  kvant split model.gguf model --max-size 2G\n"
    "  kvant split model.gguf shards/model --max-tensors 128 --dry-run\n",
};

Status Split(const std::string& input, const std::string& prefix,
             const formats::SplitLimits& limits, bool dry_run, ResultStream& out) {
  KVANT_ASSIGN(const std::string path, FindModel(input));
  KVANT_ASSIGN(const auto file, formats::GgufFile::Open(path, FileAccess::kMap,
                                                        formats::UnreadableTensors::kListed));
  KVANT_ASSIGN(const auto shards, formats::PlanSplit(file, prefix, limits));
  if (!dry_run) {
    TransferProgress progress("split");
    uint64_t done = 0;
    const auto on_tensor = [&](const formats::GgufTensor& tensor) {
      const Status status = progress.Update(done, file.file_bytes(), tensor.name);
      done += tensor.size_bytes;
      return status;
    };
    KVANT_TRY(formats::WriteSplit(file, shards, on_tensor));
  }
  for (const formats::SplitShard& shard : shards) {
    out.Write(fmt::format("{}: {}, {}\n", Visible(shard.path), Counted(shard.tensors, "tensor"),
                          Counted(shard.tensor_bytes, "byte")));
  }
  return {};
}

}  // namespace

int SplitCommand(CommandLine& line) {
  formats::SplitLimits limits;
  std::optional<int64_t> tensors;
  bool dry_run = false;
  OptionList list;
  list.Checked(
      "--max-size,--split-max-size",
      [&limits](const std::string& text) {
        return TakeSize(text, "500M or 2G", &limits.bytes_max);
      },
      "SIZE", "Most tensor bytes of a shard: 500M, 2G");
  list.Integer("--max-tensors,--split-max-tensors", &tensors, {1, int64_t{1} << 30},
               "Most tensors of a shard", "");
  list.Flag("--dry-run", &dry_run, "Show the shards and write nothing");
  if (const auto code = line.Parse(list, kSplitHelp)) return *code;
  if (line.positionals().size() != 2) {
    return line.UsageError("expected a model and the prefix of the shards");
  }
  if ((limits.bytes_max != 0) == tensors.has_value()) {
    return line.UsageError("expected either --max-size or --max-tensors");
  }
  limits.tensors_max = static_cast<uint64_t>(tensors.value_or(0));
  ResultStream out;
  const Status status = Split(line.positionals()[0], line.positionals()[1], limits, dry_run, out);
  if (!status.ok()) return Fail(status.error());
  return out.Finish(kExitDone);
}

}  // namespace kvant::tools
