// VPDPBUSD in the encoding of AVX-VNNI, for the assembler in this folder. A test compiles the same
// kernels with that of AVX-512.
#define KVANT_VPDPBUSD "%{vex%} vpdpbusd "
