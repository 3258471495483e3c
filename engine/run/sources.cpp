#include "engine/run/sources.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "base/counted.h"
#include "base/result.h"

namespace kvant::run {
namespace {

Status CheckEncoder(const Model& model) {
  if (model.has_encoder()) return {};
  return MakeError(ErrorCode::kInvalid, "source: the model has no encoder");
}

}  // namespace

Status Sources::CheckTokens(std::span<const TokenId> tokens) const {
  const Model& model = *core_.model;
  KVANT_TRY(CheckEncoder(model));
  if (const auto shape = model.frame_shape()) {
    return MakeError(ErrorCode::kInvalid,
                     "source: the encoder reads {} frames of {} numbers, found tokens",
                     shape->frames, shape->bins);
  }
  if (tokens.empty()) return MakeError(ErrorCode::kInvalid, "source: no tokens to encode");
  if (std::ssize(tokens) > model.source_length()) {
    return MakeError(ErrorCode::kContextFull, "source: the encoder reads up to {} tokens, found {}",
                     model.source_length(), tokens.size());
  }
  const int32_t vocab = model.source_vocab_size();
  for (size_t i = 0; i < tokens.size(); ++i) {
    if (tokens[i] >= 0 && tokens[i] < vocab) continue;
    return MakeError(ErrorCode::kInvalid, "source: token {}: expected an id from 0 to {}, found {}",
                     i, vocab - 1, tokens[i]);
  }
  return {};
}

Status Sources::CheckFrames(std::span<const float> frames) const {
  const Model& model = *core_.model;
  KVANT_TRY(CheckEncoder(model));
  const auto shape = model.frame_shape();
  if (!shape.has_value()) {
    return MakeError(ErrorCode::kInvalid, "source: the encoder reads tokens, found frames");
  }
  if (std::ssize(frames) != shape->bins * shape->frames) {
    return MakeError(ErrorCode::kInvalid,
                     "source: expected {} numbers of each of {} frames, {} together, found {}",
                     shape->bins, shape->frames, shape->bins * shape->frames, frames.size());
  }
  const auto wrong = std::ranges::find_if(frames, [](float one) { return !std::isfinite(one); });
  if (wrong == frames.end()) return {};
  const int64_t place = wrong - frames.begin();
  return MakeError(ErrorCode::kInvalid,
                   "source: number {} of frame {}: expected a number, found {}",
                   place / shape->frames, place % shape->frames, *wrong);
}

SourceState* Sources::FindKnown(uint64_t hash, const SourceInput& input, SourceId* id) const {
  for (size_t i = 0; i < sources_.size(); ++i) {
    SourceState* const source = sources_[i].get();
    if (source == nullptr || source->identity->hash != hash) continue;
    if (source->identity->input != input) continue;
    *id = static_cast<SourceId>(i);
    return source;
  }
  return nullptr;
}

Result<SourceId> Sources::Encode(std::span<const TokenId> tokens, const SourceOptions& options) {
  KVANT_TRY(CheckTokens(tokens));
  return EncodeInput({.tokens = {tokens.begin(), tokens.end()}, .frames = {}}, options);
}

Result<SourceId> Sources::EncodeFrames(std::span<const float> frames,
                                       const SourceOptions& options) {
  KVANT_TRY(CheckFrames(frames));
  return EncodeInput({.tokens = {}, .frames = {frames.begin(), frames.end()}}, options);
}

Status Sources::CheckInput(const SourceInput& input) const {
  return input.frames.empty() ? CheckTokens(input.tokens) : CheckFrames(input.frames);
}

// Makes room for one more source. There may be as many sources as sequences, each of which may
// have its own.
Status Sources::MakeRoom() {
  while (count() >= core_.options.sequences && GiveUp()) {
  }
  if (count() < core_.options.sequences) return {};
  return MakeError(ErrorCode::kOutOfMemory, "no source is free: there is room for {}",
                   Counted(core_.options.sequences, "source"));
}

SourceId Sources::Add(SourceInput input, uint64_t hash, kv::Source rows) {
  auto source = std::make_unique<SourceState>();
  source->kv = std::move(rows);
  source->identity =
      std::make_shared<const SourceIdentity>(SourceIdentity{std::move(input), hash, ++numbers_});
  source->holders = 1;
  source->used = ++tick_;
  const auto place = std::find(sources_.begin(), sources_.end(), nullptr);
  const auto id = static_cast<SourceId>(place - sources_.begin());
  if (place == sources_.end()) sources_.emplace_back();
  sources_[static_cast<size_t>(id)] = std::move(source);
  return id;
}

Result<kv::Source> Sources::FillBlocks(const SourceInput& input, const SourceOptions& options) {
  if (!core_.cache.has_value()) {
    graph::UncachedSource rows;
    if (options.rows) KVANT_TRY(encoder_.Run(input, rows, options.cancel, options.rows));
    return kv::Source();
  }
  KVANT_ASSIGN(kv::Source blocks, core_.cache->NewSource(input.Positions(*core_.model)));
  const Status status = encoder_.Run(input, blocks, options.cancel, options.rows);
  core_.cache->EndEncoding(blocks);
  if (status.ok()) return blocks;
  core_.cache->FreeSource(blocks);
  return status.error();
}

Result<SourceId> Sources::EncodeInput(SourceInput input, const SourceOptions& options) {
  const uint64_t hash = input.Hash();
  SourceId id = 0;
  SourceState* const known = FindKnown(hash, input, &id);
  if (known != nullptr && !options.rows) {
    ++known->holders;
    known->used = ++tick_;
    return id;
  }
  KVANT_TRY(MakeRoom());
  KVANT_ASSIGN(kv::Source blocks, FillBlocks(input, options));
  return Add(std::move(input), hash, std::move(blocks));
}

Result<SourceId> Sources::Restore(SourceInput input, std::optional<kv::Source> rows) {
  const uint64_t hash = input.Hash();
  SourceId id = 0;
  SourceState* const known = FindKnown(hash, input, &id);
  if (rows.has_value() && known == nullptr) {
    const Status room = MakeRoom();
    if (room.ok()) return Add(std::move(input), hash, std::move(*rows));
    core_.cache->FreeSource(*rows);
    return room.error();
  }
  if (rows.has_value()) core_.cache->FreeSource(*rows);
  KVANT_TRY(CheckInput(input));
  return EncodeInput(std::move(input), {});
}

Result<SourceState*> Sources::Get(SourceId id) {
  SourceState* const source =
      id < 0 || id >= std::ssize(sources_) ? nullptr : sources_[static_cast<size_t>(id)].get();
  if (source == nullptr || source->holders == 0) {
    return MakeError(ErrorCode::kInvalid, "source {} does not exist", id);
  }
  source->used = ++tick_;
  return source;
}

Status Sources::Free(SourceId id) {
  KVANT_ASSIGN(SourceState* const source, Get(id));
  --source->holders;
  return {};
}

void Sources::Drop(SourceId id) {
  std::unique_ptr<SourceState>& source = sources_[static_cast<size_t>(id)];
  if (core_.cache.has_value()) core_.cache->FreeSource(source->kv);
  source = nullptr;
}

bool Sources::GiveUp() {
  SourceId oldest = -1;
  for (SourceId id = 0; id < std::ssize(sources_); ++id) {
    const SourceState* const source = sources_[static_cast<size_t>(id)].get();
    if (source == nullptr || source->holders > 0) continue;
    if (oldest < 0 || source->used < sources_[static_cast<size_t>(oldest)]->used) oldest = id;
  }
  if (oldest < 0) return false;
  Drop(oldest);
  return true;
}

int Sources::references(kv::GroupId group, kv::BlockId block) const {
  int count = 0;
  for (const std::unique_ptr<SourceState>& source : sources_) {
    if (source == nullptr) continue;
    const std::vector<kv::TableEntry>& entries = source->kv.tables[group].entries;
    count += static_cast<int>(std::ranges::count(entries, block, &kv::TableEntry::id));
  }
  return count;
}

int64_t Sources::count() const {
  return std::ssize(sources_) - std::count(sources_.begin(), sources_.end(), nullptr);
}

}  // namespace kvant::run
