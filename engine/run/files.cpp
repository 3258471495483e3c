// Sequences on disk (format: engine/kv/session_file.h).
#include <algorithm>
#include <cstring>
#include <map>
#include <optional>
#include <utility>

#include "base/counted.h"
#include "base/result.h"
#include "engine/kv/session_file.h"
#include "engine/run/engine.h"

namespace kvant {
namespace {

kv::SavedSource SavedSourceOf(const run::SourceIdentity& source, const kv::Sequence& holder) {
  const run::SourceInput& input = source.input;
  if (input.frames.empty()) {
    return {kv::SourceKind::kTokens, std::as_bytes(std::span(input.tokens)), source.hash, &holder};
  }
  return {kv::SourceKind::kFrames, std::as_bytes(std::span(input.frames)), source.hash, &holder};
}

run::SourceInput InputOf(kv::SourceKind kind, std::span<const std::byte> bytes) {
  run::SourceInput input;
  void* to = nullptr;
  if (kind == kv::SourceKind::kTokens) {
    input.tokens.resize(bytes.size() / sizeof(TokenId));
    to = input.tokens.data();
  } else {
    input.frames.resize(bytes.size() / sizeof(float));
    to = input.frames.data();
  }
  if (!bytes.empty()) std::memcpy(to, bytes.data(), bytes.size());
  return input;
}

// Makes the sources of a file the runner's, each with one reference, and says their numbers.
Status RestoreSources(const std::string& path, run::Sources& sources,
                      std::vector<kv::LoadedSource>& loaded, std::vector<SourceId>* ids) {
  for (kv::LoadedSource& source : loaded) {
    auto rows = std::exchange(source.rows, std::nullopt);
    const auto id = sources.Restore(InputOf(source.kind, source.input), std::move(rows));
    if (!id.ok()) return MakeError(id.error().code, "{}: {}", path, id.error().message);
    ids->push_back(*id);
  }
  return {};
}

}  // namespace

Status Runner::Save(const std::string& path, std::span<const SequenceId> ids,
                    const SaveOptions& options) const {
  const run::Core& core = *engine_->core;
  if (!core.cache.has_value()) {
    return MakeError(ErrorCode::kNotSupported, "save: there is no KV cache");
  }
  std::vector<kv::SavedSequence> saved;
  std::vector<kv::SavedSource> sources;
  std::map<uint64_t, uint32_t> numbers;  // of sources in the file, by those in the runner
  for (const SequenceId id : ids) {
    KVANT_ASSIGN(const run::SequenceState* const state, engine_->sequences->Get(id));
    if (state->adapters != nullptr) {
      return MakeError(ErrorCode::kNotSupported,
                       "save: sequence {} uses adapters, which session files do not keep", id);
    }
    uint32_t number = 0;
    if (state->source != nullptr) {
      const auto next = static_cast<uint32_t>(sources.size() + 1);
      const auto [place, added] = numbers.emplace(state->source->number, next);
      if (added) sources.push_back(SavedSourceOf(*state->source, state->kv));
      number = place->second;
    }
    saved.push_back({&state->kv, state->tokens, engine_->sequences->logits(*state),
                     state->origin == run::Origin::kTokens, number});
  }
  return kv::WriteSessionFile(path, core.model->Fingerprint(), *core.cache,
                              {sources, options.source_rows == SourceRows::kSaved, saved});
}

Result<std::vector<SequenceId>> Runner::Load(const std::string& path) {
  run::Core& core = *engine_->core;
  run::Sequences& sequences = *engine_->sequences;
  run::Sources& sources = *engine_->sources;
  if (!core.cache.has_value()) {
    return MakeError(ErrorCode::kNotSupported, "load: there is no KV cache");
  }
  const auto check = [&](kv::SourceKind kind, std::span<const std::byte> input) -> Result<int64_t> {
    const run::SourceInput source = InputOf(kind, input);
    KVANT_TRY(sources.CheckInput(source));
    return source.Positions(*core.model);
  };
  KVANT_ASSIGN(kv::LoadedSession loaded,
               kv::ReadSessionFile(path, core.model->Fingerprint(), core.model->vocab_size(), check,
                                   *core.cache));
  Status status;
  const int64_t room = core.options.sequences - sequences.count();
  if (std::ssize(loaded.sequences) > room) {
    status = MakeError(ErrorCode::kOutOfMemory, "{}: {}, but there is room for {}", path,
                       Counted(loaded.sequences.size(), "sequence"), room);
  }
  std::vector<SourceId> source_ids;
  if (status.ok()) status = RestoreSources(path, sources, loaded.sources, &source_ids);
  std::vector<SequenceId> ids;
  if (status.ok()) {
    for (kv::LoadedSequence& sequence : loaded.sequences) {
      KVANT_ASSIGN(const SequenceId id, sequences.New());  // there is room
      ids.push_back(id);
      run::SequenceState& state = *sequences.Find(id);
      std::swap(state.kv, sequence.kv);
      if (sequence.source > 0) {
        KVANT_ASSIGN(const run::SourceState* const source,
                     sources.Get(source_ids[sequence.source - 1]));
        core.cache->ShareSource(state.kv, source->kv);
        state.source = source->identity;
      }
      state.tokens.assign(sequence.tokens.begin(), sequence.tokens.end());
      // The file does not tell an import from a prune.
      state.origin = sequence.given_by_tokens ? run::Origin::kTokens : run::Origin::kPruned;
      if (!sequence.logits.empty()) {
        const run::LogitRows::Row row = sequences.rows().Take();
        std::copy(sequence.logits.begin(), sequence.logits.end(),
                  sequences.rows().values(row).begin());
        sequences.SetLogits(state, row);
      }
      sequences.Remember(state);
    }
  }
  // From here on only sequences hold the sources.
  for (const SourceId id : source_ids) KVANT_TRY(sources.Free(id));
  if (!status.ok()) {
    kv::FreeLoaded(loaded, *core.cache);
    return status.error();
  }
  KVANT_TRY(sequences.CheckIfAsked());
  return ids;
}

}  // namespace kvant
