// Sequences on disk (format: engine/kv/session_file.h).
#include <algorithm>

#include "base/result.h"
#include "engine/kv/session_file.h"
#include "engine/run/engine.h"

namespace kvant {

Status Runner::Save(const std::string& path, std::span<const SequenceId> ids) const {
  const run::Core& core = *engine_->core;
  if (!core.cache.has_value()) {
    return MakeError(ErrorCode::kNotSupported, "save: there is no KV cache");
  }
  std::vector<kv::SavedSequence> saved;
  for (const SequenceId id : ids) {
    KVANT_ASSIGN(const run::SequenceState* const state, engine_->sequences->Get(id));
    saved.push_back({&state->kv, state->tokens, engine_->sequences->logits(*state),
                     state->origin == run::Origin::kTokens});
  }
  return kv::WriteSessionFile(path, core.model->Fingerprint(), *core.cache, saved);
}

Result<std::vector<SequenceId>> Runner::Load(const std::string& path) {
  run::Core& core = *engine_->core;
  run::Sequences& sequences = *engine_->sequences;
  if (!core.cache.has_value()) {
    return MakeError(ErrorCode::kNotSupported, "load: there is no KV cache");
  }
  KVANT_ASSIGN(
      std::vector<kv::LoadedSequence> loaded,
      kv::ReadSessionFile(path, core.model->Fingerprint(), core.model->vocab_size(), *core.cache));
  const int64_t room = core.options.sequences - sequences.count();
  if (std::ssize(loaded) > room) {
    for (kv::LoadedSequence& sequence : loaded) core.cache->Free(sequence.kv);
    return MakeError(ErrorCode::kOutOfMemory, "{}: {} sequences, but there is room for {}", path,
                     loaded.size(), room);
  }
  std::vector<SequenceId> ids;
  for (kv::LoadedSequence& sequence : loaded) {
    KVANT_ASSIGN(const SequenceId id, sequences.New());  // there is room
    ids.push_back(id);
    run::SequenceState& state = *sequences.Find(id);
    std::swap(state.kv, sequence.kv);
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
  KVANT_TRY(sequences.CheckIfAsked());
  return ids;
}

}  // namespace kvant
