#include "kvant/logit_chain.h"

#include <algorithm>
#include <array>

#include "base/result.h"
#include "engine/generate/logit_stages/stage_row.h"
#include "engine/generate/portable_math.h"

namespace kvant {
namespace {

bool HasToken(std::span<const float> row) {
  return std::any_of(row.begin(), row.end(), [](float value) { return value > kLogitNone; });
}

}  // namespace

std::span<const LogitStageRow* const> AllLogitStages() {
#define KVANT_LOGIT_STAGE(name) &name,
  static constexpr std::array rows = {
#include "engine/generate/logit_stages/logit_stage_list.inl"
  };
#undef KVANT_LOGIT_STAGE
  return rows;
}

LogitChain::LogitChain() : places_(AllLogitStages().size()) {}

LogitChain::LogitChain(const LogitChain& other) : places_(other.places_.size()) {
  for (size_t place = 0; place < places_.size(); ++place) {
    for (const auto& stage : other.places_[place]) places_[place].push_back(stage->Clone());
  }
}

LogitChain& LogitChain::operator=(const LogitChain& other) { return *this = LogitChain(other); }

Status LogitChain::Add(const LogitStageSources& sources) {
  for (size_t place = 0; place < places_.size(); ++place) {
    KVANT_TRY(AllLogitStages()[place]->add(sources, places_[place]));
  }
  return {};
}

void LogitChain::DropRequest() {
  for (size_t place = 0; place < places_.size(); ++place) {
    if (AllLogitStages()[place]->owner == LogitStageRow::Owner::kRequest) places_[place].clear();
  }
}

bool LogitChain::reads_tokens() const {
  for (const auto& stages : places_) {
    for (const auto& stage : stages) {
      if (stage->reads_tokens()) return true;
    }
  }
  return false;
}

bool LogitChain::keeps_state() const {
  for (const auto& stages : places_) {
    for (const auto& stage : stages) {
      if (stage->keeps_state()) return true;
    }
  }
  return false;
}

bool LogitChain::has_callers_code() const {
  for (size_t place = 0; place < places_.size(); ++place) {
    const bool callers = AllLogitStages()[place]->code == LogitStageRow::Code::kCallers;
    if (callers && !places_[place].empty()) return true;
  }
  return false;
}

void LogitChain::Accept(TokenId token, TokenFrom from) {
  for (const auto& stages : places_) {
    for (const auto& stage : stages) stage->Accept(token, from);
  }
}

void LogitChain::Guess(size_t most, Guesses which, std::vector<TokenId>& tokens) const {
  const size_t before = tokens.size();
  for (const auto& stages : places_) {
    for (const auto& stage : stages) {
      if (tokens.size() == before) stage->Guess(most, which, tokens);
    }
  }
}

bool LogitChain::IsOver() const {
  for (const auto& stages : places_) {
    for (const auto& stage : stages) {
      if (stage->IsOver()) return true;
    }
  }
  return false;
}

Result<bool> LogitChain::Apply(const LogitText& text, std::span<float> row) {
  for (size_t place = 0; place < places_.size(); ++place) {
    const bool foreign = AllLogitStages()[place]->code == LogitStageRow::Code::kCallers;
    for (const auto& stage : places_[place]) {
      const bool may_end = stage->ends_text() && HasToken(row);
      KVANT_TRY(stage->Apply(text, row));
      if (foreign) std::transform(row.begin(), row.end(), row.begin(), Sanitize);
      if (may_end && !HasToken(row)) return false;
    }
  }
  return true;
}

}  // namespace kvant
