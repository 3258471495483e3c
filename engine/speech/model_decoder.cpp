// A window of sound on a model: its frames are encoded once, its prompt is computed once, and each
// try forks that sequence: for a search with beams, or for texts that are drawn.
#include <algorithm>
#include <cmath>
#include <deque>
#include <utility>

#include "base/counted.h"
#include "engine/evaluate/distribution.h"
#include "engine/speech/compression_ratio.h"
#include "engine/speech/speech_rules.h"
#include "engine/speech/window_decoder.h"
#include "engine/text/languages.h"
#include "engine/text/speech_languages.h"
#include "kvant/beam_generator.h"
#include "kvant/text_request.h"

namespace kvant::speech {
namespace {

constexpr int32_t kTextsMax = 64;  // beams, or texts that are drawn

// A text that was found for a window.
struct FoundText {
  std::vector<TokenId> tokens;
  double sum = 0;  // of log-probabilities
};

class ModelDecoder final : public WindowDecoder {
 public:
  ModelDecoder(std::shared_ptr<const Model> model, const TranscribeOptions& options)
      : model_(std::move(model)), options_(options), seed_(options.seed) {}

  Status Open(const SessionOptions& session);

  const SpeechTokens& tokens() const override { return rules_->tokens; }
  FrameShape shape() const override { return *model_->frame_shape(); }
  size_t context_max() const override { return static_cast<size_t>(text_max() - 1); }
  Result<std::vector<TokenId>> Encode(std::string_view text) const override {
    return model_->tokenizer().Encode(text, {});
  }
  std::string Decode(const std::vector<TokenId>& tokens) const override {
    return TextOf(model_->tokenizer(), tokens);
  }

  Result<std::string> DetectLanguage(std::span<const float> frames) override;
  Status SetLanguage(std::string_view language) override;
  std::string language() const override { return language_; }
  Status Begin(std::span<const float> frames, std::span<const TokenId> context) override;
  Result<WindowText> Try(float temperature) override;
  Status Reset() override;

 private:
  // Tokens that a text may have, and a prompt's context.
  int64_t text_max() const { return model_->context_length() / 2; }
  void SetPrompt(std::span<const TokenId> context);
  Status ReadPrompt(std::span<const float> frames);
  Result<SequenceId> ForkPrompt();
  Result<FoundText> Search();
  Result<FoundText> Draw(float temperature);
  Status DrawTexts(float temperature, const std::vector<SequenceId>& sequences,
                   std::vector<FoundText>& found);
  double Score(const FoundText& text) const;

