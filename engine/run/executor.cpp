#include "engine/run/executor.h"

#include <algorithm>

#include "base/result.h"
#include "engine/graph/run_stage.h"
#include "engine/run/memory_places.h"

namespace kvant::run {

// ---- Memory -------------------------------------------------------------------------------------

Executor::Executor(Core& core) : core_(core), encoder_(core) {
  for (const auto& tensor : core_.model->file().tensors()) weight_bytes_ += tensor.size_bytes;
}

int64_t Executor::shared_rows_max() const { return std::min(core_.options.chunk, kSharedRowsMax); }

Status Executor::Prepare() {
  const SessionOptions& options = core_.options;
  const graph::Plan& plan = core_.model->plan();
  const int64_t parts_max = std::min(options.sequences, shared_rows_max());
  pass_.limits = {options.chunk,    options.context,
                  parts_max,        ThreadPool::SharesOf(options.threads),
                  options.kv_cache, core_.model->source_length()};
  layout_ = plan.Layout(options.chunk);
  KVANT_ASSIGN(arena_, AlignedBuffer::Allocate(layout_.bytes, "activations"));
  pass_.scratch_bytes = plan.ScratchBytes(pass_.limits);
  KVANT_ASSIGN(scratch_,
               AlignedBuffer::Allocate(pass_.scratch_bytes * static_cast<size_t>(options.threads),
                                       "scratch"));
  KVANT_ASSIGN(shared_, AlignedBuffer::Allocate(plan.SharedBytes(pass_.limits), "partial results"));
  if (core_.places.PlacesMemory()) PlaceMemory();
  arrivals_ = std::vector<std::atomic<int32_t>>(static_cast<size_t>(pass_.limits.shares));
  for (const graph::RopeSpec& rope : plan.ropes())
    ropes_.push_back({rope.Frequencies(options.context), rope.amplitude});
  tokens_.reserve(static_cast<size_t>(options.chunk));
  positions_.reserve(static_cast<size_t>(options.chunk));
  rows_.reserve(static_cast<size_t>(parts_max));
  tails_.reserve(static_cast<size_t>(parts_max));
  hidden_.reserve(static_cast<size_t>(parts_max));
  const bool adapts = core_.model->adapters() > 0;
  if (adapts) adapters_.reserve(static_cast<size_t>(options.chunk));
  head_.reserve(static_cast<size_t>(graph::kHeadRows));
  head_rows_.reserve(static_cast<size_t>(graph::kHeadRows));
  if (core_.cache.has_value()) view_.emplace(*core_.cache, parts_max, options.chunk);
  pass_.arena = arena_.data();
  pass_.value_offsets = layout_.value_offsets;
  pass_.values = plan.values();
  pass_.ropes = ropes_;
  pass_.row_blocks = &core_.row_blocks;
  pass_.scratch = scratch_.data();
  pass_.shared = shared_.bytes();
  pass_.arrivals = arrivals_;
  pass_.kv = view_.has_value() ? &*view_ : nullptr;
  if (core_.device != nullptr) {
    KVANT_ASSIGN(device_, graph::DeviceAttention::Create(core_.device, *core_.cache,
                                                         plan.cache_layers(), arena_.bytes()));
    pass_.device = device_.get();
  }
  return {};
}

void Executor::PlaceMemory() {
  const std::vector<int64_t> nodes = NodesOf(core_.places);
  SpreadPages(arena_.bytes(), nodes);
  SpreadPages(shared_.bytes(), nodes);
  for (size_t thread = 0; thread < core_.places.nodes.size(); ++thread) {
    SpreadPages(scratch_.bytes().subspan(thread * pass_.scratch_bytes, pass_.scratch_bytes),
                {&core_.places.nodes[thread], 1});
  }
}

// ---- Passes -------------------------------------------------------------------------------------

Status Executor::RunPass(std::span<PassPart> parts, const std::atomic<bool>* cancel,
                         const LogitSink& sink) {
  Reserve(parts);
  Fill(parts);
  if (rows_.empty()) return {};
  Status status = EncodeAgain(parts.front(), cancel);
  if (status.ok()) status = RunStage(graph::Stage::kBody, cancel);
  if (status.ok() && device_ != nullptr) status = device_->status();
  if (status.ok()) status = RunHead(parts, cancel, sink);
  if (status.ok()) {
    ++core_.counters.passes;
    core_.counters.tokens_processed += tokens_.size();
    KeepHidden(parts);
  }
  for (PassPart& part : parts) {
    if (!part.status.ok()) continue;
    if (part.tail != nullptr) {
      const int64_t begin = part.kv->length;
      status.ok() ? part.tail->Keep(begin, begin + std::ssize(part.tokens)) : part.tail->Forget();
    }
    if (!core_.cache.has_value()) {
      part.kv->length += status.ok() ? std::ssize(part.tokens) : 0;
    } else if (status.ok()) {
      core_.cache->Commit(*part.kv);
    } else {
      core_.cache->Rollback(*part.kv);
    }
  }
  return status;
}

// Takes blocks for the new tokens of each part. Makes the copies even if some part found no room,
// because tables already refer to the new blocks.
void Executor::Reserve(std::span<PassPart> parts) {
  if (!core_.cache.has_value()) return;
  for (PassPart& part : parts) {
    part.status = core_.cache->Reserve(*part.kv, std::ssize(part.tokens));
  }
  RunCopies();
}

void Executor::RunCopies() {
  if (core_.cache->copies().empty()) return;
  core_.team.RunPhases(1, [this](int64_t /*phase*/, const ThreadPool::Member& member) {
    core_.cache->RunCopies(member.index, member.count);
  });
  core_.cache->FinishCopies();
}

// Puts the tokens and positions of all rows together, for the plan and for the view of the cache.
void Executor::Fill(std::span<const PassPart> parts) {
  tokens_.clear();
  positions_.clear();
  rows_.clear();
  tails_.clear();
  hidden_.clear();
  adapters_.clear();
  const bool adapts =
      std::ranges::any_of(parts, [](const PassPart& part) { return !part.adapters.empty(); });
  for (const PassPart& part : parts) {
    if (!part.status.ok()) continue;
    const int64_t first_row = std::ssize(tokens_);
    int64_t position = part.kv->length;
    if (!core_.cache.has_value()) {  // the whole sequence again
      tokens_.insert(tokens_.end(), part.earlier.begin(), part.earlier.end());
      position = 0;
    }
    tokens_.insert(tokens_.end(), part.tokens.begin(), part.tokens.end());
    const int64_t rows = std::ssize(tokens_) - first_row;
    for (int64_t i = 0; i < rows; ++i) positions_.push_back(position + i);
    rows_.push_back({part.kv, first_row, rows});
    if (adapts) adapters_.resize(tokens_.size(), part.adapters);
    if (core_.model->predictors() > 0) {
      hidden_.push_back(part.hidden != nullptr ? part.hidden->Of(part.kv->length - 1)
                                               : std::span<const float>());
    }
    if (core_.options.state_log > 0) {
      tails_.push_back(part.tail != nullptr ? part.tail->rows() : graph::TailRows());
    }
  }
  if (view_.has_value() && !rows_.empty()) {
    view_->Set(rows_);
    core_.cache->Settle();
    if (device_ != nullptr) device_->Begin(*view_, positions_);
  }
  pass_.tokens = tokens_;
  pass_.positions = positions_;
  pass_.tails = tails_;
  pass_.hidden = hidden_;
  pass_.adapters = adapters_;
  pass_.rows.Set(graph::RowSpace::kPass, std::ssize(tokens_));
}

void Executor::KeepHidden(std::span<const PassPart> parts) {
  const graph::ValueId hidden = core_.model->plan().encoded();
  if (hidden == graph::kNoValue) return;
  size_t with_room = 0;
  for (const PassPart& part : parts) {
    if (!part.status.ok()) continue;
    const int64_t first_row = rows_[with_room++].first_row;
    if (part.hidden == nullptr) continue;
    const int64_t begin = part.kv->length;
    part.hidden->Keep(begin, begin + std::ssize(part.tokens), [&](int64_t position) {
      return pass_.FloatRow(hidden, first_row + position - begin);
    });
  }
}

Status Executor::EncodeAgain(const PassPart& part, const std::atomic<bool>* cancel) {
  if (core_.cache.has_value() || part.source == nullptr) return {};
  pass_.source = &source_rows_;
  return encoder_.Run(*part.source, source_rows_, cancel);
}

Status Executor::ScanAgain(kv::Sequence& sequence, TailLog& tail, int64_t end) {
  const int64_t begin = sequence.length;
  KVANT_TRY(core_.cache->Reserve(sequence, end - begin));
  RunCopies();
  const kv::PartRows part = {&sequence, 0, end - begin};
  view_->Set({&part, 1});
  pass_.tails = {};
  const graph::TailRange range = {tail.rows(), begin, end};
  core_.team.Run([&](const ThreadPool::Member& member) {
    for (const auto& node : core_.model->plan().nodes(graph::Stage::kBody)) {
      if (node->TailFloats() > 0) node->ScanAgain(pass_, range, member);
    }
  });
  core_.cache->Commit(sequence);
  return {};
}

Status Executor::RunStage(graph::Stage stage, const std::atomic<bool>* cancel) {
  const auto rows = static_cast<uint64_t>(pass_.rows[graph::RowSpace::kPass]);
  const bool alone = core_.threads_chosen_here && weight_bytes_ * rows < kAloneWork;
  return graph::RunStage(core_.model->plan(), stage, pass_, core_.team,
                         {.team = alone ? graph::Team::kCallerAlone : graph::Team::kAll,
                          .cancel = core_.options.cancel,
                          .cancel_too = cancel});
}

// ---- Logits -------------------------------------------------------------------------------------

// Runs the head for at most kHeadRows rows at a time; each run reads the output matrix once.
Status Executor::RunHead(std::span<const PassPart> parts, const std::atomic<bool>* cancel,
                         const LogitSink& sink) {
  size_t with_room = 0;
  for (size_t i = 0; i < parts.size(); ++i) {
    if (!parts[i].status.ok()) continue;
    const kv::PartRows& rows = rows_[with_room++];
    // A part's rows end with its new tokens; without a cache earlier ones come before them.
    const int64_t first = rows.first_row + rows.rows - std::ssize(parts[i].tokens);
    for (size_t token = parts[i].logits_from; token < parts[i].tokens.size(); ++token) {
      head_.push_back(first + static_cast<int64_t>(token));
      head_rows_.push_back({i, token, {}});
      if (std::ssize(head_) == graph::kHeadRows) KVANT_TRY(ShowHead(cancel, sink));
    }
  }
  return ShowHead(cancel, sink);
}

Status Executor::ShowHead(const std::atomic<bool>* cancel, const LogitSink& sink) {
  if (head_.empty()) return {};
  pass_.head = head_;
  pass_.rows.Set(graph::RowSpace::kHead, std::ssize(head_));
  const Status status = RunStage(graph::Stage::kHead, cancel);
  const size_t vocab = static_cast<size_t>(core_.model->vocab_size());
  for (size_t i = 0; i < head_rows_.size(); ++i) {
    head_rows_[i].logits = {pass_.FloatRow(core_.model->plan().logits(), static_cast<int64_t>(i)),
                            vocab};
  }
  const Status shown = status.ok() && sink ? sink(head_rows_) : status;
  head_.clear();
  head_rows_.clear();
  return shown;
}

}  // namespace kvant::run
