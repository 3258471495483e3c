#include "engine/evaluate/text_scores.h"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <vector>

#include "base/counted.h"
#include "engine/evaluate/distribution.h"

namespace kvant::evaluate {
namespace {

size_t Common(std::span<const TokenId> a, std::span<const TokenId> b) {
  const auto [end, other] = std::ranges::mismatch(a, b);
  return static_cast<size_t>(end - a.begin());
}

// The row of each token but the last one predicts a token.
size_t Rows(const ScoredText& text) { return text.tokens.size() - 1; }

void Take(const ScoredText& text, size_t row, std::span<const float> logits) {
  if (row + 1 < text.first) return;
  const size_t place = row + 1 - text.first;
  const Distribution distribution = Normalize(logits);
  if (!text.log_probs.empty()) text.log_probs[place] = distribution.LogProb(text.tokens[row + 1]);
  if (!text.likeliest.empty()) text.likeliest[place] = distribution.top;
}

Status CheckText(const Runner& runner, std::span<const ScoredText> texts, size_t i) {
  const ScoredText& text = texts[i];
  if (text.first < 1 || text.first >= text.tokens.size()) {
    return MakeError(ErrorCode::kInvalid,
                     "text {}: expected the first scored token at 1 to {}, found {}", i,
                     std::ssize(text.tokens) - 1, text.first);
  }
  for (const TokenId token : text.tokens.subspan(text.first)) {  // the others may be rows
    if (token >= 0 && token < runner.model().vocab_size()) continue;
    return MakeError(ErrorCode::kInvalid, "text {}: expected tokens below {}, found {}", i,
                     runner.model().vocab_size(), token);
  }
  if (static_cast<int64_t>(Rows(text)) > runner.context()) {
    return MakeError(ErrorCode::kContextFull, "text {} has {}, but the context has room for {}", i,
                     Counted(text.tokens.size(), "token"), runner.context());
  }
  return {};
}

// Texts that follow each other in order and share a beginning on `base`.
class Scorer {
 public:
  Scorer(Runner& runner, SequenceId base) : runner_(runner), base_(base) {}

  // Scores the first texts of `rest`, and returns how many.
  Result<size_t> TakeGroup(std::span<const ScoredText* const> rest) {
    size_t shared = 0;
    const size_t count = GroupSize(rest, shared);
    if (count == 1) {
      KVANT_TRY(ScoreAlone(*rest[0]));
    } else {
      KVANT_TRY(ScoreTogether(rest.first(count), shared));
    }
    return count;
  }

  Status ScoreAlone(const ScoredText& text) {
    const size_t first = text.first - 1;  // the row that is looked at first
    const size_t held = std::min(Common(runner_.tokens(base_), text.tokens), first);
    if (static_cast<int64_t>(held) < runner_.length(base_)) {
      KVANT_TRY(runner_.Rewind(base_, static_cast<int64_t>(held)));
    }
    return runner_.AppendScoring(
        base_, text.tokens.first(Rows(text)).subspan(held), static_cast<int64_t>(first - held),
        [&](int64_t index, int64_t count) -> Status {
          runner_.RunOnTeam([&](int member, int members) {
            for (int64_t i = member; i < count; i += members) {
              Take(text, held + static_cast<size_t>(index + i), runner_.row(i));
            }
          });
          return {};
        });
  }

 private:
  // The number of texts that are worth a common step: a text joins as long as the step computes no
  // more rows than without the text and the text alone.
  size_t GroupSize(std::span<const ScoredText* const> rest, size_t& shared) const {
    const auto room = static_cast<size_t>(
        std::max<int64_t>(0, runner_.sequences_max() - runner_.stats().sequences));
    const auto few = static_cast<size_t>(runner_.prompt_cut().few_rows);
    shared = rest[0]->first - 1;
    if (Rows(*rest[0]) - shared > few) return 1;
    size_t rows = Rows(*rest[0]);  // that the group computes
    size_t longest = rows;         // of its texts
    size_t count = 1;
    while (count < std::min(rest.size(), room)) {
      const ScoredText& next = *rest[count];
      if (!next.source.empty()) break;
      const size_t common =
          std::min({shared, next.first - 1, Common(rest[0]->tokens.first(shared), next.tokens)});
      const size_t all =
          rows + count * (shared - common) - (shared - common) + (Rows(next) - common);
      longest = std::max(longest, Rows(next));
      if (longest - common > few || all > rows + Rows(next)) break;
      rows = all;
      shared = common;
      ++count;
    }
    return count;
  }

