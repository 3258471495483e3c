#include "engine/run/stepper.h"

#include <algorithm>

#include "base/counted.h"
#include "base/result.h"
#include "engine/run/report.h"

namespace kvant::run {

Stepper::Stepper(Core& core, Sequences& sequences, Executor& executor)
    : core_(core), sequences_(sequences), executor_(executor) {
  const size_t sequences_max = static_cast<size_t>(core.options.sequences);
  const size_t parts_max = static_cast<size_t>(executor.parts_max());
  works_.reserve(sequences_max);
  growths_.reserve(sequences_max);
  parts_.reserve(parts_max);
  work_of_part_.reserve(parts_max);
  kept_.reserve(parts_max);
}

// ---- Checks before a step -----------------------------------------------------------------------

Status CheckTokens(const Core& core, int64_t length, std::span<const TokenId> tokens) {
  if (tokens.empty()) return MakeError(ErrorCode::kInvalid, "no tokens to process");
  const int32_t vocab = core.model->vocab_size();
  for (size_t i = 0; i < tokens.size(); ++i) {
    if (tokens[i] >= 0 && tokens[i] < vocab) continue;
    if (core.row_blocks.Find(tokens[i]) != nullptr) continue;
    return MakeError(ErrorCode::kInvalid, "token {}: expected an id from 0 to {}{}, found {}", i,
                     vocab - 1, core.row_blocks.empty() ? "" : " or the id of a row", tokens[i]);
  }
  if (length + std::ssize(tokens) > core.options.context) {
    return MakeError(ErrorCode::kContextFull, "{} and {} before do not fit the context of {}",
                     Counted(tokens.size(), "token"), length, core.options.context);
  }
  return {};
}

// Returns the first error among the inputs, and writes each input's own error to `statuses`.
Status Stepper::Validate(std::span<const StepInput> inputs, std::span<Status> statuses) const {
  Status first;
  for (size_t i = 0; i < inputs.size(); ++i) {
    const auto state = sequences_.Get(inputs[i].sequence);
    Status status = state.ok() ? CheckTokens(core_, (*state)->kv.length, inputs[i].tokens)
                               : Status(state.error());
    if (status.ok() && core_.model->has_encoder() && (*state)->source == nullptr) {
      status = MakeError(ErrorCode::kInvalid,
                         "sequence {}: a model with an encoder needs a source first",
                         inputs[i].sequence);
    }
    for (size_t j = 0; j < i && status.ok(); ++j) {
      if (inputs[i].sequence != inputs[j].sequence) continue;
      status =
          MakeError(ErrorCode::kInvalid, "sequence {} appears twice in a step", inputs[i].sequence);
    }
    if (first.ok()) first = status;
    if (!statuses.empty()) statuses[i] = std::move(status);
  }
  return first;
}

// Refuses a step whose tokens do not all fit, and undoes the reuse of prefixes that it began with.
Status Stepper::CheckRoom(std::span<const Work> works) {
  if (!core_.cache.has_value()) return {};
  growths_.clear();
  for (const Work& work : works) growths_.push_back({&work.state->kv, std::ssize(work.left)});
  const Status status = core_.cache->CheckRoom(growths_, core_.options.chunk);
  if (status.ok()) return {};
  for (const Work& work : works) {
    if (work.done > 0) sequences_.ForgetReuse(*work.state);
  }
  return status;
}

// ---- Steps --------------------------------------------------------------------------------------

namespace {

// Holds the row blocks of a step's inputs: the step may make the prefix index give up tokens, and
// the index may be the last that holds their rows.
class InputRows {
 public:
  InputRows(kv::RowBlocks& blocks, std::span<const StepInput> inputs)
      : blocks_(blocks), inputs_(inputs) {
    for (const StepInput& input : inputs_) blocks_.Hold(input.tokens);
  }
  ~InputRows() {
    for (const StepInput& input : inputs_) blocks_.LetGo(input.tokens);
  }
  InputRows(const InputRows&) = delete;
  InputRows& operator=(const InputRows&) = delete;

