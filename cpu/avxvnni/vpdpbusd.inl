// VPDPBUSD in the encoding of AVX-VNNI, for the assembler in this folder. A test compiles the same
// kernels over a model of it.
#define KVANT_VPDPBUSD "%{vex%} vpdpbusd "
