// The samplers, one line each: the name of a constant in engine/generate/samplers. The samplers of
// the default chain stand in its order. This is the only place that lists them.

KVANT_SAMPLER(kPenaltiesSampler)
KVANT_SAMPLER(kDrySampler)
KVANT_SAMPLER(kTopNSigmaSampler)
KVANT_SAMPLER(kTopKSampler)
KVANT_SAMPLER(kTypicalSampler)
KVANT_SAMPLER(kTopPSampler)
KVANT_SAMPLER(kMinPSampler)
KVANT_SAMPLER(kXtcSampler)
KVANT_SAMPLER(kTemperatureSampler)
KVANT_SAMPLER(kMirostatSampler)
KVANT_SAMPLER(kAdaptivePSampler)
KVANT_SAMPLER(kInfillSampler)
