// The calls of kvant/kvant_generate.h on batches: requests of C on the scheduler.
//
// A text that has ended is handed out after the round, so that its callbacks may free the batch.
#include <algorithm>
#include <list>

#include "base/counted.h"
#include "engine/capi/handles.h"
#include "engine/run/memory_plan.h"
#include "kvant/draft.h"
#include "kvant/scheduler.h"
#include "kvant/text_request.h"

namespace kvant::capi {

// A caller's request, copied.
struct Order {
  kvant_request callbacks;
  std::shared_ptr<const TextInput> input;
  SamplingOptions sampling;
  GenerateOptions options;
  Service service;
};

// One text of a request.
struct Entry {
  std::shared_ptr<const Order> order;
  int64_t request = 0;
  int32_t sample = 0;
  bool ended = false;  // by a callback
  std::shared_ptr<TextRequest> text = {};
};

namespace {

kvant_request RequestDefaults() {
  kvant_request out = {};
  out.struct_size = sizeof(out);
  out.samples = 1;
  out.max_tokens = -1;
  out.sequence = -1;
  out.shift_keep = -1;
  out.log_probs = -1;
  return out;
}

// kInvalid names the field that makes no sense for this runner.
Status CheckRequest(const Runner& runner, const kvant_request& in) {
  const auto tokens = static_cast<int64_t>(in.prompt_count);
  if (tokens == 0) return MakeError(ErrorCode::kInvalid, "prompt: expected tokens, found none");
  if (tokens > runner.context()) {
    return MakeError(ErrorCode::kContextFull, "the prompt has {}, but the context has room for {}",
                     Counted(tokens, "token"), runner.context());
  }
  const int64_t samples_max = in.sequence >= 0 ? 1 : runner.sequences_max();
  if (in.samples < 1 || in.samples > samples_max) {
    return MakeError(ErrorCode::kInvalid, "samples: expected 1 to {}, found {}", samples_max,
                     in.samples);
  }
  if (in.log_probs < -1 || in.log_probs > runner.model().vocab_size()) {
    return MakeError(ErrorCode::kInvalid, "log_probs: expected -1 to {}, found {}",
                     runner.model().vocab_size(), in.log_probs);
  }
  if (!(in.seconds_max >= 0)) {
    return MakeError(ErrorCode::kInvalid, "seconds_max: expected 0 or more, found {}",
                     in.seconds_max);
  }
  if (in.max_tokens < -1) {
    return MakeError(ErrorCode::kInvalid, "max_tokens: expected -1 or more, found {}",
                     in.max_tokens);
  }
  if (in.sequence >= 0 && !runner.Has(in.sequence)) {
    return MakeError(ErrorCode::kInvalid, "there is no sequence {}", in.sequence);
  }
  const int64_t held = in.sequence >= 0 ? runner.length(in.sequence) : 0;
  if (in.held != held || in.held >= tokens) {
    return MakeError(
        ErrorCode::kInvalid,
        "held: expected {}, the tokens of the sequence, and less than the prompt's {}, "
        "found {}",
        held, tokens, in.held);
  }
  for (const kvant_token token : std::span(in.prompt, in.prompt_count)) {
    if (token >= 0 && token < runner.model().vocab_size()) continue;
    return MakeError(ErrorCode::kInvalid, "prompt: expected tokens below {}, found {}",
                     runner.model().vocab_size(), token);
  }
  return {};
}

Result<std::shared_ptr<const Order>> ReadRequest(const Runner& runner, const kvant_request* given) {
  KVANT_TRY(Need(given, "request"));
  KVANT_ASSIGN(const kvant_request in, ReadStruct(given, RequestDefaults(), "request"));
  KVANT_ASSIGN(const auto prompt, Array(in.prompt, in.prompt_count, "prompt"));
  KVANT_TRY(CheckRequest(runner, in));
  auto out = std::make_shared<Order>();
  out->callbacks = in;
  out->input = std::make_shared<TextInput>(TextInput{{prompt.begin(), prompt.end()}});
  KVANT_ASSIGN(out->sampling, ReadSampling(in.sampling));
  KVANT_ASSIGN(out->options.stop_texts, ReadTexts(in.stop_texts, in.stop_text_count, "stop_texts"));
  out->options.max_tokens = in.max_tokens;
  out->options.ignore_eos = in.ignore_end != 0;
  out->options.special = in.show_special != 0;
  out->options.echo = in.echo != 0;
  if (in.shift_keep >= 0) {
    KVANT_TRY(CheckShift(runner.model(), runner.options()));
    out->options.shift_keep = in.shift_keep;
  }
  out->options.draft_tokens = std::max<int64_t>(0, in.draft_tokens);
  if (in.log_probs >= 0) out->options.log_probs = in.log_probs;
  out->options.logits.grammar = GrammarOf(in.grammar);
  out->service.seconds_max = in.seconds_max;
  out->service.priority = in.priority;
  if (in.sequence >= 0) out->service.sequence = in.sequence;
  out->service.done = in.held;
  return std::shared_ptr<const Order>(std::move(out));
}

// The log-probabilities of a text as the arrays of kvant_text.
class FlatLogProbs {
 public:
  explicit FlatLogProbs(std::span<const TokenLogProbs> tokens) {
    for (const TokenLogProbs& token : tokens) {
      chosen_.push_back(static_cast<float>(token.chosen.log_prob));
      count_ = token.top.size();
      for (const TokenLogProb& top : token.top) {
        tokens_.push_back(top.id);
        values_.push_back(static_cast<float>(top.log_prob));
      }
    }
  }

