// The peak loops over any vectors, for cpu/<isa>/peaks.cpp.
//
// Included inside a namespace of the instruction set, between begin.inl and end.inl. An operation
// is a struct with
//   using Vector;
//   static Vector Zero();                       // an accumulator
//   static Vector One();                        // an operand of ones
//   static void Step(Vector& sum, Vector& one);  // sum += products of ones
//   static int64_t Sum(Vector sum);              // of all lanes

// Twice the rate of two a cycle times a latency of 5 or 6. Variables of their own, since compilers
// keep an array of vectors in memory.
inline constexpr int kAccumulators = 12;

// Hides the value from the optimiser.
template <class Vector>
inline void Hide(Vector& v) {
  asm volatile("" : "+" KVANT_VECTOR_REGISTER(v));
}

template <class Operation>
int64_t Accumulate(int64_t rounds) {
  using Vector = typename Operation::Vector;
  Vector one = Operation::One();
  Vector s0 = Operation::Zero(), s1 = s0, s2 = s0, s3 = s0, s4 = s0, s5 = s0;
  Vector s6 = s0, s7 = s0, s8 = s0, s9 = s0, s10 = s0, s11 = s0;
  Hide(one);
  Hide(s0), Hide(s1), Hide(s2), Hide(s3), Hide(s4), Hide(s5);
  Hide(s6), Hide(s7), Hide(s8), Hide(s9), Hide(s10), Hide(s11);
  for (int64_t round = 0; round < rounds; ++round) {
    Operation::Step(s0, one), Operation::Step(s1, one), Operation::Step(s2, one);
    Operation::Step(s3, one), Operation::Step(s4, one), Operation::Step(s5, one);
    Operation::Step(s6, one), Operation::Step(s7, one), Operation::Step(s8, one);
    Operation::Step(s9, one), Operation::Step(s10, one), Operation::Step(s11, one);
  }
  return Operation::Sum(s0) + Operation::Sum(s1) + Operation::Sum(s2) + Operation::Sum(s3) +
         Operation::Sum(s4) + Operation::Sum(s5) + Operation::Sum(s6) + Operation::Sum(s7) +
         Operation::Sum(s8) + Operation::Sum(s9) + Operation::Sum(s10) + Operation::Sum(s11);
}

// Feeds all bytes to words.Take, which reads kReadPieceBytes, from four ascending streams: the
// processor's prefetchers then run ahead in several pages at once.
template <class Words>
void TakeStreams(const std::byte* data, size_t bytes, Words& words) {
  const size_t stream = bytes / (4 * kReadPieceBytes) * kReadPieceBytes;
  for (size_t at = 0; at < stream; at += kReadPieceBytes) {
    words.Take(data + at);
    words.Take(data + stream + at);
    words.Take(data + 2 * stream + at);
    words.Take(data + 3 * stream + at);
  }
  for (size_t at = 4 * stream; at < bytes; at += kReadPieceBytes) words.Take(data + at);
}
