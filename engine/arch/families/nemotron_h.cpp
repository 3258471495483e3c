// Nemotron-H: each layer is Mamba 2, attention without rotation, or a feed-forward of squared
// ReLUs.
#include "base/result.h"
#include "engine/arch/family.h"
#include "engine/arch/hf/hf_nemotron_h.h"
#include "engine/arch/single_mixers.h"

namespace kvant::arch::nemotron_h {
namespace {

constexpr std::string_view kName = "nemotron_h";

Result<ModelSpec> Read(const Metadata& metadata) {
  return ReadSingleMixers(metadata, MayHaveExperts::kNo);
}

constexpr auto kTensors = Join(kHfNemotronEnds, kHfNemotronLayers);

// A folder may name numbers of experts, which then no layer has.
constexpr HfFamily kHf[] = {[] {
  HfFamily family = NemotronFamily(kName, kTensors);
  family.experts.may_be_none = true;
  return family;
}()};

}  // namespace

extern const Family kFamily;
const Family kFamily = {.name = kName, .models = "Nemotron-H", .read = Read, .hf = kHf};

}  // namespace kvant::arch::nemotron_h