  void PutInto(kvant_text& text) const {
    text.log_probs = chosen_.data();
    text.top_tokens = tokens_.data();
    text.top_log_probs = values_.data();
    text.top_count = count_;
  }

 private:
  std::vector<float> chosen_;    // [tokens]
  std::vector<TokenId> tokens_;  // [tokens][count]
  std::vector<float> values_;    // [tokens][count]
  size_t count_ = 0;
};

// C has KVANT_FINISH_ERROR between the reasons, which are in the same order otherwise.
int32_t FinishReasonInC(FinishReason reason) {
  const auto number = static_cast<int32_t>(reason);
  return number < KVANT_FINISH_ERROR ? number : number + 1;
}
static_assert(static_cast<int32_t>(FinishReason::kCancelled) == KVANT_FINISH_CANCELLED);
static_assert(static_cast<int32_t>(FinishReason::kNoToken) + 1 == KVANT_FINISH_NO_TOKEN);

kvant_batch_counters CountersInC(const SchedulerCounters& counters) {
  kvant_batch_counters out = {};
  out.struct_size = sizeof(out);
  out.waiting = counters.waiting;
  out.preempted = counters.preempted;
  out.running = counters.running;
  out.submitted = counters.submitted;
  out.ended = counters.ended;
  out.failed = counters.failed;
  out.cancelled = counters.cancelled;
  out.preemptions = counters.preemptions;
  out.rounds = counters.rounds;
  out.tokens_prefilled = counters.tokens_prefilled;
  out.tokens_reused = counters.tokens_reused;
  out.tokens_generated = counters.tokens_generated;
  out.prefill_seconds = counters.prefill_seconds;
  out.decode_seconds = counters.decode_seconds;
  out.blocks_used = counters.blocks.used;
  out.blocks_shared = counters.blocks.shared;
  out.blocks_free = counters.blocks.free;
  return out;
}

}  // namespace

class BatchState {
 public:
  BatchState(std::shared_ptr<RunnerState> runner, std::shared_ptr<const Tokenizer> tokenizer,
             const SchedulerOptions& options)
      : runner_(std::move(runner)),
        tokenizer_(std::move(tokenizer)),
        scheduler_(*runner_->runner, options) {}

  const std::shared_ptr<RunnerState>& runner() const { return runner_; }
  size_t texts() const { return entries_.size(); }

  Status Add(const kvant_request* given, int64_t* number) {
    KVANT_ASSIGN(const auto order, ReadRequest(*runner_->runner, given));
    // The sampler is made now so that options that cannot work are found here, not in some round.
    KVANT_TRY(MakeSampler(*order, 0));
    const auto& grammar = order->options.logits.grammar;
    if (grammar != nullptr) KVANT_TRY(grammar->NewStage(runner_->runner->model().vocab_size()));
    const int64_t request = next_++;
    for (int32_t sample = 0; sample < order->callbacks.samples; ++sample) {
      Entry& entry =
          entries_.emplace_back(Entry{.order = order, .request = request, .sample = sample});
      Prepare(entry);
      scheduler_.Submit(*entry.text, order->service);
    }
    *number = request;
    return {};
  }

  Status Cancel(int64_t request) {
    bool found = false;
    for (Entry& entry : entries_) {
      if (entry.request != request) continue;
      found = true;
      KVANT_TRY(scheduler_.Cancel(*entry.text));
    }
    if (!found) return MakeError(ErrorCode::kInvalid, "there is no request {}", request);
    return HandOut();
  }

  Status Poll() {
    const Status status = scheduler_.Poll();
    const Status handed = HandOut();
    return status.ok() ? handed : status;
  }

