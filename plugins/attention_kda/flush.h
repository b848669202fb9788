// flush.h: while it lives, numbers too small to be normal become zero. Decays drive states and weights through that
// range, where x86 takes a hundred times longer, and below it nothing is lost.
#pragma once
#if defined(__SSE__)
#include <xmmintrin.h>
#endif

namespace kda {

class FlushDenormals {
 public:
#if defined(__SSE__)
  FlushDenormals() : before_(_mm_getcsr()) { _mm_setcsr(before_ | 0x8040); }  // flush to zero, denormals are zero
  ~FlushDenormals() { _mm_setcsr(before_); }

 private:
  unsigned before_;
#else
  FlushDenormals() {}
#endif
 public:
  FlushDenormals(const FlushDenormals&) = delete;
  FlushDenormals& operator=(const FlushDenormals&) = delete;
};

}  // namespace kda
