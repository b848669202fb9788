// topk.cpp: the k largest of a row, kept sorted; a vector compare skips what is not above the smallest kept.
#include "lanes.h"
#include "rows.h"

namespace kb::cpu {
namespace {

template <class T>
bool above(T a, T b) {  // NaN is smallest
  return a > b || (b != b && a == a);
}

template <class T>
void row_topk(const T* x, int64_t n, int64_t k, T* value, int32_t* id) {
  int64_t have = 0;
  const auto insert = [&](int64_t i) {  // after its equals, which have lower ids
    int64_t at = have < k ? have++ : k - 1;
    for (; at > 0 && above(x[i], value[at - 1]); --at) value[at] = value[at - 1], id[at] = id[at - 1];
    value[at] = x[i], id[at] = int32_t(i);
  };
  int64_t i = 0;
  for (; i < k; ++i) insert(i);
  while (i < n) {
    const T least = value[k - 1];
    if (least != least) {  // no number compares above NaN
      if (x[i] == x[i]) insert(i);
      ++i;
      continue;
    }
    i = first_above_lanes(x, i, n, least);
    if (i < n) insert(i++);
  }
}

}  // namespace

void TopkKernel::launch(const Call& c, const Op& o) {
  if (!c.wanted(0) && !c.wanted(1)) return;
  const kb_type& t = c.in(0);
  const int64_t n = t.shape[t.rank - 1], rows = t.rank > 1 ? c.rows(t) * product(t, 1, t.rank - 1) : 1, k = o.k;
  if (k < 1 || k > n) fail("k must be in [1, ", n, "] but got ", k);
  floats(t.dtype, [&]<class T>() {
    c.parallel(rows, std::max<int64_t>(1, 4096 / n), [&](int64_t b, int64_t e, int32_t) {
      std::vector<T> value(static_cast<size_t>(c.wanted(0) ? 0 : k));
      std::vector<int32_t> id(static_cast<size_t>(c.wanted(1) ? 0 : k));
      for (int64_t r = b; r < e; ++r)
        row_topk(c.get<T>(0) + r * n, n, k, c.wanted(0) ? c.put<T>(0) + r * k : value.data(),
                 c.wanted(1) ? c.put<int32_t>(1) + r * k : id.data());
    });
  });
}

}  // namespace kb::cpu