  Status Run() {
    return scheduler_.Drain(
        {.ends_on_failure = false, .cancels = false, .after_round = [this] { return HandOut(); }});
  }

  SchedulerCounters counters() const { return scheduler_.counters(); }

 private:
  Status MakeSampler(const Order& order, int32_t sample) const {
    const auto made = Sampler::Create(SamplingOf(order, sample),
                                      runner_->runner->model().vocab_size(), tokenizer_.get());
    return made.ok() ? Status() : made.error();
  }

  static SamplingOptions SamplingOf(const Order& order, int32_t sample) {
    SamplingOptions sampling = order.sampling;
    if (sampling.seed.has_value()) *sampling.seed += static_cast<uint64_t>(sample);
    return sampling;
  }

  void Prepare(Entry& entry) {
    const kvant_request& calls = entry.order->callbacks;
    GenerateOptions options = entry.order->options;
    if (options.draft_tokens > 0 && runner_->runner->model().predictors() > 0) {
      options.draft = std::make_shared<MeasuredDraft>(std::make_shared<PredictedDraft>());
    } else if (options.draft_tokens > 0) {
      options.draft = std::make_shared<NgramDraft>();
    }
    const int64_t request = entry.request;
    const int32_t sample = entry.sample;
    bool& ended = entry.ended;
    if (calls.on_prompt != nullptr) {
      options.on_prefill = [&calls, &entry, request, sample](int64_t done) {
        if (calls.on_prompt(calls.user, request, sample, done) == 0) return;
        entry.ended = true;
        entry.text->Cancel();
      };
    }
    if (calls.on_logits != nullptr) {
      options.logits.on_logits = [&calls, &ended, request, sample](
                                     std::span<const TokenId> text,
                                     std::span<float> logits) -> Status {
        if (calls.on_logits(calls.user, request, sample, text.data(), text.size(), logits.data(),
                            logits.size()) == 0) {
          return {};
        }
        ended = true;
        return MakeError(ErrorCode::kInvalid, "ended by a callback");  // kCancelled ends the round
      };
    }
    TextRequest::Setup setup = {.tokenizer = tokenizer_,
                                .input = entry.order->input,
                                .options = std::move(options),
                                .held = entry.order->service.done,
                                .sampling = SamplingOf(*entry.order, sample),
                                .vocab_size = runner_->runner->model().vocab_size()};
    if (calls.on_text != nullptr) {
      setup.on_text = [&calls, request, sample](std::string_view piece) {
        return calls.on_text(calls.user, request, sample, piece.data(), piece.size()) == 0;
      };
    }
    entry.text = std::make_shared<TextRequest>(std::move(setup));
  }

  // Takes the texts that have ended off the batch and calls on_end for each.
  Status HandOut() {
    bool ended = false;
    for (auto it = entries_.begin(); it != entries_.end();) {
      if (it->text->state() != Request::State::kEnded) {
        ++it;
        continue;
      }
      const Entry entry = std::move(*it);
      it = entries_.erase(it);
      ended = Tell(entry) != 0 || ended;
    }
    return ended ? Status(EndedByCallback()) : Status();
  }

  static int32_t Tell(const Entry& entry) {
    const kvant_request& calls = entry.order->callbacks;
    if (calls.on_end == nullptr) return 0;
    const Generation& made = entry.text->generation();
    const Status& status = entry.text->status();
    const bool failed =
        !entry.ended && !status.ok() && status.error().code != ErrorCode::kCancelled;
    kvant_text out = {};
    out.struct_size = sizeof(out);
    out.request = entry.request;
    out.sample = entry.sample;
    out.finish_reason = FinishReasonInC(made.finish_reason);
    if (entry.ended) out.finish_reason = KVANT_FINISH_CANCELLED;
    if (failed) out.finish_reason = KVANT_FINISH_ERROR;
    out.status = failed ? StatusOf(status.error().code) : KVANT_OK;
    out.error = failed ? status.error().message.c_str() : "";
    out.seed = entry.text->seed();
    out.tokens = made.ids.data();
    out.count = made.ids.size();
    out.text = made.text.c_str();
    out.size = made.text.size();
    out.prompt_tokens = made.prefill_tokens;
    out.decode_tokens = made.decode_tokens;
    out.drafted_tokens = made.drafted_tokens;
    out.accepted_tokens = made.accepted_tokens;
    out.prompt_seconds = made.prefill_seconds;
    out.decode_seconds = made.decode_seconds;
    const FlatLogProbs log_probs(made.log_probs);
    if (entry.order->callbacks.log_probs >= 0) log_probs.PutInto(out);
    return calls.on_end(calls.user, &out);
  }

