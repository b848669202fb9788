// lanes_tail-inl.h: loads and stores of the first n lanes, which touch no other memory. Included once per target.
#if defined(KB_LANES_TAIL_INL) == defined(HWY_TARGET_TOGGLE)
#ifdef KB_LANES_TAIL_INL
#undef KB_LANES_TAIL_INL
#else
#define KB_LANES_TAIL_INL
#endif
#include <cstring>

#include "hwy/highway.h"

HWY_BEFORE_NAMESPACE();
namespace kb::cpu::HWY_NAMESPACE {
namespace {  // other files of this library have names of their own here
namespace hn = hwy::HWY_NAMESPACE;

template <class D, class T = hn::TFromD<D>>
HWY_INLINE hn::Vec<D> load_part(D d, const T* p, size_t n) {
#if HWY_TARGET <= HWY_AVX2
  return hn::MaskedLoad(hn::FirstN(d, n), d, p);
#else
  HWY_ALIGN T part[hn::MaxLanes(d)] = {};
  std::memcpy(part, p, n * sizeof(T));
  return hn::Load(d, part);
#endif
}
template <class D, class T = hn::TFromD<D>>
HWY_INLINE void store_part(hn::Vec<D> v, D d, T* p, size_t n) {
#if HWY_TARGET <= HWY_AVX2
  hn::BlendedStore(v, hn::FirstN(d, n), d, p);
#else
  HWY_ALIGN T part[hn::MaxLanes(d)];
  hn::Store(v, d, part);
  std::memcpy(p, part, n * sizeof(T));
#endif
}
// f(i) on whole vectors, g(i, count) on the rest.
template <class D, class F, class G>
HWY_INLINE void each(D d, int64_t n, const F& whole, const G& part) {
  const int64_t lanes = int64_t(hn::Lanes(d));
  int64_t i = 0;
  for (; i + lanes <= n; i += lanes) whole(i);
  if (i < n) part(i, size_t(n - i));
}

}  // namespace
}  // namespace kb::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();
#endif
