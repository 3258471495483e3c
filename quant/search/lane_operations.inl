// Operations on vectors that some instruction sets have an instruction for and compilers do not
// find: here in plain loops and choices. Included inside a namespace, before
// quant/search/vectors.inl.

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

// sum[lane] + a[2 lane] b[2 lane] + a[2 lane + 1] b[2 lane + 1] of words of 16 bits.
template <class Sums, class Words>
Sums AddPairs(Sums sum, Words a, Words b) {
  const auto low_a = reinterpret_cast<Sums>(a) << 16 >> 16;
  const auto low_b = reinterpret_cast<Sums>(b) << 16 >> 16;
  return sum + low_a * low_b +
         (reinterpret_cast<Sums>(a) >> 16) * (reinterpret_cast<Sums>(b) >> 16);
}

// sum[lane] + the products of four bytes each, of `a` without a sign, of `b` up to 64.
template <class Sums, class Unsigned, class Bytes>
Sums AddFours(Sums sum, Unsigned a, Bytes b) {
  const auto all_a = reinterpret_cast<Sums>(a);
  const auto all_b = reinterpret_cast<Sums>(b);
  for (int bit = 0; bit < 32; bit += 8) sum += (all_a >> bit & 255) * (all_b << (24 - bit) >> 24);
  return sum;
}

// Writes the numbers in whose lanes `values` are not above `limit`, one after the other, and
// anything behind them up to a whole vector. Returns how many.
template <class Values>
int AppendUpTo(Values limit, Values values, Values numbers, int32_t* target) {
  int count = 0;
  for (size_t lane = 0; lane < sizeof(Values) / sizeof(int32_t); ++lane) {
    target[count] = numbers[lane];
    count += static_cast<int>(values[lane] <= limit[lane]);
  }
  return count;
}

// Bytes from `source` on, as words of 16 bits.
template <class Words>
Words WidenBytes(const int8_t* source) {
  using Bytes [[gnu::vector_size(sizeof(Words) / 2)]] = int8_t;
  Bytes bytes;
  std::memcpy(&bytes, source, sizeof(bytes));
  return __builtin_convertvector(bytes, Words);
}

// The bits of `a` where those of `mask` are set, else those of `b`.
template <class Bits>
Bits SelectBits(Bits mask, Bits a, Bits b) {
  return (a & mask) | (b & ~mask);
}
