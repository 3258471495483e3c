// One sampler of the chain: a row with its name and its settings, and the stage that it makes of
// them. A new sampler is one file with a row, a line in sampler_list.inl and its settings in
// SamplingOptions and kvant_sampling_options. Options of the command line, their checks, copies to
// and from C and the keys of a model's file follow from the row.
//
// Numbers that a setting has no other bounds for are bounded by kSamplerRealMax and kSamplerIntMax.
// Thread-safety: rows are constant; a stage belongs to one sampler.
#pragma once

#include <cstdint>
#include <limits>
#include <memory>
#include <span>
#include <string_view>
#include <variant>

#include "base/result.h"
#include "engine/generate/samplers/candidates.h"
#include "kvant/kvant_generate.h"
#include "kvant/random.h"
#include "kvant/sampler.h"
#include "kvant/tokenizer.h"

namespace kvant {

inline constexpr double kSamplerRealMax = std::numeric_limits<float>::max();
inline constexpr double kSamplerRealMin = std::numeric_limits<float>::min();  // above 0
inline constexpr double kSamplerIntMax = std::numeric_limits<int32_t>::max();

template <class Number>
struct SamplerNumber {
  Number SamplingOptions::*ours;
  Number kvant_sampling_options::*in_c;
};

// The number that has this name in both structs.
template <class Number>
constexpr SamplerNumber<Number> NumberInBoth(Number SamplingOptions::*ours,
                                             Number kvant_sampling_options::*in_c) {
  return {ours, in_c};
}
#define KVANT_SAMPLER_NUMBER(name) \
  NumberInBoth(&SamplingOptions::name, &kvant_sampling_options::name)

// One number of SamplingOptions that a sampler obeys.
struct SamplerSetting {
  std::string_view name;   // in messages: "top-p"
  std::string_view flags;  // of the command line: "--typical,--typical-p"
  std::string_view key;    // behind general.sampling. in a model's file; "" if there is none
  std::variant<SamplerNumber<float>, SamplerNumber<int32_t>> value;
  double min;
  double max;
  std::string_view range;  // in messages: "0 to 1"
  std::string_view help;

  bool is_whole() const { return std::holds_alternative<SamplerNumber<int32_t>>(value); }
  void Set(SamplingOptions& options, double number) const;
  void CopyToC(const SamplingOptions& from, kvant_sampling_options& to) const;
  void CopyFromC(const kvant_sampling_options& from, SamplingOptions& to) const;
};

class SamplerStage {
 public:
  virtual ~SamplerStage() = default;

  // A token of the prompt or of the text has passed; it is within the vocabulary.
  virtual void Accept(TokenId token, TokenFrom from) { (void)token, (void)from; }

  // A stage with the same state, for a copy of the sampler.
  virtual std::unique_ptr<SamplerStage> Clone() const = 0;

  // Changes the candidates. A list has at least one candidate before Apply.
  virtual void Apply(Candidates& candidates, Xoshiro256& random) = 0;

  // Whether Apply leaves the likeliest candidate alone, whatever else is there.
  virtual bool keeps_likeliest_only() const { return false; }
};

// How a sampler that comes last chooses: the index of a candidate on the list.
class DrawingStage : public SamplerStage {
 public:
  void Apply(Candidates&, Xoshiro256&) final {}
  virtual size_t Draw(Candidates& candidates, Xoshiro256& random) = 0;
};

// Clone by the copy constructor of the class that derives from it.
template <class Stage, class Base = SamplerStage>
class CopiedStage : public Base {
 public:
  using Base::Base;
  std::unique_ptr<SamplerStage> Clone() const final {
    return std::make_unique<Stage>(static_cast<const Stage&>(*this));
  }
};

struct SamplerSetup {
  const SamplingOptions& options;
  size_t vocab = 0;
  const Tokenizer* tokenizer = nullptr;  // null: none is there
};

struct SamplerRow {
  enum class Kind : uint8_t {
    kLogits,  // changes a row of logits as well as a list
    kFilter,  // removes tokens from a list, and never the likeliest one
    kChoice,  // removes tokens from a list, the likeliest ones possibly
    kTemperature,
    kDraw,  // draws at the end, wherever in the chain it is named; makes a DrawingStage
  };
  enum class Order : uint8_t {  // when it is part of a chain
    kDefault,
    kIfNamed,
    kAlone,  // in place of all but the temperature, where options ask for it
  };

  std::string_view name;     // as llama.cpp's --samplers has it
  std::string_view aliases;  // other spellings, separated by spaces
  char letter;               // in --sampler-seq; 0 if it cannot be named
  Kind kind;
  Order order;
  std::span<const SamplerSetting> settings;

  // Null if the options turn it off.
  Result<std::unique_ptr<SamplerStage>> (*make)(const SamplerSetup& setup);

  // kLogits that removes tokens as a kFilter does, and never the likeliest one.
  bool filters_logits = false;
  // Whether options ask for it, where it is not part of the default chain. Options may not ask for
  // a kIfNamed that is not named. Null: they cannot ask.
  bool (*asked)(const SamplingOptions& options) = nullptr;

  bool takes_list() const { return kind == Kind::kFilter || kind == Kind::kChoice; }
  bool is_filter() const { return kind == Kind::kFilter || filters_logits; }
};

#define KVANT_SAMPLER(name) extern const SamplerRow name;
#include "engine/generate/samplers/sampler_list.inl"
#undef KVANT_SAMPLER

// All samplers; the default chain's stand in its order.
std::span<const SamplerRow* const> AllSamplers();

// The one with this name; null if there is none.
const SamplerRow* FindSampler(std::string_view name);

}  // namespace kvant
