// Activations: one formula each over a vector, for all instruction sets, and their list. A new one
// is a formula and a line of the list here, and its name in cpu/kernels/activation.h, where its
// meaning stands.
//
// Included inside an instruction set's namespace and target region, after math.inl; by cpu/scalar
// with vectors of one float. Formulas give NaN for NaN.

// The factor of f(gate) is `up` as it is.
struct TimesUp {
  static F32 Factor(F32 up) { return up; }
};

struct Silu : TimesUp {
  static F32 Of(F32 x) { return Div(x, Add(Broadcast(1.0f), Exp(Sub(Zero(), x)))); }
};

struct GeluTanh : TimesUp {
  // The factors in the exponent: 2 sqrt(2 / pi), and 0.044715 times it.
  static constexpr float kLinear = 1.5957691216057308f;
  static constexpr float kCubic = 0.0713548162726009f;

  static F32 Of(F32 x) {
    const F32 cubic = MulAdd(Mul(x, x), Broadcast(kCubic), Broadcast(kLinear));
    return Div(x, Add(Broadcast(1.0f), Exp(Sub(Zero(), Mul(x, cubic)))));
  }
};

// x Phi(x) = max(x, 0) - |x| Phi(-|x|), and with z = |x| / sqrt(2), t = 1 / (1 + 0.3275911 z)
// 2 Phi(-|x|) = erfc(z) = t (a1 + a2 t + ... + a5 t^4) e^-z^2, within 1.5e-7: Abramowitz and
// Stegun, Handbook of Mathematical Functions, 7.1.26.
struct GeluErf : TimesUp {
  static F32 Of(F32 x) {
    // From 15 on erfc(z) is 0 in floats; infinity times 0 would be NaN.
    const F32 size = Min(Broadcast(15.0f), Max(Sub(Zero(), x), x));
    const F32 z = Mul(size, Broadcast(0.70710678118654752f));
    const F32 t = Div(Broadcast(1.0f), MulAdd(z, Broadcast(0.3275911f), Broadcast(1.0f)));
    F32 sum = Broadcast(1.061405429f);
    sum = MulAdd(sum, t, Broadcast(-1.453152027f));
    sum = MulAdd(sum, t, Broadcast(1.421413741f));
    sum = MulAdd(sum, t, Broadcast(-0.284496736f));
    sum = MulAdd(sum, t, Broadcast(0.254829592f));
    const F32 erfc = Mul(Mul(sum, t), Exp(Sub(Zero(), Mul(z, z))));
    return NegMulAdd(Mul(size, Broadcast(0.5f)), erfc, Max(Zero(), x));
  }
};

struct Relu : TimesUp {
  static F32 Of(F32 x) { return Max(Zero(), x); }
};

struct ReluSquared : TimesUp {
  static F32 Of(F32 x) { return Mul(Relu::Of(x), Relu::Of(x)); }
};

struct SwigluClamped {
  static constexpr float kLimit = 7.0f;
  static constexpr float kSteepness = 1.702f;

  static F32 Of(F32 x) {
    const F32 gate = Min(Broadcast(kLimit), x);
    const F32 exponent = Sub(Zero(), Mul(gate, Broadcast(kSteepness)));
    return Div(gate, Add(Broadcast(1.0f), Exp(exponent)));
  }
  static F32 Factor(F32 up) {
    const F32 within = Max(Broadcast(-kLimit), Min(Broadcast(kLimit), up));
    return Add(Broadcast(1.0f), within);
  }
};

struct TanhOf : TimesUp {
  static F32 Of(F32 x) { return Tanh(x); }
};

struct Sigmoid : TimesUp {
  static F32 Of(F32 x) {
    const F32 one = Broadcast(1.0f);
    return Div(one, Add(one, Exp(Sub(Zero(), x))));
  }
};

struct Decay : TimesUp {
  static F32 Of(F32 x) { return Exp(Sub(Zero(), Exp(x))); }
};

