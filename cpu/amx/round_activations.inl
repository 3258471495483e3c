// Activations in the form that the panels of this folder multiply. Included inside a namespace and
// target region.

// The instruction takes denormal numbers as zeros, and makes NaN a quiet NaN.
inline void RoundActivations(const float* values, int64_t cols, const ActivationRow& out) {
  for (int64_t col = 0; col < cols; col += 32) {
    const int64_t count = cols - col;
    const auto first = [](int64_t n) __attribute__((always_inline)) {
      return n >= 16 ? __mmask16{0xffff} : static_cast<__mmask16>((1u << (n > 0 ? n : 0)) - 1);
    };
    const __m512 low = _mm512_maskz_loadu_ps(first(count), values + col);
    const __m512 high = _mm512_maskz_loadu_ps(first(count - 16), values + col + 16);
    _mm512_storeu_si512(out.halves + col,
                        reinterpret_cast<__m512i>(_mm512_cvtne2ps_pbh(high, low)));
  }
}