  std::shared_ptr<const Model> model_;
  TranscribeOptions options_;
  std::unique_ptr<Runner> runner_;
  std::shared_ptr<const SpeechRules> rules_;
  std::string language_ = "en";
  std::optional<TokenId> language_token_;
  std::vector<TokenId> prompt_;
  size_t start_ = 0;                    // where in the prompt the transcript begins
  std::optional<SequenceId> sequence_;  // holds the prompt
  double no_speech_prob_ = std::numeric_limits<double>::quiet_NaN();
  uint64_t seed_;  // of the next draw
};

Status CheckOptions(const TranscribeOptions& options, const Model& model) {
  const auto check = [](bool fits, std::string_view name, std::string_view expected,
                        const auto& found) -> Status {
    if (fits) return {};
    return MakeError(ErrorCode::kInvalid, "{}: expected {}, found {}", name, expected, found);
  };
  KVANT_TRY(
      check(options.beams >= 1 && options.beams <= kTextsMax, "beams", "1 to 64", options.beams));
  KVANT_TRY(check(options.best_of >= 1 && options.best_of <= kTextsMax, "best-of", "1 to 64",
                  options.best_of));
  KVANT_TRY(check(!options.temperatures.empty(), "temperatures", "at least one", "none"));
  for (const float temperature : options.temperatures) {
    KVANT_TRY(check(temperature >= 0 && temperature <= 10, "temperature", "0 to 10", temperature));
  }
  if (options.length_penalty.has_value()) {
    const float penalty = *options.length_penalty;
    KVANT_TRY(check(penalty >= 0 && penalty <= 1, "length-penalty", "0 to 1", penalty));
  }
  if (options.max_initial_timestamp.has_value()) {
    const float seconds = *options.max_initial_timestamp;
    KVANT_TRY(check(seconds >= 0 && seconds <= 30, "max-initial-timestamp", "0 to 30", seconds));
  }
  for (const TokenId token : options.suppress_tokens) {
    KVANT_TRY(check(token >= 0 && token < model.vocab_size(), "suppress-tokens",
                    fmt::format("tokens below {}", model.vocab_size()), token));
  }
  return {};
}

Status ModelDecoder::Open(const SessionOptions& given) {
  KVANT_ASSIGN(SpeechTokens tokens, ReadSpeechTokens(*model_));
  KVANT_TRY(CheckOptions(options_, *model_));
  auto rules = std::make_shared<SpeechRules>();
  KVANT_ASSIGN(rules->suppressed, SuppressedTokens(model_->tokenizer(), tokens, options_));
  rules->tokens = std::move(tokens);
  rules->times = options_.timestamps;
  if (options_.max_initial_timestamp.has_value()) {
    const double seconds = double{*options_.max_initial_timestamp};
    rules->first_time_max = std::llrint(seconds * kFramesPerSecond / 2);
  }
  rules_ = std::move(rules);
  const bool knows_english_alone = rules_->tokens.languages.empty();
  if (options_.language.has_value() || knows_english_alone) {
    KVANT_TRY(SetLanguage(options_.language.value_or("en")));
  }
  SessionOptions session = given;
  session.context = model_->context_length();
  // The prompt, a fork of it, and the texts.
  session.sequences = 2 + std::max(options_.beams, options_.best_of);
  if (options_.cancel != nullptr) session.cancel = options_.cancel;
  KVANT_ASSIGN(runner_, Runner::Create(model_, session));
  return {};
}

Status ModelDecoder::Reset() {
  if (sequence_.has_value()) KVANT_TRY(runner_->FreeSequence(*sequence_));
  sequence_.reset();
  seed_ = options_.seed;
  return {};
}

Result<std::string> ModelDecoder::DetectLanguage(std::span<const float> frames) {
  KVANT_ASSIGN(const Languages languages, ReadLanguages(*model_));
  KVANT_ASSIGN(const TokenId token, LikeliestLanguage(*runner_, languages, frames, tokens().start));
  return std::string(LanguageName(model_->tokenizer().piece(token)));
}

Status ModelDecoder::SetLanguage(std::string_view language) {
  const std::string_view code = SpeechLanguageCode(language);
  language_token_.reset();
  language_ = code;
  if (tokens().languages.empty()) {
    if (code == "en" && options_.task == SpeechTask::kTranscribe) return {};
    return MakeError(ErrorCode::kInvalid, "{}: the model knows English alone, and cannot {}",
                     model_->file().path(),
                     code == "en" ? "translate" : fmt::format("read '{}'", code));
  }
  KVANT_ASSIGN(const Languages languages, ReadLanguages(*model_));
  KVANT_ASSIGN(language_token_, FindLanguage(*model_, languages, code));
  language_ = LanguageName(model_->tokenizer().piece(*language_token_));
  return {};
}

void ModelDecoder::SetPrompt(std::span<const TokenId> context) {
  prompt_.clear();
  if (!context.empty()) {
    prompt_.push_back(tokens().previous);
    const size_t kept = std::min(context.size(), context_max());
    prompt_.insert(prompt_.end(), context.end() - static_cast<ptrdiff_t>(kept), context.end());
  }
  start_ = prompt_.size();
  prompt_.push_back(tokens().start);
  if (language_token_.has_value()) {
    const bool translates = options_.task == SpeechTask::kTranslate;
    prompt_.push_back(*language_token_);
    prompt_.push_back(translates ? tokens().translate : tokens().transcribe);
  }
  if (!options_.timestamps) prompt_.push_back(tokens().no_times);
}

// The logits behind the start of the transcript tell whether anybody speaks.
Status ModelDecoder::ReadPrompt(std::span<const float> frames) {
  KVANT_ASSIGN(sequence_, runner_->NewSequenceOfFrames(frames));
  const auto take_row = [this](int64_t index, int64_t /*count*/) -> Status {
    const bool is_start = index == static_cast<int64_t>(start_);
    if (!is_start || !tokens().no_speech.has_value()) return {};
    const evaluate::Distribution distribution = evaluate::Normalize(runner_->row(0));
    no_speech_prob_ = std::exp(distribution.LogProb(*tokens().no_speech));
    return {};
  };
  return runner_->AppendScoring(*sequence_, prompt_, static_cast<int64_t>(start_), take_row);
}

Status ModelDecoder::Begin(std::span<const float> frames, std::span<const TokenId> context) {
  if (sequence_.has_value()) KVANT_TRY(runner_->FreeSequence(*sequence_));
  sequence_.reset();
  SetPrompt(context);
  return ReadPrompt(frames);
}

// A sequence with all of the prompt but its last token, which a request processes.
Result<SequenceId> ModelDecoder::ForkPrompt() {
  KVANT_ASSIGN(const SequenceId fork, runner_->Fork(*sequence_));
  const Status rewound = runner_->Rewind(fork, std::ssize(prompt_) - 1);
  if (rewound.ok()) return fork;
  KVANT_TRY(runner_->FreeSequence(fork));
  return rewound.error();
}

Result<FoundText> ModelDecoder::Search() {
  BeamGenerateOptions search;
  search.search.beams = options_.beams;
  search.search.patience = options_.patience;
  search.search.length_penalty = options_.length_penalty;
  search.search.scoring = BeamScoring::kWhisper;
  search.search.end_tokens = {tokens().end};
  search.search.max_new_tokens = text_max();
  search.logits.stages.push_back(SpeechRulesStage(rules_));
  search.cancel = options_.cancel;
  KVANT_ASSIGN(search.beginning, ForkPrompt());
  const auto found = GenerateBeams(*runner_, {&prompt_, 1}, search);
  KVANT_TRY(runner_->FreeSequence(*search.beginning));
  if (!found.ok()) return found.error();
  if (found->empty() || found->front().cancelled) {
    return MakeError(ErrorCode::kCancelled, "cancelled");
  }
  const BeamHypothesis& best = found->front().hypotheses.front();
  FoundText text{best.ids, double{best.sum}};
  if (best.ended) text.tokens.pop_back();
  return text;
}

// Draws texts side by side and takes the best of them.
Result<FoundText> ModelDecoder::Draw(float temperature) {
  std::vector<SequenceId> sequences;
  std::vector<FoundText> found;
  Status status;
  for (int32_t i = 0; status.ok() && i < options_.best_of; ++i) {
    const auto fork = ForkPrompt();
    if (fork.ok()) sequences.push_back(*fork);
    if (!fork.ok()) status = fork.error();
  }
  if (status.ok()) status = DrawTexts(temperature, sequences, found);
  for (const SequenceId sequence : sequences) KVANT_TRY(runner_->FreeSequence(sequence));
  if (!status.ok()) return status.error();
  return *std::max_element(found.begin(), found.end(),
                           [this](const auto& a, const auto& b) { return Score(a) < Score(b); });
}

Status ModelDecoder::DrawTexts(float temperature, const std::vector<SequenceId>& sequences,
                               std::vector<FoundText>& found) {
  const auto tokenizer = SharedTokenizer(model_);
  const auto input = std::make_shared<const TextInput>(TextInput{prompt_});
  std::deque<TextRequest> requests;
  std::vector<std::shared_ptr<double>> sums;
  Scheduler scheduler(*runner_, {.prompt_slice = INT64_MAX, .cancel = options_.cancel});
  for (const SequenceId sequence : sequences) {
    TextRequest::Setup setup{.tokenizer = tokenizer, .input = input};
    setup.held = std::ssize(prompt_) - 1;
    setup.options.max_tokens = text_max();
    setup.options.cancel = options_.cancel;
    sums.push_back(std::make_shared<double>(0));
    setup.options.logits.stages = {SpeechRulesStage(rules_), LogProbSumStage(sums.back())};
    setup.sampling.samplers = std::vector<std::string>{"temperature"};
    setup.sampling.temperature = temperature;
    setup.sampling.seed = seed_++;
    setup.vocab_size = model_->vocab_size();
    scheduler.Submit(requests.emplace_back(std::move(setup)),
                     {.sequence = sequence, .done = std::ssize(prompt_) - 1});
  }
  KVANT_TRY(scheduler.Drain());
  for (size_t i = 0; i < requests.size(); ++i) {
    if (requests[i].generation().finish_reason == FinishReason::kCancelled) {
      return MakeError(ErrorCode::kCancelled, "cancelled");
    }
    found.push_back({requests[i].generation().ids, *sums[i]});
  }
  return {};
}

// By openai-whisper's MaximumLikelihoodRanker.
double ModelDecoder::Score(const FoundText& text) const {
  const auto length = static_cast<double>(text.tokens.size());
  if (!options_.length_penalty.has_value()) {
    return length == 0 ? -std::numeric_limits<double>::infinity() : text.sum / length;
  }
  return text.sum / std::pow((5 + length) / 6, double{*options_.length_penalty});
}

Result<WindowText> ModelDecoder::Try(float temperature) {
  KVANT_ASSIGN(FoundText found, temperature > 0 ? Draw(temperature) : Search());
  WindowText out;
  out.avg_log_prob = found.sum / static_cast<double>(found.tokens.size() + 1);
  std::vector<TokenId> text;
  std::ranges::copy_if(found.tokens, std::back_inserter(text),
                       [this](TokenId token) { return !tokens().is_time(token); });
  out.compression_ratio = CompressionRatio(Stripped(Decode(text)));
  out.tokens = std::move(found.tokens);
  out.temperature = temperature;
  out.no_speech_prob = no_speech_prob_;
  return out;
}

}  // namespace

Result<std::unique_ptr<WindowDecoder>> MakeModelDecoder(std::shared_ptr<const Model> model,
                                                        const TranscribeOptions& options,
                                                        SessionOptions session) {
  auto decoder = std::make_unique<ModelDecoder>(std::move(model), options);
  KVANT_TRY(decoder->Open(session));
  return std::unique_ptr<WindowDecoder>(std::move(decoder));
}

}  // namespace kvant::speech
