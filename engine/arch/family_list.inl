// The model families that kvant knows, one line each: the name of a constant in
// engine/arch/families. This is the only place that lists them.

KVANT_FAMILY(kLlama)
KVANT_FAMILY(kPhi3)
KVANT_FAMILY(kGemma3)
KVANT_FAMILY(kQwen2)
KVANT_FAMILY(kQwen3)
KVANT_FAMILY(kGemma2)