  std::shared_ptr<RunnerState> runner_;
  std::shared_ptr<const Tokenizer> tokenizer_;
  std::list<Entry> entries_;  // in the order in which they came; the scheduler refers to them
  int64_t next_ = 0;
  Scheduler scheduler_;
};

}  // namespace kvant::capi

struct kvant_batch {
  std::shared_ptr<kvant::capi::BatchState> state;
};

using namespace kvant;
using namespace kvant::capi;

namespace kvant::capi {
namespace {

constexpr kvant_batch_options kBatchDefaults = {.struct_size = sizeof(kvant_batch_options),
                                                .prompt_slice = 0,
                                                .requests_max = 0,
                                                .stall_seconds = 0,
                                                .ageing_seconds = 0};

// Runs `body`, a function of BatchState& that returns Status, as a call on the batch's runner.
template <class Body>
kvant_status CallBatch(const kvant_batch* batch, Body&& body) noexcept {
  return Call(batch, [&]() -> Status {
    KVANT_TRY(Need(batch, "batch"));
    const std::shared_ptr<BatchState> state = batch->state;
    return OnRunner(state->runner(), [&](Runner&) { return body(*state); });
  });
}

}  // namespace
}  // namespace kvant::capi

kvant_status kvant_request_default(kvant_request* request, size_t size) {
  return FillDefault(request, size, RequestDefaults());
}

kvant_status kvant_batch_options_default(kvant_batch_options* options, size_t size) {
  return FillDefault(options, size, kBatchDefaults);
}

kvant_status kvant_batch_new(kvant_runner* runner, const kvant_tokenizer* tokenizer,
                             const kvant_batch_options* options, kvant_batch** batch) {
  return Call(runner, [&]() -> Status {
    KVANT_TRY(Need(runner, "runner"));
    KVANT_TRY(Need(tokenizer, "tokenizer"));
    KVANT_TRY(Need(batch, "batch"));
    *batch = nullptr;
    KVANT_ASSIGN(const auto given, ReadStruct(options, kBatchDefaults, "batch options"));
    if (!(given.stall_seconds >= 0) || !(given.ageing_seconds >= 0)) {
      return MakeError(ErrorCode::kInvalid,
                       "stall_seconds and ageing_seconds: expected 0 or more, found {} and {}",
                       given.stall_seconds, given.ageing_seconds);
    }
    if (given.prompt_slice < 0 || given.requests_max < 0) {
      return MakeError(ErrorCode::kInvalid,
                       "prompt_slice and requests_max: expected 0 or more, found {} and {}",
                       given.prompt_slice, given.requests_max);
    }
    SchedulerOptions wanted;
    wanted.prompt_slice = given.prompt_slice;
    wanted.stall = given.stall_seconds;
    wanted.ageing = given.ageing_seconds;
    if (given.requests_max > 0) wanted.requests_max = static_cast<size_t>(given.requests_max);
    wanted.cancel = &runner->state->cancel;
    return Give(batch, std::make_unique<kvant_batch>(kvant_batch{std::make_shared<BatchState>(
                           runner->state, tokenizer->tokenizer, wanted)}));
  });
}

void kvant_batch_free(kvant_batch* batch) { Free(batch); }

kvant_status kvant_batch_add(kvant_batch* batch, const kvant_request* request, int64_t* number) {
  return CallBatch(batch, [&](BatchState& state) -> Status {
    int64_t given = 0;
    KVANT_TRY(state.Add(request, &given));
    if (number != nullptr) *number = given;
    return {};
  });
}

kvant_status kvant_batch_cancel(kvant_batch* batch, int64_t request) {
  return CallBatch(batch, [&](BatchState& state) { return state.Cancel(request); });
}

kvant_status kvant_batch_poll(kvant_batch* batch, size_t* texts) {
  return CallBatch(batch, [&](BatchState& state) {
    const Status status = state.texts() == 0 ? Status() : state.Poll();
    if (texts != nullptr) *texts = state.texts();
    return status;
  });
}

kvant_status kvant_batch_get_counters(const kvant_batch* batch, kvant_batch_counters* counters) {
  return Call(batch, [&]() -> Status {
    KVANT_TRY(Need(batch, "batch"));
    return WriteStruct(counters, CountersInC(batch->state->counters()), "counters");
  });
}

kvant_status kvant_batch_run(kvant_batch* batch) {
  return CallBatch(batch, [&](BatchState& state) -> Status { return state.Run(); });
}
