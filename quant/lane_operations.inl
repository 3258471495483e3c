// Operations on vectors that some instruction sets have an instruction for and compilers do not
// find: here in plain loops and choices. Included inside a namespace, before quant/vectors.inl.

template <class Vector>
Vector GreaterOf(Vector a, Vector b) {
  return a > b ? a : b;
}
template <class Vector>
Vector LesserOf(Vector a, Vector b) {
  return a < b ? a : b;
}

// table[index[lane]]; every index is one of the table. The type of the result is that of a vector
// of floats as wide as `Indices`.
template <class Vector, class Indices, size_t kCount>
Vector LookUp(const float (&table)[kCount], Indices index) {
  Vector found;
  for (size_t lane = 0; lane < sizeof(Vector) / sizeof(float); ++lane) {
    found[lane] = table[index[lane]];
  }
  return found;
}

// The bits of `a` where those of `mask` are set, those of `b` elsewhere.
template <class Vector>
Vector SelectBits(Vector mask, Vector a, Vector b) {
  return (mask & a) | (~mask & b);
}
