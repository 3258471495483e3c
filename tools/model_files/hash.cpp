// kvant hash: XXH64 of every tensor and of the whole model, in llama-gguf-hash's manifest form, and
// the comparison with such a manifest.
#include <fmt/format.h>

#include "base/counted.h"
#include "base/result.h"
#include "formats/gguf.h"
#include "formats/hash_manifest.h"
#include "formats/model_hash.h"
#include "tools/commands.h"
#include "tools/options/evaluation_options.h"
#include "tools/options/groups/model_group.h"

namespace kvant::tools {
namespace {

constexpr HelpText kHashHelp = {
    "MODEL [--check MANIFEST]",
    "Prints the XXH64 hash of every tensor and, last, of all tensors together, in the manifest "
    "form\n"
    "of llama-gguf-hash. Metadata does not count: a file keeps its hashes when only that changes.\n"
    "With --check, compares the model with a manifest that kvant or llama-gguf-hash wrote (its\n"
    "xxh64 lines), names the tensors that differ, and fails if there are any. Tensors are matched "
    "by\n"
    "name: the file may have moved.",
    "  kvant hash model.gguf > model.manifest\n"
    "  kvant hash model.gguf --check model.manifest\n"
    "  llama-gguf-hash --check model.manifest model.gguf\n",
};

using TensorHashes = std::map<std::string, uint64_t, std::less<>>;

// Hashes the file; `on_tensor` gets each tensor's hash as soon as it is known.
Result<uint64_t> Hash(const formats::GgufFile& file, const formats::TensorHashFunction& on_tensor,
                      StatusUse status_use) {
  StatusLine status(status_use);
  uint64_t bytes = 0;
  return formats::HashModel(file, [&](const formats::GgufTensor& tensor, uint64_t hash) -> Status {
    if (CancelFlag().load()) return MakeError(ErrorCode::kCancelled, "interrupted");
    bytes += tensor.size_bytes;
    status.Set(fmt::format("hashed {} of {} MiB", bytes >> 20, file.file_bytes() >> 20));
    return on_tensor(tensor, hash);
  });
}

Status PrintManifest(const std::string& path, ResultStream& out) {
  KVANT_ASSIGN(const auto file, formats::GgufFile::Open(path, FileAccess::kMap,
                                                        formats::UnreadableTensors::kListed));
  const auto print = [&](const formats::GgufTensor& tensor, uint64_t hash) -> Status {
    if (out.Write(formats::HashManifestLine(hash, fmt::format("{}:{}", path, tensor.name)))) {
      return {};
    }
    return MakeError(ErrorCode::kCancelled, "nobody reads the result");
  };
  KVANT_ASSIGN(const uint64_t model_hash,
               Hash(file, print, StdoutIsTerminal() ? StatusUse::kHidden : StatusUse::kShown));
  out.Write(formats::HashManifestLine(model_hash, path));
  return {};
}

// The comparison as text: one line for each tensor that is not as it should be.
std::string Report(const formats::HashComparison& found, const formats::HashManifest& manifest,
                   const std::string& path) {
  std::string text;
  const auto list = [&](const std::vector<std::string>& names, const char* what) {
    for (const std::string& name : names) text += fmt::format("{}  {}\n", what, Visible(name));
  };
  list(found.differing, "differs           ");
  list(found.missing, "not in the model  ");
  list(found.added, "not in the manifest");
  if (!found.same()) {
    return text +
           fmt::format(
               "{} is not the model of the manifest; tensors: {} different, {} missing, {} new{}\n",
               Visible(path), found.differing.size(), found.missing.size(), found.added.size(),
               found.model_differs ? "; the hash of the whole differs" : "");
  }
  return fmt::format("{} is as the manifest says: {}\n", Visible(path),
                     manifest.tensors.empty() ? std::string("the hash of the whole")
                                              : Counted(manifest.tensors.size(), "tensor"));
}

// Whether the model is as the manifest says.
Result<bool> Check(const std::string& path, const std::string& manifest_path, ResultStream& out) {
  KVANT_ASSIGN(const std::string text, ReadText(manifest_path));
  KVANT_ASSIGN(const auto manifest, formats::ParseHashManifest(text, manifest_path));
  KVANT_ASSIGN(const auto file, formats::GgufFile::Open(path, FileAccess::kMap,
                                                        formats::UnreadableTensors::kListed));
  TensorHashes hashes;
  const auto keep = [&](const formats::GgufTensor& tensor, uint64_t hash) -> Status {
    hashes.emplace(tensor.name, hash);
    return {};
  };
  KVANT_ASSIGN(const uint64_t model_hash, Hash(file, keep, StatusUse::kShown));
  const formats::HashComparison found = formats::CompareHashes(manifest, hashes, model_hash);
  out.Write(Report(found, manifest, path));
  return found.same();
}

}  // namespace

int HashCommand(CommandLine& line) {
  ModelGroup model;
  std::optional<std::string> manifest;
  OptionList list;
  list.Text("-c,--check", &manifest, "MANIFEST", "Compare the model with this manifest");
  model.AddPath(list);
  if (const auto code = line.Parse(list, kHashHelp)) return *code;
  Positionals positionals;
  if (const auto code =
          TakePositionals(line, model, ModelNeed::kRequired, StdinUse::kNone, &positionals)) {
    return *code;
  }
  ResultStream out;
  if (!manifest.has_value()) {
    const Status status = PrintManifest(positionals.model, out);
    return status.ok() || out.failed() ? out.Finish(kExitDone) : Fail(status.error());
  }
  const auto same = Check(positionals.model, *manifest, out);
  if (!same.ok()) return Fail(same.error());
  return out.Finish(*same ? kExitDone : kExitFailed);
}

}  // namespace kvant::tools
