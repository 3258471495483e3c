// kvant hash: XXH64 of every tensor and of the whole model, in llama-gguf-hash's manifest form.
#include <fmt/format.h>

#include "formats/gguf.h"
#include "formats/model_hash.h"
#include "tools/commands.h"
#include "tools/common_options.h"
#include "tools/console.h"

namespace kvant::tools {
namespace {

constexpr HelpText kHelp = {
    "MODEL",
    "Prints the XXH64 hash of every tensor and, last, of all tensors together, in the manifest "
    "form\n"
    "of llama-gguf-hash. Metadata does not count: a file keeps its hashes when only that changes.",
    "  kvant hash model.gguf > model.manifest\n"
    "  llama-gguf-hash --check model.manifest model.gguf\n",
};

std::string ManifestLine(uint64_t hash, const std::string& name) {
  return fmt::format("{:<8}  {}  {}\n", "xxh64", formats::HashHex(hash), name);
}

Status Hash(const std::string& path, ResultStream& out) {
  KVANT_ASSIGN(const auto file, formats::GgufFile::Open(path));
  StatusLine status(!StdoutIsTerminal());
  uint64_t bytes = 0;
  const auto on_tensor = [&](const formats::GgufTensor& tensor, uint64_t hash) -> Status {
    if (CancelFlag().load()) return MakeError(ErrorCode::kCancelled, "interrupted");
    out.Write(ManifestLine(hash, fmt::format("{}:{}", path, tensor.name)));
    bytes += tensor.size_bytes;
    status.Set(fmt::format("hashed {} of {} MiB", bytes >> 20, file.file_bytes() >> 20));
    return {};
  };
  KVANT_ASSIGN(const uint64_t model_hash, formats::HashModel(file, on_tensor));
  out.Write(ManifestLine(model_hash, path));
  return {};
}

}  // namespace

int HashCommand(CommandLine& line) {
  ModelGroup model;
  OptionList list;
  model.AddPath(list);
  if (const auto code = line.Parse(list, kHelp)) return *code;
  Positionals positionals;
  if (const auto code =
          TakePositionals(line, model, ModelNeed::kRequired, StdinUse::kNone, &positionals)) {
    return *code;
  }
  ResultStream out;
  const Status status = Hash(positionals.model, out);
  if (!status.ok()) return Fail(status.error());
  return out.Finish(kExitDone);
}

}  // namespace kvant::tools
