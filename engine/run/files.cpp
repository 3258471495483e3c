// Sequences on disk (format: engine/kv/session_file.h), and their way from one runner to another.
#include <algorithm>
#include <cstring>
#include <list>
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

// The row blocks of a file, in the order in which tokens mention them first.
class SavedRows {
 public:
  SavedRows(const kv::RowBlocks& blocks, TokenId vocab) : blocks_(blocks), next_(vocab) {}

  // The tokens of a sequence with the ids that their rows have in the file.
  std::span<const TokenId> Renumber(std::span<const TokenId> tokens) {
    const auto row =
        std::ranges::find_if(tokens, [&](TokenId id) { return blocks_.Find(id) != nullptr; });
    if (row == tokens.end()) return tokens;
    std::vector<TokenId>& renumbered = tokens_.emplace_back(tokens.begin(), tokens.end());
    for (TokenId& id : renumbered) {
      if (blocks_.Find(id) != nullptr) id = InFile(id);
    }
    return renumbered;
  }

  std::span<const std::span<const float>> contents() const { return contents_; }

 private:
  TokenId InFile(TokenId id) {
    const kv::RowBlocks::Block block = blocks_.BlockOf(id);
    const auto [place, added] = firsts_.emplace(block.first, next_);
    if (added) {
      contents_.push_back(block.rows);
      next_ += static_cast<TokenId>(std::ssize(block.rows) / blocks_.dim());
    }
    return place->second + (id - block.first);
  }

  const kv::RowBlocks& blocks_;
  TokenId next_;
  std::map<TokenId, TokenId> firsts_;  // of blocks in the file, by those in the runner
  std::vector<std::span<const float>> contents_;
  std::list<std::vector<TokenId>> tokens_;
};

kv::SessionModel SessionModelOf(const Model& model) {
  return {model.Fingerprint(), model.vocab_size(), model.row_dim()};
}

// The form in which sequences are saved; it refers to them.
struct Contents {
  Contents(const kv::RowBlocks& blocks, TokenId vocab) : rows(blocks, vocab) {}

  kv::SavedSession Session(SourceRows source_rows) const {
    return {sources, source_rows == SourceRows::kSaved, sequences, rows.contents()};
  }

  std::vector<kv::SavedSource> sources;
  std::vector<kv::SavedSequence> sequences;
  SavedRows rows;
};

Result<Contents> ContentsOf(const run::Engine& engine, std::span<const SequenceId> ids) {
  const run::Core& core = *engine.core;
  Contents out(core.row_blocks, core.model->vocab_size());
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
    out.sequences.push_back({&state->kv, out.rows.Renumber(state->tokens),
                             engine.sequences->logits(*state),
                             state->origin == run::Origin::kTokens, number});
  }
  return out;
}

// The sources and row blocks of a file as the runner has them, each held once.
struct Restored {
  std::vector<SourceId> sources;
  std::vector<TokenId> row_blocks;  // the first id of each
  std::vector<TokenId> rows;        // the id of each row of the file
};

Status TakeInputs(const std::string& path, run::Engine& engine, kv::LoadedSession& loaded,
                  Restored* restored) {
  KVANT_TRY(RestoreSources(path, *engine.sources, loaded.sources, &restored->sources));
  kv::RowBlocks& blocks = engine.core->row_blocks;
  for (const std::vector<float>& rows : loaded.row_blocks) {
    const auto first = blocks.Add(rows);
    if (!first.ok()) return MakeError(first.error().code, "{}: {}", path, first.error().message);
    restored->row_blocks.push_back(*first);
    for (int64_t i = 0; i < std::ssize(rows) / blocks.dim(); ++i) {
      restored->rows.push_back(*first + static_cast<TokenId>(i));
    }
  }
  return {};
}

Status GiveBack(run::Engine& engine, const Restored& restored) {
  for (const SourceId id : restored.sources) KVANT_TRY(engine.sources->Free(id));
  for (const TokenId first : restored.row_blocks) KVANT_TRY(engine.core->row_blocks.Free(first));
  return {};
}

// Makes an empty state what a file has of a sequence.
Status AdoptSaved(run::Engine& engine, const Restored& restored, kv::LoadedSequence& sequence,
                  run::SequenceState& state) {
  run::Sequences& sequences = *engine.sequences;
  std::swap(state.kv, sequence.kv);
  if (sequence.source > 0) {
    KVANT_ASSIGN(const run::SourceState* const source,
                 engine.sources->Get(restored.sources[sequence.source - 1]));
    engine.core->cache->ShareSource(state.kv, source->kv);
    state.source = source->identity;
  }
  const TokenId vocab = engine.core->model->vocab_size();
  for (TokenId& id : sequence.tokens) {
    if (id >= vocab) id = restored.rows[static_cast<size_t>(id - vocab)];
  }
  sequences.AddTokens(state, sequence.tokens);
  // The file does not tell an import from a prune.
  state.origin = sequence.given_by_tokens ? run::Origin::kTokens : run::Origin::kPruned;
  if (!sequence.logits.empty()) {
    const run::LogitRows::Row row = sequences.rows().Take();
    std::copy(sequence.logits.begin(), sequence.logits.end(), sequences.rows().values(row).begin());
    sequences.SetLogits(state, row);
  }
  sequences.Remember(state);
  return {};
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
  Restored restored;
  if (status.ok()) status = TakeInputs(name, engine, loaded, &restored);
  std::vector<SequenceId> ids;
  if (status.ok()) {
    for (kv::LoadedSequence& sequence : loaded.sequences) {
      KVANT_ASSIGN(const SequenceId id, engine.sequences->New());  // there is room
      ids.push_back(id);
      KVANT_TRY(AdoptSaved(engine, restored, sequence, *engine.sequences->Find(id)));
    }
  }
  // From here on only sequences hold the sources and the rows.
  KVANT_TRY(GiveBack(engine, restored));
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
  kv::SavedSession session = contents.Session(options.source_rows);
  session.note = options.note;
  return kv::WriteSessionFile(path, SessionModelOf(*core.model), *core.cache, session);
}

Result<std::vector<SequenceId>> Runner::Load(const std::string& path, std::string* note) {
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
               kv::ReadSessionFile(path, SessionModelOf(*core.model), check, *core.cache));
  if (note != nullptr) *note = std::move(loaded.note);
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
  auto copied = kv::CopySession(*other.cache, contents.Session(SourceRows::kSaved), *core.cache);
  if (!copied.ok()) {
    return MakeError(copied.error().code, "adopt: {}", copied.error().message);
  }
  return TakeUpAll(*engine_, "adopt", *copied);
}

}  // namespace kvant
