// The triangular filters of Slaney's mel scale, by which the powers of frequencies become bands.
//
// Source: Malcolm Slaney, Auditory Toolbox (1998), in librosa's form: the scale is linear below
// 1000 Hz and logarithmic above; each triangle has an area of 1 Hz. Values are rounded to floats
// where librosa rounds them, so that they are the ones of Whisper's table. Thread-safety: constant.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

namespace kvant::speech {

// The weights of one band, for the frequencies from number `first` on; all others count nothing.
struct MelFilter {
  size_t first = 0;
  std::vector<float> weights;
};

// `bands` filters for the coefficients 0 to length / 2 of a Fourier transform of `length` samples,
// from 0 Hz to half of the rate of kSoundRate samples a second.
std::vector<MelFilter> MelFilters(int64_t bands, size_t length);

}  // namespace kvant::speech
