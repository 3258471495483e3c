// Sequences on disk (format: engine/kv/session_file.h), and their way from one runner to another.
#include <algorithm>
#include <cstring>
#include <map>
#include <optional>
#include <utility>

#include "base/counted.h"
#include "base/result.h"
#include "engine/kv/session_copy.h"
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

// The form in which sequences are saved; it refers to them.
struct Contents {
  std::vector<kv::SavedSource> sources;
  std::vector<kv::SavedSequence> sequences;
};

Result<Contents> ContentsOf(const run::Engine& engine, std::span<const SequenceId> ids) {
  Contents out;
  std::map<uint64_t, uint32_t> numbers;  // of sources in `out`, by those in the runner
  for (const SequenceId id : ids) {
    KVANT_ASSIGN(const run::SequenceState* const state, engine.sequences->Get(id));
    if (state->adapters != nullptr) {
      return MakeError(ErrorCode::kNotSupported,
                       "sequence {} uses adapters, which neither files nor other runners keep", id);
    }
    uint32_t number = 0;
    if (state->source != nullptr) {
      const auto next = static_cast<uint32_t>(out.sources.size() + 1);
      const auto [place, added] = numbers.emplace(state->source->number, next);
      if (added) out.sources.push_back(SavedSourceOf(*state->source, state->kv));
      number = place->second;
    }
    out.sequences.push_back({&state->kv, state->tokens, engine.sequences->logits(*state),
                             state->origin == run::Origin::kTokens, number});
  }
  return out;
}

// Makes a new sequence of one that was loaded, of the source that is named.
Result<SequenceId> TakeUp(run::Engine& engine, kv::LoadedSequence& loaded,
                          std::span<const SourceId> source_ids) {
  run::Sequences& sequences = *engine.sequences;
  KVANT_ASSIGN(const SequenceId id, sequences.New());
  run::SequenceState& state = *sequences.Find(id);
  std::swap(state.kv, loaded.kv);
  if (loaded.source > 0) {
    KVANT_ASSIGN(const run::SourceState* const source,
                 engine.sources->Get(source_ids[loaded.source - 1]));
    engine.core->cache->ShareSource(state.kv, source->kv);
    state.source = source->identity;
  }
  state.tokens.assign(loaded.tokens.begin(), loaded.tokens.end());
  // The file does not tell an import from a prune.
  state.origin = loaded.given_by_tokens ? run::Origin::kTokens : run::Origin::kPruned;
  if (!loaded.logits.empty()) {
    const run::LogitRows::Row row = sequences.rows().Take();
    std::ranges::copy(loaded.logits, sequences.rows().values(row).begin());
    sequences.SetLogits(state, row);
  }
  sequences.Remember(state);
  return id;
}

// Makes sequences of all that was loaded, or none. `name` stands in messages for where it is from.
Result<std::vector<SequenceId>> TakeUpAll(run::Engine& engine, const std::string& name,
                                          kv::LoadedSession& loaded) {
  const int64_t room = engine.core->options.sequences - engine.sequences->count();
  Status status;
  if (std::ssize(loaded.sequences) > room) {
    status = MakeError(ErrorCode::kOutOfMemory, "{}: {}, but there is room for {}", name,
                       Counted(loaded.sequences.size(), "sequence"), room);
  }
  std::vector<SourceId> source_ids;
  if (status.ok()) status = RestoreSources(name, *engine.sources, loaded.sources, &source_ids);
  std::vector<SequenceId> ids;
  if (status.ok()) {
    for (kv::LoadedSequence& sequence : loaded.sequences) {
      KVANT_ASSIGN(ids.emplace_back(), TakeUp(engine, sequence, source_ids));  // there is room
    }
  }
  // From here on only sequences hold the sources.
  for (const SourceId id : source_ids) KVANT_TRY(engine.sources->Free(id));
  if (!status.ok()) {
    kv::FreeLoaded(loaded, *engine.core->cache);
    return status.error();
  }
  KVANT_TRY(engine.sequences->CheckIfAsked());
  return ids;
}

}  // namespace

Status Runner::Save(const std::string& path, std::span<const SequenceId> ids,
                    const SaveOptions& options) const {
  const run::Core& core = *engine_->core;
  if (!core.cache.has_value()) {
    return MakeError(ErrorCode::kNotSupported, "save: there is no KV cache");
  }
  KVANT_ASSIGN(const Contents contents, ContentsOf(*engine_, ids));
  return kv::WriteSessionFile(
      path, core.model->Fingerprint(), *core.cache,
      {contents.sources, options.source_rows == SourceRows::kSaved, contents.sequences});
}

Result<std::vector<SequenceId>> Runner::Load(const std::string& path) {
  run::Core& core = *engine_->core;
  if (!core.cache.has_value()) {
    return MakeError(ErrorCode::kNotSupported, "load: there is no KV cache");
  }
  const auto check = [&](kv::SourceKind kind, std::span<const std::byte> input) -> Result<int64_t> {
    const run::SourceInput source = InputOf(kind, input);
    KVANT_TRY(engine_->sources->CheckInput(source));
    return source.Positions(*core.model);
  };
  KVANT_ASSIGN(kv::LoadedSession loaded,
               kv::ReadSessionFile(path, core.model->Fingerprint(), core.model->vocab_size(), check,
                                   *core.cache));
  return TakeUpAll(*engine_, path, loaded);
}

Result<std::vector<SequenceId>> Runner::Adopt(const Runner& from, std::span<const SequenceId> ids) {
  run::Core& core = *engine_->core;
  const run::Core& other = *from.engine_->core;
  if (&from == this) {
    return MakeError(ErrorCode::kInvalid, "adopt: expected sequences of another runner");
  }
  if (!core.cache.has_value() || !other.cache.has_value()) {
    return MakeError(ErrorCode::kNotSupported, "adopt: there is no KV cache");
  }
  if (core.model != other.model && core.model->Fingerprint() != other.model->Fingerprint()) {
    return MakeError(ErrorCode::kNotSupported, "adopt: the other runner has another model");
  }
  KVANT_ASSIGN(const Contents contents, ContentsOf(*from.engine_, ids));
  auto copied =
      kv::CopySession(*other.cache, {contents.sources, true, contents.sequences}, *core.cache);
  if (!copied.ok()) {
    return MakeError(copied.error().code, "adopt: {}", copied.error().message);
  }
  return TakeUpAll(*engine_, "adopt", *copied);
}

}  // namespace kvant
