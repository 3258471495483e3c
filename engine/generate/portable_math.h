// exp and log whose bits are the same on every machine.
//
// The C library's versions differ in the last bit between systems and between processors, and one
// bit can decide which token is drawn. These use only operations that IEEE 754 defines exactly
// (addition, multiplication, division, scaling by powers of two, rounding to integers), in a fixed
// order, in double. Both are within 2 units in the last place of the exact value.
#pragma once

namespace kvant {

// e^x; 0 below -708 (where doubles become subnormal), infinity above 709; NaN for NaN.
double PortableExp(double x);

// The natural logarithm of a positive, finite, normal x; -infinity for 0. Other arguments give NaN.
double PortableLog(double x);

}  // namespace kvant
