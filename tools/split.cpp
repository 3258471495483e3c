// kvant split: a model becomes several files.
#include <fmt/format.h>

#include "formats/gguf_resplit.h"
#include "tools/commands.h"
#include "tools/common_options.h"
#include "tools/console.h"
#include "tools/transfer_progress.h"

namespace kvant::tools {
namespace {

constexpr HelpText kHelp = {
    "IN OUT_PREFIX (--max-size SIZE | --max-tensors N) [--dry-run]",
    "Cuts a model into shards named OUT_PREFIX-00001-of-0000N.gguf, which every command reads "
    "given\n"
    "any one of them. Sizes count tensor bytes, K, M and G mean 1000, 1000^2 and 1000^3.",
    "  kvant split model.gguf model --max-size 2G\n"
    "  kvant split model.gguf shards/model --max-tensors 128 --dry-run\n",
};

Status Split(const std::string& input, const std::string& prefix,
             const formats::SplitLimits& limits, bool dry_run, ResultStream& out) {
  KVANT_ASSIGN(const auto file, formats::GgufFile::Open(input, FileAccess::kMap,
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
    out.Write(fmt::format("{}: {} tensors, {} bytes\n", Visible(shard.path), shard.tensors,
                          shard.tensor_bytes));
  }
  return {};
}

}  // namespace

int SplitCommand(CommandLine& line) {
  std::optional<std::string> size;
  std::optional<int64_t> tensors;
  bool dry_run = false;
  OptionList list;
  list.Text("--max-size,--split-max-size", &size, "SIZE", "Tensor bytes of a shard: 500M, 2G");
  list.Integer("--max-tensors,--split-max-tensors", &tensors, {.min = 1}, "Tensors of a shard", "");
  list.Flag("--dry-run", &dry_run, "Show the shards and write nothing");
  if (const auto code = line.Parse(list, kHelp)) return *code;
  if (line.positionals().size() != 2) {
    return line.UsageError("expected a model and the prefix of the shards");
  }
  if (size.has_value() == tensors.has_value()) {
    return line.UsageError("expected either --max-size or --max-tensors");
  }
  formats::SplitLimits limits;
  limits.tensors_max = static_cast<uint64_t>(tensors.value_or(0));
  if (size) {
    const auto bytes = ParseSize(*size);
    if (!bytes) {
      return line.UsageError(
          fmt::format("--max-size: expected a size such as 500M or 2G, found '{}'", *size));
    }
    limits.bytes_max = *bytes;
  }
  ResultStream out;
  const Status status = Split(line.positionals()[0], line.positionals()[1], limits, dry_run, out);
  if (!status.ok()) return Fail(status.error());
  return out.Finish(kExitDone);
}

}  // namespace kvant::tools