struct BoundedDecay : TimesUp {
  static constexpr float kLargest = 0.60653066f;  // exp(-1/2)

  static F32 Of(F32 x) { return Exp(Mul(Broadcast(-kLargest), Sigmoid::Of(x))); }
};

// log(1 + e^x) = max(x, 0) + log(1 + t) with t = e^-|x| up to 1, and log(1 + t) = 2 artanh(s) =
// 2 s (1 + s^2 / 3 + s^4 / 5 + ...), s = t / (2 + t) up to 1 / 3: eight terms leave 2^-32 of it.
struct Softplus : TimesUp {
  static F32 Of(F32 x) {
    const F32 size = Max(Sub(Zero(), x), x);
    const F32 t = Exp(Sub(Zero(), size));
    const F32 s = Div(t, Add(Broadcast(2.0f), t));
    const F32 square = Mul(s, s);
    F32 sum = Broadcast(1.0f / 15);
    for (const float number : {13.0f, 11.0f, 9.0f, 7.0f, 5.0f, 3.0f, 1.0f}) {
      sum = MulAdd(sum, square, Broadcast(1.0f / number));
    }
    return MulAdd(Add(s, s), sum, Max(Zero(), x));
  }
};

struct SoftplusOfTwo : TimesUp {
  static constexpr float kLogOfTwo = 0.693147180559945f;

  static F32 Of(F32 x) {
    return Mul(Broadcast(1 / kLogOfTwo), Softplus::Of(Mul(Broadcast(kLogOfTwo), x)));
  }
};

template <class Formula>
void Activate(const float* x, int64_t cols, float* out) {
  int64_t i = 0;
  for (; i + kLanes <= cols; i += kLanes) Store(out + i, Formula::Of(Load(x + i)));
  const int64_t rest = cols - i;
  if (rest > 0) StorePartial(out + i, Formula::Of(LoadPartial(x + i, rest)), rest);
}

template <class Formula>
void ActivateAndMultiply(const float* gate, const float* up, int64_t cols, float* out) {
  int64_t i = 0;
  for (; i + kLanes <= cols; i += kLanes) {
    Store(out + i, Mul(Formula::Of(Load(gate + i)), Formula::Factor(Load(up + i))));
  }
  const int64_t rest = cols - i;
  if (rest == 0) return;
  const F32 activated = Formula::Of(LoadPartial(gate + i, rest));
  StorePartial(out + i, Mul(activated, Formula::Factor(LoadPartial(up + i, rest))), rest);
}

template <class Formula>
constexpr ActivationKernel KernelsOf(Activation activation, const char* name) {
  return {activation, name, Activate<Formula>, ActivateAndMultiply<Formula>};
}

// By Activation.
constexpr ActivationKernel kActivations[] = {
    KernelsOf<Silu>(Activation::kSilu, "silu"),
    KernelsOf<GeluTanh>(Activation::kGeluTanh, "gelu"),
    KernelsOf<GeluErf>(Activation::kGeluErf, "gelu_erf"),
    KernelsOf<Relu>(Activation::kRelu, "relu"),
    KernelsOf<ReluSquared>(Activation::kReluSquared, "relu_squared"),
    KernelsOf<SwigluClamped>(Activation::kSwigluClamped, "swiglu_clamped"),
    KernelsOf<TanhOf>(Activation::kTanh, "tanh"),
    KernelsOf<Sigmoid>(Activation::kSigmoid, "sigmoid"),
    KernelsOf<Decay>(Activation::kDecay, "decay"),
    KernelsOf<BoundedDecay>(Activation::kBoundedDecay, "bounded_decay"),
    KernelsOf<Softplus>(Activation::kSoftplus, "softplus"),
    KernelsOf<SoftplusOfTwo>(Activation::kSoftplusOfTwo, "softplus_of_two"),
};
static_assert(InOrder(kActivations));
