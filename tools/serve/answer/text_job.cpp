#include "tools/serve/answer/text_job.h"

#include <algorithm>
#include <iterator>
#include <utility>

#include "base/result.h"
#include "tools/serve/answer/openai_format.h"

namespace kvant::tools {
namespace {

double SecondsBetween(TextJob::Clock::time_point from, TextJob::Clock::time_point to) {
  return std::chrono::duration<double>(to - from).count();
}

// Takes over what a text has taken so far, which its timings show.
void TakeTimes(const Generation& generation, SampleAnswer& answer) {
  answer.prompt_seconds = generation.prefill_seconds;
  answer.completion_seconds = generation.decode_seconds;
  answer.drafted_tokens = generation.drafted_tokens;
  answer.accepted_tokens = generation.accepted_tokens;
}

}  // namespace

TextJob::TextJob(ServedModel& served, TextUse use, TextFields fields,
                 std::vector<JobPrompt> prompts, std::shared_ptr<const Grammar> grammar,
                 std::unique_ptr<AnswerFormat> format, Exchange exchange)
    : served_(served),
      use_(use),
      fields_(std::move(fields)),
      prompts_(std::move(prompts)),
      grammar_(std::move(grammar)),
      exchange_(std::move(exchange)),
      format_(std::move(format)) {}

// ---- Beginning ----------------------------------------------------------------------------------

void TextJob::Start() {
  const auto runs = static_cast<size_t>(std::max(fields_.samples, fields_.best_of));
  const auto family = static_cast<size_t>(served_.session().sequences);
  auto shown = std::make_shared<TextFields>(fields_);
  shown->body = {};  // which goes with the request
  shown->stop_texts.clear();
  shown->grammar.reset();
  {
    const std::lock_guard lock(mutex_);
    samples_.resize(prompts_.size() * runs);
    std::vector<std::shared_ptr<Request>> requests;
    std::shared_ptr<const TextInput> input;
    for (size_t i = 0; i < samples_.size(); ++i) {
      // Samples of one input have its prompt computed once. There are at most as many as sequences.
      if (i % runs % family == 0) {
        input = std::make_shared<TextInput>(TextInput{.prompt = prompts_[i / runs].tokens});
      }
      Sample& sample = samples_[i];
      sample.index = sample.answer.index = i;
      sample.prompt = &prompts_[i / runs];
      sample.answer.prompt_tokens = std::ssize(sample.prompt->tokens);
      sample.place = served_.slots().Take(fields_.slot, shown);
      sample.answer.slot = sample.place.slot;
      sample.request = std::make_shared<TextRequest>(SetupOf(sample, input));
      requests.push_back(sample.request);
    }
    Service service;
    service.reuses_prefix = fields_.reuses_prompt;
    const Status status = served_.scheduler().Submit(requests, service);
    if (!status.ok()) {
      answered_ = true;
      for (Sample& sample : samples_) {
        served_.slots().Leave(sample.answer.slot, {});
        sample.request.reset();
      }
      exchange_.Refuse(ApiErrorOf(status.error()));
      return;
    }
    if (fields_.stream) exchange_.BeginEvents();
  }
  exchange_.stream->OnClosed([self = shared_from_this()] {
    const std::lock_guard lock(self->mutex_);
    self->Leave();
  });
}

TextRequest::Setup TextJob::SetupOf(Sample& sample, std::shared_ptr<const TextInput> input) {
  const auto runs = static_cast<uint64_t>(std::max(fields_.samples, fields_.best_of));
  TextRequest::Setup setup;
  setup.tokenizer = served_.shared_tokenizer();
  setup.input = std::move(input);
  setup.sampling = fields_.sampling;
  if (setup.sampling.seed.has_value()) *setup.sampling.seed += sample.index % runs;
  setup.vocab_size = served_.model().vocab_size();
  GenerateOptions& options = setup.options;
  options.max_tokens = fields_.max_tokens;
  options.ignore_eos = fields_.ignore_eos;
  options.log_probs = fields_.log_probs;
  if (fields_.after_sampling) {
    options.log_probs_from = GenerateOptions::LogProbSource::kSampler;
  }
  if (fields_.best_of > fields_.samples && !options.log_probs.has_value()) options.log_probs = 0;
  options.logits.grammar = grammar_;
  if (served_.options().draft) {
    auto draft = served_.options().draft();
    if (draft.ok()) options.draft = *draft;
    options.draft_tokens = served_.options().draft_tokens;
  }
  if (use_ == TextUse::kChat) {
    options.special = served_.marks_are_control();
    options.logits.thoughts = ThoughtsBehind(sample.prompt->text, *served_.chat_template());
    sample.stops.emplace(fields_.stop_texts);
    if (tools_.has_value()) {
      ReadCalls(sample, options);
    } else {
      sample.reasoning.emplace(sample.prompt->text,
                               [this, &sample](AnswerPart part, std::string_view text) {
                                 return TakePart(sample, part, text);
                               });
    }
  } else {
    options.stop_texts = fields_.stop_texts;
    sample.limits.emplace(fields_.indent, fields_.seconds_max);
    if (fields_.echo && wants_log_probs()) options.prompt_log_probs = fields_.log_probs;
  }
  const auto self = shared_from_this();
  options.on_prefill = [self, &sample](int64_t done) {
    const std::lock_guard lock(self->mutex_);
    self->TakeProgress(sample, done);
  };
  setup.on_token = [self, &sample](TokenId id, const TokenLogProbs* log_probs) {
    const std::lock_guard lock(self->mutex_);
    self->TakeToken(sample, id, log_probs);
  };
  setup.on_text = [self, &sample](std::string_view piece) {
    const std::lock_guard lock(self->mutex_);
    return self->TakeText(sample, piece);
  };
  setup.on_end = [self, &sample](TextRequest& request) {
    const std::lock_guard lock(self->mutex_);
    self->EndSample(sample, request);
    return true;
  };
  setup.on_failure = [self, &sample](const Error& error) {
    const std::lock_guard lock(self->mutex_);
    sample.request.reset();
    self->served_.slots().Leave(sample.answer.slot, {});
    ApiError refused = ApiErrorOf(error);
    self->Finish(refused);
  };
  return setup;
}

// ---- Tokens and texts ---------------------------------------------------------------------------

void TextJob::TakeProgress(Sample& sample, int64_t tokens) {
  if (sample.request == nullptr || sample.tokens > 0 || answered_) return;
  ShowInSlot(sample, tokens);
  if (!fields_.stream || !fields_.progress) return;
  const int64_t cached = sample.request->reused_tokens();
  // The first event tells what was known.
  if (!std::exchange(sample.told_progress, true))
    SendProgress(sample, {.done = cached, .cached = cached});
  SendProgress(
      sample,
      {.done = tokens, .cached = cached, .seconds = sample.request->generation().prefill_seconds});
}

void TextJob::SendProgress(Sample& sample, const PromptProgress& progress) {
  Events events = format_->Progress(sample.answer, progress);
  if (!events.empty() && fields_.timings_in_chunks) {
    SampleAnswer so_far = sample.answer;
    so_far.prompt_tokens = progress.done;
    so_far.cached_tokens = progress.cached;
    so_far.prompt_seconds = progress.seconds;
    events.back()["timings"] = TimingsJson(so_far);
  }
  Send(events);
}

void TextJob::ShowInSlot(const Sample& sample, int64_t prompt) {
  served_.slots().Show(sample.place, {.prompt = prompt,
                                      .cached = sample.request->reused_tokens(),
                                      .generated = sample.tokens,
                                      .has_new_line = sample.has_new_line});
}

void TextJob::TakeToken(Sample& sample, TokenId id, const TokenLogProbs* log_probs) {
  const Clock::time_point now = Clock::now();
  if (sample.tokens > 0) {
    served_.metrics().AddTokenGap(SecondsBetween(sample.last_token, now));
  } else {
    sample.first_token = now;
    if (!std::exchange(first_token_, true)) {
      served_.metrics().AddFirstToken(SecondsBetween(came_, now));
    }
  }
  sample.last_token = now;
  if (sample.tokens == 0 && sample.request != nullptr) {
    sample.answer.cached_tokens = sample.request->reused_tokens();
    sample.answer.seed = sample.request->seed();
  }
  sample.answer.completion_tokens = ++sample.tokens;
  served_.metrics().CountGenerated(1);
  if (sample.request != nullptr) ShowInSlot(sample, sample.answer.prompt_tokens);
  if (fields_.stream) sample.waiting_tokens.push_back(id);
  if (log_probs == nullptr) return;
  sample.log_prob_sum += log_probs->chosen.log_prob;
  if (wants_log_probs()) sample.waiting.push_back(*log_probs);
}

bool TextJob::TakeText(Sample& sample, std::string_view piece) {
  if (gone_ || answered_) return true;  // the text has been cancelled
  if (sample.stopped) return false;
  if (use_ != TextUse::kChat) return TakeCompletion(sample, piece);
  const bool goes_on =
      tools_.has_value() ? sample.calls->Push(piece) : sample.reasoning->Push(piece);
  return goes_on && !sample.stopped;
}

bool TextJob::TakeCompletion(Sample& sample, std::string_view piece) {
  const double seconds = SecondsBetween(sample.first_token, Clock::now());
  const std::string_view taken = sample.limits->Take(piece, seconds);
  if (!taken.empty()) Emit(sample, AnswerPart::kContent, taken);
  sample.stopped = sample.limits->ended();
  return !sample.stopped;
}

// Stop texts end what a model answers, not what it thinks.
bool TextJob::TakePart(Sample& sample, AnswerPart part, std::string_view text) {
  if (sample.stopped) return false;
  if (part == AnswerPart::kReasoning) {
    if (!std::exchange(sample.thinks, true) && !sample.answer.blocks.empty()) {
      sample.thoughts_begin = sample.tokens - 1;
    }
    Emit(sample, part, text);
    return true;
  }
  EndThoughts(sample);
  const std::string shown = sample.stops->Push(text);
  if (!fields_.stop_texts.empty()) sample.raw += text;
  sample.stopped = sample.stops->stopped();
  if (!shown.empty()) Emit(sample, part, shown);
  return !sample.stopped;
}

// The token that other text comes from is the first one behind the reasoning.
void TextJob::EndThoughts(Sample& sample) {
  if (!std::exchange(sample.thinks, false)) return;
  sample.answer.reasoning_tokens += std::max<int64_t>(sample.tokens - 1 - sample.thoughts_begin, 0);
}

// The first event of a sample comes with its first token.
void TextJob::BeginSample(Sample& sample) {
  if (std::exchange(sample.begun, true)) return;
  if (!fields_.echo) return Send(format_->Begin(sample.answer, nullptr, list_use()));
  const EchoAnswer echo = EchoOf(sample);
  return Send(format_->Begin(sample.answer, &echo, list_use()));
}

EchoAnswer TextJob::EchoOf(const Sample& sample) const {
  EchoAnswer echo;
  echo.text = sample.prompt->text;
  echo.tokens = sample.prompt->tokens;
  // The first sample of a prompt has them for all.
  const auto runs = static_cast<size_t>(std::max(fields_.samples, fields_.best_of));
  const Sample& first = samples_[sample.index - sample.index % runs];
  echo.log_probs = first.request != nullptr ? first.request->generation().prompt_log_probs
                                            : first.prompt_log_probs;
  return echo;
}

void TextJob::Emit(Sample& sample, AnswerPart part, std::string_view text) {
  AddTextTo(sample.answer, part, text);
  sample.has_new_line |= text.find('\n') != std::string_view::npos;
  EmitEvents(sample, [&](const std::vector<TokenLogProbs>* log_probs) {
    return format_->Piece(sample.answer, part, text, log_probs);
  });
}

// Sends events with the log-probabilities of the tokens that they come from, or keeps these.
void TextJob::EmitEvents(Sample& sample, const EventMaker& make) {
  SampleAnswer& answer = sample.answer;
  std::vector<TokenLogProbs> log_probs = std::exchange(sample.waiting, {});
  answer.tokens = std::exchange(sample.waiting_tokens, {});
  if (!fields_.stream) {
    std::ranges::move(log_probs, std::back_inserter(answer.log_probs));
    return;
  }
  BeginSample(sample);
  Events events = make(wants_log_probs() ? &log_probs : nullptr);
  if (events.empty()) return;
  if (fields_.usage_in_chunks) events.back()["usage"] = OpenAiFormat::UsageJson(Usage());
  if (fields_.timings_in_chunks && sample.request != nullptr) {
    TakeTimes(sample.request->generation(), answer);
    events.back()["timings"] = TimingsJson(answer);
  }
  Send(events);
}

void TextJob::Send(const Events& events) {
  if (events.empty() || gone_) return;
  if (!exchange_.stream->Write(TextOfEvents(events, *format_))) Leave();
}

// The client has gone. Whether the server's thread or a write finds it first, texts end as
// cancelled ones.
void TextJob::Leave() {
  if (!std::exchange(gone_, true) && !answered_) served_.metrics().CountClosed();
  CancelAll();
}

// ---- Ends ---------------------------------------------------------------------------------------

void TextJob::EndSample(Sample& sample, TextRequest& request) {
  const std::shared_ptr<TextRequest> owner = std::move(sample.request);
  const Generation& generation = request.generation();
  sample.ended = true;
  ++ended_;
  LeaveSlot(sample, generation);
  served_.metrics().CountLength(sample.answer.prompt_tokens + sample.tokens);
  // An end token is one that was generated, too.
  const bool has_end_token = generation.finish_reason == FinishReason::kStop;
  if (has_end_token) served_.metrics().CountGenerated(1);
  served_.metrics().CountGuesses(generation);
  if (answered_ || gone_) return;
  if (generation.finish_reason == FinishReason::kCancelled && !sample.stopped) {
    ApiError error;
    error.status = 503;
    error.message = "the server is stopping";
    error.code = "server_error";
    return Finish(error);
  }
  SampleAnswer& answer = sample.answer;
  if (use_ == TextUse::kChat) {
    if (!sample.stopped && tools_.has_value()) (void)sample.calls->Finish();
    if (!sample.stopped && !tools_.has_value()) (void)sample.reasoning->Finish();
    const std::string rest = sample.stopped ? "" : sample.stops->Finish();
    if (!rest.empty()) Emit(sample, AnswerPart::kContent, rest);
    if (sample.thinks) answer.reasoning_tokens += sample.tokens - sample.thoughts_begin;
  }
  if (has_end_token) ++answer.completion_tokens;
  answer.cached_tokens = request.reused_tokens();
  answer.seed = request.seed();
  TakeTimes(generation, answer);
  sample.prompt_log_probs = generation.prompt_log_probs;
  if (fields_.stream) BeginSample(sample);
  answer.finish_reason = sample.stopped ? "stop" : FinishReasonOf(generation.finish_reason);
  answer.is_full = generation.finish_reason == FinishReason::kContext ||
                   generation.finish_reason == FinishReason::kMemory;
  if (use_ == TextUse::kChat) {
    if (sample.stopped) answer.stop_text = StopTextOf(sample);
    if (answer.finish_reason == "stop" && !sample.stopped && HasCalled(answer)) {
      answer.finish_reason = "tool_calls";
    }
  } else if (sample.limits->ended()) {
    answer.finish_reason = "length";
  } else if (generation.finish_reason == FinishReason::kStopText) {
    answer.stop_text = StopTextIn(generation);
  }
  // With the prompt's tokens the end token stands in the lists as well, so that one is there for
  // each token that was generated.
  if (fields_.echo && wants_log_probs() && generation.end_log_probs.has_value()) {
    sample.waiting.push_back(*generation.end_log_probs);
  }
  const bool cut = sample.stopped || generation.finish_reason == FinishReason::kStopText;
  if (!sample.waiting.empty() && !cut) Emit(sample, AnswerPart::kContent, "");
  if (fields_.stream) {
    answer.tokens.clear();
    Send(format_->End(answer));
  } else {
    answer.tokens = generation.ids;
  }
  if (ended_ == samples_.size()) Complete();
}

// The stop text behind the content: the longest of those that stand there.
std::string TextJob::StopTextOf(const Sample& sample) const {
  const std::string_view behind = std::string_view(sample.raw).substr(sample.answer.content.size());
  std::string found;
  for (const std::string& stop : fields_.stop_texts) {
    if (behind.starts_with(stop) && stop.size() > found.size()) found = stop;
  }
  return found;
}

// The stop text that the last token of a completion has completed: of several that end there, the
// one that ends first, and of those the one that begins first.
std::string TextJob::StopTextIn(const Generation& generation) const {
  std::string bytes;
  size_t before = 0;  // bytes in front of the last token's
  for (const TokenId id : generation.ids) {
    before = bytes.size();
    if (id < served_.tokenizer().vocab_size()) bytes += served_.tokenizer().TokenBytes(id, {});
  }
  std::string found;
  size_t end = std::string::npos;
  for (const std::string& stop : fields_.stop_texts) {
    const size_t first = before - std::min(before, stop.size() - 1);
    const size_t place = bytes.find(stop, first);
    if (place == std::string::npos || place + stop.size() > end) continue;
    if (place + stop.size() == end && stop.size() < found.size()) continue;
    end = place + stop.size();
    found = stop;
  }
  return found;
}

// The slot knows what was processed of the text: all but the last token.
void TextJob::LeaveSlot(const Sample& sample, const Generation& generation) {
  std::vector<TokenId> tokens;
  if (!generation.ids.empty()) {
    tokens = sample.prompt->tokens;
    tokens.insert(tokens.end(), generation.ids.begin(), generation.ids.end() - 1);
  } else if (generation.finish_reason != FinishReason::kCancelled) {
    tokens = sample.prompt->tokens;
  }
  served_.slots().Leave(sample.answer.slot, std::move(tokens));
}

// Ends the whole answer with an error.
void TextJob::Finish(const ApiError& error) {
  if (std::exchange(answered_, true) || gone_) return;
  if (fields_.stream) {
    Send(format_->Failure(error));
    exchange_.stream->End();
  } else {
    exchange_.Refuse(error);
  }
  CancelAll();
}

void TextJob::Complete() {
  answered_ = true;
  const TokenCounts usage = Usage();
  served_.metrics().CountTokens(usage);
  if (gone_) return;
  if (fields_.stream) {
    if (fields_.include_usage) Send(format_->UsageEvents(usage));
    if (format_->ends_with_done()) (void)exchange_.stream->Write("data: [DONE]\n\n");
    exchange_.stream->End();
    return;
  }
  std::vector<SampleAnswer> answers;
  std::vector<EchoAnswer> echo;
  for (const size_t i : Kept()) {
    answers.push_back(samples_[i].answer);
    if (fields_.echo) echo.push_back(EchoOf(samples_[i]));
  }
  exchange_.Send(JsonAnswer(format_->Whole(answers, echo, list_use(), usage)));
}

// The samples that are part of the answer: of each prompt the first ones, or with best_of those
// whose tokens are the likeliest in the mean.
std::vector<size_t> TextJob::Kept() const {
  const auto runs = static_cast<size_t>(std::max(fields_.samples, fields_.best_of));
  const auto kept = static_cast<std::ptrdiff_t>(fields_.samples);
  const auto mean = [this](size_t i) {
    const Sample& sample = samples_[i];
    return sample.log_prob_sum / static_cast<double>(std::max<int64_t>(sample.tokens, 1));
  };
  std::vector<size_t> out;
  for (size_t begin = 0; begin < samples_.size(); begin += runs) {
    std::vector<size_t> all(runs);
    for (size_t i = 0; i < runs; ++i) all[i] = begin + i;
    if (runs > static_cast<size_t>(kept)) {
      std::ranges::stable_sort(all, [&](size_t a, size_t b) { return mean(a) > mean(b); });
    }
    out.insert(out.end(), all.begin(), all.begin() + kept);
  }
  return out;
}

void TextJob::CancelAll() {
  for (const Sample& sample : samples_) {
    if (sample.request != nullptr) sample.request->Cancel();
  }
}

// A prompt counts once, however many samples it has.
TokenCounts TextJob::Usage() const {
  const auto runs = static_cast<size_t>(std::max(fields_.samples, fields_.best_of));
  TokenCounts out;
  for (const Sample& sample : samples_) {
    if (sample.index % runs == 0) {
      out.prompt += sample.answer.prompt_tokens;
      out.cached += sample.answer.cached_tokens;
    }
    out.completion += sample.answer.completion_tokens;
    out.reasoning += sample.answer.reasoning_tokens;
  }
  return out;
}

}  // namespace kvant::tools
