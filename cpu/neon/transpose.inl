// Transposes four vectors of NEON with four lanes each. Included inside a namespace and target
// region, after F32.

// Lane r of vector l becomes lane l of vector r.
inline void TransposeFloats(F32* v) {
  const float64x2_t low02 = vreinterpretq_f64_f32(vzip1q_f32(v[0], v[2]));
  const float64x2_t high02 = vreinterpretq_f64_f32(vzip2q_f32(v[0], v[2]));
  const float64x2_t low13 = vreinterpretq_f64_f32(vzip1q_f32(v[1], v[3]));
  const float64x2_t high13 = vreinterpretq_f64_f32(vzip2q_f32(v[1], v[3]));
  const auto zip = [](float64x2_t even, float64x2_t odd, F32* two) {
    two[0] = vzip1q_f32(vreinterpretq_f32_f64(even), vreinterpretq_f32_f64(odd));
    two[1] = vzip2q_f32(vreinterpretq_f32_f64(even), vreinterpretq_f32_f64(odd));
  };
  zip(low02, low13, v);
  zip(high02, high13, v + 2);
}
