// The classes that become files of the family bert (families/bert.cpp): BERT, RoBERTa,
// XLM-RoBERTa, CamemBERT and DistilBERT, with and without a head of scores.
#pragma once

#include <span>

#include "engine/arch/hf/hf_family.h"

namespace kvant::arch {

std::span<const HfFamily> HfBertFamilies();

}  // namespace kvant::arch