  Status GoTo(std::span<const TokenId> tokens, Logits logits) {
    const size_t held = Common(runner_.tokens(base_), tokens);
    if (static_cast<int64_t>(held) < runner_.length(base_)) {
      KVANT_TRY(runner_.Rewind(base_, static_cast<int64_t>(held)));
    }
    if (held == tokens.size()) return {};
    const StepInput input{base_, tokens.subspan(held), logits};
    return runner_.Step({&input, 1});
  }

  Status ScoreTogether(std::span<const ScoredText* const> group, size_t shared) {
    KVANT_TRY(GoTo(group[0]->tokens.first(shared), Logits::kNone));
    std::vector<SequenceId> forks;
    std::vector<StepInput> inputs;
    Status status;
    for (const ScoredText* text : group) {
      const auto fork = runner_.Fork(base_);
      if (!fork.ok()) status = fork.error();
      if (!fork.ok()) break;
      forks.push_back(*fork);
      inputs.push_back({*fork, text->tokens.first(Rows(*text)).subspan(shared), Logits::kAll});
    }
    StepOptions options;
    options.rows = [&](size_t input, int64_t token, std::span<const float> logits) -> Status {
      Take(*group[input], shared + static_cast<size_t>(token), logits);
      return {};
    };
    if (status.ok()) status = runner_.Step(inputs, options);
    for (const SequenceId fork : forks) {
      const Status freed = runner_.FreeSequence(fork);
      if (status.ok()) status = freed;
    }
    return status;
  }

  Runner& runner_;
  SequenceId base_;
};

Status ScoreInOrder(Runner& runner, SequenceId base, std::span<const ScoredText* const> order) {
  Scorer scorer(runner, base);
  while (!order.empty()) {
    if (order[0]->source.empty()) {
      KVANT_ASSIGN(const size_t count, scorer.TakeGroup(order));
      order = order.subspan(count);
      continue;
    }
    KVANT_ASSIGN(const SourceId source, runner.Encode(order[0]->source));
    Status status = runner.Reset(base);
    if (status.ok()) status = runner.SetSource(base, source);
    if (status.ok()) status = scorer.ScoreAlone(*order[0]);
    KVANT_TRY(runner.FreeSource(source));
    if (!status.ok()) return status;
    order = order.subspan(1);
  }
  return {};
}

}  // namespace

Status ScoreTexts(Runner& runner, std::span<const ScoredText> texts) {
  std::vector<const ScoredText*> order;
  for (size_t i = 0; i < texts.size(); ++i) {
    KVANT_TRY(CheckText(runner, texts, i));
    order.push_back(&texts[i]);
  }
  std::ranges::stable_sort(order, [](const ScoredText* a, const ScoredText* b) {
    return std::ranges::lexicographical_compare(a->tokens, b->tokens);
  });
  const int64_t held = runner.stats().sequences;
  if (held >= runner.sequences_max()) {
    return MakeError(
        ErrorCode::kOutOfMemory,
        "scoring takes a sequence of its own, and the runner's {} in use: free one, or "
        "make the runner with sequences = {}",
        held == 1 ? "only one is" : fmt::format("{} are all", held), held + 1);
  }
  KVANT_ASSIGN(const SequenceId base, runner.NewSequence());
  Status status = ScoreInOrder(runner, base, order);
  const Status freed = runner.FreeSequence(base);
  if (status.ok()) status = freed;
  if (!status.ok()) return status;
  for (size_t i = 0; i < texts.size(); ++i) {
    if (std::ranges::any_of(texts[i].log_probs, [](double x) { return std::isnan(x); })) {
      return MakeError(ErrorCode::kCorrupt, "text {}: the model's output is not a number", i);
    }
  }
  return {};
}

}  // namespace kvant::evaluate
