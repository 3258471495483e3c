// Infill: for models that fill a gap in a text. A text ends here rather than with a guess, and
// pieces that begin alike count together.
//   - If the end tokens' probability is more than 1 / (3 n) of the others', only end tokens stay;
//     n is the number of candidates.
//   - Else, where one token begins another one, the likelier of the two takes the probability of
//     both and the other goes. Then tokens below 1/5 go. Then tokens go whose share of the rest is
//     below 1 / (k + 1), where k is the number of tokens that do not end the text. End tokens stay;
//     where only end tokens stay, the end of a turn is chosen.
// Tokens that stay keep their logits. Source: the sampler of llama.cpp (2024).
#include <algorithm>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "engine/generate/samplers/stage.h"

namespace kvant {
namespace {

constexpr double kInfillEndFactor = 3;
constexpr double kInfillShareMin = 0.2;

class InfillStage final : public CopiedStage<InfillStage> {
 public:
  // `tokenizer` has an end token.
  explicit InfillStage(const Tokenizer& tokenizer) {
    pieces_.reserve(static_cast<size_t>(tokenizer.vocab_size()));
    for (TokenId id = 0; id < tokenizer.vocab_size(); ++id) {
      pieces_.push_back(tokenizer.TokenBytes(id, {}));
      is_end_.push_back(tokenizer.is_end_of_generation(id));
    }
    const auto& special = tokenizer.special();
    end_ = special.eot.has_value() ? *special.eot : *special.eos;
  }

  void Apply(Candidates& candidates, Xoshiro256&) override {
    candidates.SortAll();
    candidates.ComputeWeights();
    shares_.clear();
    kept_.clear();
    double ends = 0;
    double others = 0;
    for (size_t i = 0; i < candidates.size(); ++i) {
      shares_.push_back(static_cast<double>(candidates[i].weight) /
                        static_cast<double>(candidates.weight_total()));
      (IsEnd(candidates[i].id) ? ends : others) += shares_.back();
    }
    if (kInfillEndFactor * ends * static_cast<double>(candidates.size()) > others) {
      for (size_t i = 0; i < candidates.size(); ++i) {
        if (IsEnd(candidates[i].id)) kept_.push_back(candidates[i]);
      }
      return candidates.Replace(kept_);
    }
    JoinBeginnings(candidates);
    KeepLargeShares(candidates);
    if (std::ranges::all_of(kept_, [this](const auto& one) { return IsEnd(one.id); })) {
      kept_ = {{.logit = 1, .id = end_, .weight = 0}};
    }
    candidates.Replace(kept_);
  }

 private:
  bool IsEnd(TokenId id) const { return is_end_[static_cast<size_t>(id)]; }
  const std::string& PieceOf(const TokenCandidate& candidate) const {
    return pieces_[static_cast<size_t>(candidate.id)];
  }

  // Joins each candidate with the candidates that it begins, one after the other. A candidate that
  // is gone has a share below 0.
  void JoinBeginnings(const Candidates& candidates) {
    places_.clear();
    for (size_t i = 0; i < candidates.size(); ++i) places_.push_back(i);
    std::ranges::sort(places_, [&](size_t a, size_t b) {
      return std::pair(std::string_view(PieceOf(candidates[a])), a) <
             std::pair(std::string_view(PieceOf(candidates[b])), b);
    });
    for (size_t i = 0; i < candidates.size(); ++i) {
      const std::string& piece = PieceOf(candidates[i]);
      if (piece.empty() || shares_[i] < 0) continue;
      // Candidates that begin with the piece lie behind each other; they are joined by their
      // number.
      const auto first = std::ranges::lower_bound(
          places_, piece, {}, [&](size_t place) { return PieceOf(candidates[place]); });
      begun_.clear();
      for (auto at = first; at != places_.end(); ++at) {
        if (!PieceOf(candidates[*at]).starts_with(piece)) break;
        if (*at != i) begun_.push_back(*at);
      }
      std::ranges::sort(begun_);
      for (const size_t other : begun_) {
        if (shares_[i] < 0) break;
        if (shares_[other] < 0) continue;
        const bool other_stays = shares_[other] > shares_[i];
        const double sum = shares_[i] + shares_[other];
        shares_[i] = other_stays ? -1 : sum;
        shares_[other] = other_stays ? sum : -1;
      }
    }
  }

  void KeepLargeShares(const Candidates& candidates) {
    double sum = 0;
    size_t count = 0;
    const auto stays = [&](size_t i, double least) {
      return IsEnd(candidates[i].id) ? shares_[i] >= 0 : shares_[i] >= least;
    };
    for (size_t i = 0; i < candidates.size(); ++i) {
      if (!stays(i, kInfillShareMin)) continue;
      sum += shares_[i];
      count += IsEnd(candidates[i].id) ? 0 : 1;
    }
    const double least = std::max(kInfillShareMin, sum / static_cast<double>(count + 1));
    for (size_t i = 0; i < candidates.size(); ++i) {
      if (stays(i, least)) kept_.push_back(candidates[i]);
    }
  }

  std::vector<std::string> pieces_;  // by token
  std::vector<bool> is_end_;         // by token
  TokenId end_;
  std::vector<double> shares_;  // by candidate: its probability, with those that it was joined with
  std::vector<size_t> places_;  // of candidates, in the order of their pieces
  std::vector<size_t> begun_;
  std::vector<TokenCandidate> kept_;
};

Result<std::unique_ptr<SamplerStage>> MakeInfill(const SamplerSetup& setup) {
  if (setup.tokenizer == nullptr) {
    return MakeError(ErrorCode::kInvalid,
                     "samplers: infill: expected a tokenizer to compare tokens, found none");
  }
  const auto& special = setup.tokenizer->special();
  if (!special.eot.has_value() && !special.eos.has_value()) {
    return MakeError(ErrorCode::kInvalid,
                     "samplers: infill: expected a vocabulary with an end token, found none");
  }
  return std::unique_ptr<SamplerStage>(std::make_unique<InfillStage>(*setup.tokenizer));
}

}  // namespace

const SamplerRow kInfillSampler = {
    .name = "infill",
    .aliases = "",
    .letter = 'i',
    .kind = SamplerRow::Kind::kChoice,
    .order = SamplerRow::Order::kIfNamed,
    .settings = {},
    .make = MakeInfill,
};

}  // namespace kvant