 private:
  kv::RowBlocks& blocks_;
  std::span<const StepInput> inputs_;
};

}  // namespace

Status Stepper::Step(std::span<const StepInput> inputs, const StepOptions& options) {
  KVANT_TRY(Validate(inputs, options.statuses));
  const InputRows held(core_.row_blocks, inputs);
  works_.clear();
  for (size_t i = 0; i < inputs.size(); ++i) {
    SequenceState* const state = sequences_.Find(inputs[i].sequence);
    const std::span<const TokenId> tokens = inputs[i].tokens;
    const size_t from = inputs[i].logits == Logits::kNone   ? tokens.size()
                        : inputs[i].logits == Logits::kLast ? tokens.size() - 1
                                                            : 0;
    size_t reused = 0;
    if (inputs[i].logits != Logits::kAll && inputs[i].reuses_prefix) {
      reused = static_cast<size_t>(sequences_.ReusePrefix(*state, tokens));
    }
    works_.push_back({state, tokens.subspan(reused), reused, from, i});
  }
  KVANT_TRY(CheckRoom(works_));
  struct Context {
    std::span<const StepInput> inputs;
    const StepOptions& options;
  } const context{inputs, options};
  const Shown shown = [&context](const Work& work, std::span<const LogitRow> rows) -> Status {
    if (!context.options.rows || context.inputs[work.input].logits != Logits::kAll) return {};
    for (const LogitRow& row : rows) {
      const int64_t token = static_cast<int64_t>(work.done + row.token);
      KVANT_TRY(context.options.rows(work.input, token, row.logits));
    }
    return {};
  };
  KVANT_TRY(RunPasses(works_, options.cancel, shown));
  LogUpdate(core_, sequences_, inputs);
  return {};
}

Status Stepper::Score(SequenceId sequence, std::span<const TokenId> tokens, int64_t first,
                      const Rows& rows) {
  const StepInput input{sequence, tokens};
  KVANT_TRY(Validate({&input, 1}, {}));
  const InputRows held(core_.row_blocks, {&input, 1});
  const size_t from = static_cast<size_t>(std::clamp<int64_t>(first, 0, std::ssize(tokens)));
  works_.assign(1, {sequences_.Find(sequence), tokens, 0, from, 0});
  KVANT_TRY(CheckRoom(works_));
  const Shown shown = [&rows](const Work& work, std::span<const LogitRow> shown_rows) -> Status {
    return rows ? rows(static_cast<int64_t>(work.done + shown_rows.front().token), shown_rows)
                : Status();
  };
  KVANT_TRY(RunPasses(works_, nullptr, shown));
  LogUpdate(core_, sequences_, {&input, 1});
  return {};
}

Status Stepper::RunPasses(std::span<Work> works, const std::atomic<bool>* cancel,
                          const Shown& shown) {
  for (ChoosePass(works); !parts_.empty(); ChoosePass(works)) {
    KVANT_TRY(RunPass(works, cancel, shown));
    KVANT_TRY(sequences_.CheckIfAsked());
  }
  return {};
}

// How many of the next tokens a pass may have, so that it ends where a state should be kept: at
// multiples of kCheckpointTokens, and, where later prompts may begin alike or a log is to reach
// back to a state, at the last block border before the end of a prompt.
int64_t Stepper::ToCheckpoint(const Work& work) const {
  const int64_t left = std::ssize(work.left);
  if (!KeepsStates() || left == 1) return left;
  const int64_t length = work.state->kv.length;
  const int64_t regular = kCheckpointTokens - length % kCheckpointTokens;
  const int64_t border = (length + left - 1) / kv::kBlockTokens * kv::kBlockTokens - length;
  const bool cut = core_.options.prefix_cache || core_.options.state_log > 0;
  return cut && border > 0 ? std::min(regular, border) : regular;
}

bool Stepper::KeepsStates() const {
  return core_.cache.has_value() && core_.options.state_checkpoints > 0 &&
         core_.cache->holds_states();
}

// The log of a sequence on a model with states, made when it is first needed.
TailLog* Stepper::TailOf(SequenceState& state) const {
  const int64_t floats = core_.model->plan().tail_floats();
  const int64_t slots = core_.options.state_log;
  if (floats == 0 || slots == 0 || !core_.cache.has_value()) return nullptr;
  if (state.tail == nullptr) state.tail = std::make_unique<TailLog>(floats, slots);
  return state.tail.get();
}

// The rows of a sequence where layers predict further tokens, made when they are first needed.
HiddenRows* Stepper::HiddenOf(SequenceState& state) const {
  if (core_.model->predictors() == 0) return nullptr;
  if (state.hidden == nullptr) {
    state.hidden = std::make_unique<HiddenRows>(core_.model->hidden_dim(), kSharedRowsMax);
  }
  return state.hidden.get();
}

// Fills parts_ with the next tokens of each input, in the order of the inputs, as far as they fit
// one pass.
void Stepper::ChoosePass(std::span<const Work> works) {
  const int64_t shared_max = executor_.shared_rows_max();
  parts_.clear();
  work_of_part_.clear();
  int64_t rows = 0;
  for (size_t i = 0; i < works.size(); ++i) {
    const Work& work = works[i];
    if (work.left.empty()) continue;
    const int64_t wanted =
        std::min(std::min(core_.options.chunk, std::ssize(work.left)), ToCheckpoint(work));
    const bool alone = wanted > shared_max || !core_.cache.has_value();
    if (alone ? rows > 0 : rows + wanted > shared_max) continue;
    const size_t count = static_cast<size_t>(wanted);
    const size_t from = std::min(std::max(work.logits_from, work.done) - work.done, count);
    parts_.push_back({&work.state->kv, work.state->tokens, work.left.first(count), from,
                      TailOf(*work.state), work.state->source_input(),
                      work.state->adapters_in_use(), HiddenOf(*work.state)});
    work_of_part_.push_back(i);
    rows += wanted;
    if (alone || std::ssize(parts_) == executor_.parts_max()) return;
  }
}

// Runs a pass. The sequences get its tokens and logits only when all of it is computed.
Status Stepper::RunPass(std::span<Work> works, const std::atomic<bool>* cancel,
                        const Shown& shown) {
  LogitRows& pool = sequences_.rows();
  kept_.assign(parts_.size(), LogitRows::kNone);
  const auto take = [&](std::span<const LogitRow> rows) -> Status {
    for (size_t begin = 0; begin < rows.size();) {
      const size_t part = rows[begin].part;
      size_t end = begin + 1;
      while (end < rows.size() && rows[end].part == part) ++end;
      const Work& work = works[work_of_part_[part]];
      KVANT_TRY(shown(work, rows.subspan(begin, end - begin)));
      if (rows[end - 1].token + 1 == work.left.size()) {
        kept_[part] = pool.Take();
        const std::span<const float> last = rows[end - 1].logits;
        std::copy(last.begin(), last.end(), pool.values(kept_[part]).begin());
      }
      begin = end;
    }
    return {};
  };
  // Tokens whose logits are all wanted may be a draft, of which some will be taken back.
  for (size_t i = 0; i < parts_.size() && KeepsStates(); ++i) {
    if (parts_[i].logits_from + 1 < parts_[i].tokens.size()) core_.cache->Checkpoint(*parts_[i].kv);
  }
  const Status status = executor_.RunPass(parts_, cancel, std::ref(take));
  Status refused;
  for (size_t i = 0; i < parts_.size(); ++i) {
    const PassPart& part = parts_[i];
    Work& work = works[work_of_part_[i]];
    if (!status.ok() || !part.status.ok()) {
      pool.Release(kept_[i]);
      if (refused.ok()) refused = part.status;
      continue;
    }
    // The tokens behind a prompt may be taken back.
    const bool ends_prompt =
        work.done + work.left.size() > 1 && part.tokens.size() == work.left.size();
    if (KeepsStates() && (ends_prompt || part.kv->length % kv::kBlockTokens == 0)) {
      core_.cache->Checkpoint(*part.kv);
    }
    // States of every block of a long answer would take much and serve little.
    const bool regular = work.left.size() > 1 || part.kv->length % kCheckpointTokens == 0;
    sequences_.Extend(*work.state, part.tokens,
                      regular ? kv::States::kAdded : kv::States::kLeftOut);
    sequences_.SetLogits(*work.state, kept_[i]);
    work.left = work.left.subspan(part.tokens.size());
    work.done += part.tokens.size();
  }
  // The next step of the same sequences finds its rows, and allocates nothing.
  pool.Reserve(kept_.size() -
               static_cast<size_t>(std::count(kept_.begin(), kept_.end(), LogitRows::kNone)));
  return status.ok() ? refused : status;
}

}  // namespace kvant::run
