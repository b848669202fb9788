#include "experts.h"

#include <utility>

#include "lanes.h"
#include "rows.h"

namespace kb::cpu {

// Where each expert's next row goes.
uint64_t ExpertSortKernel::workspace(const Call&, const Op& o) { return uint64_t(o.experts + 1) * sizeof(int64_t); }

void ExpertSortKernel::launch(const Call& c, const Op& o) {
  if (!c.wanted(0) && !c.wanted(1)) return;
  const int64_t tile = o.tile;
  if (tile < 1) fail("tile must be at least 1 but got ", tile);
  const int32_t* ids = c.get<int32_t>(0);
  const int64_t n = used(c, c.in(0));
  int64_t* at = c.workspace<int64_t>();
  std::fill(at, at + o.experts + 1, int64_t(0));
  for (int64_t i = 0; i < n; ++i) {
    if (ids[i] < 0 || ids[i] >= o.experts)
      fail("expert of choice ", i, " must be in [0, ", o.experts, ") but got ", ids[i]);
    ++at[ids[i]];
  }
  int64_t begin = 0;
  for (int64_t e = 0; e <= o.experts; ++e) {
    const int64_t rows = e < o.experts ? ceil_div(at[e], tile) * tile : 0;
    at[e] = begin;
    if (c.wanted(1)) c.put<int32_t>(1)[e] = int32_t(begin);
    begin += rows;
  }
  if (!c.wanted(0)) return;
  const int64_t room = c.out(0).shape[0];
  if (begin > room) fail("source must have room for ", begin, " rows but has ", room);
  int32_t* source = c.put<int32_t>(0);
  std::fill(source, source + room, -1);
  for (int64_t i = 0; i < n; ++i) source[at[ids[i]]++] = int32_t(i);
}

void DispatchKernel::launch(const Call& c, const Op& o) {
  if (!c.wanted(0)) return;
  const kb_type& x = c.in(0);
  const int64_t rows = std::min(c.rows(c.in(1)), c.rows(c.out(0))), width = product(x, 1, x.rank) * width_of(x.dtype);
  const int32_t* source = c.get<int32_t>(1);
  if (o.active < 1) fail("active must be at least 1 but got ", o.active);
  check_rows("source", source, rows, x.shape[0] * o.active, true);
  const char* from = c.get<char>(0);
  char* to = c.put<char>(0);
  c.parallel(rows, std::max<int64_t>(1, 32768 / std::max<int64_t>(1, width)), [&](int64_t b, int64_t e, int32_t) {
    for (int64_t r = b; r < e; ++r) {
      if (source[r] < 0)
        std::memset(to + r * width, 0, size_t(width));
      else
        std::memcpy(to + r * width, from + source[r] / o.active * width, size_t(width));
    }
  });
}

// For each token where its rows begin, then the rows.
uint64_t CombineKernel::workspace(const Call& c, const Op& o) {
  return uint64_t(o.tokens + 1 + c.dim(1, 0)) * sizeof(int32_t);
}

void CombineKernel::launch(const Call& c, const Op& o) {
  if (!c.wanted(0)) return;
  const kb_type& x = c.in(0);
  const int64_t rows = std::min(c.rows(x), c.rows(c.in(1))), width = product(x, 1, x.rank), tokens = o.tokens;
  const int32_t* source = c.get<int32_t>(1);
  if (o.active < 1) fail("active must be at least 1 but got ", o.active);
  check_rows("source", source, rows, tokens * o.active, true);
  int32_t *start = c.workspace<int32_t>(), *list = start + tokens + 1;
  std::fill(start, list, 0);
  for (int64_t r = 0; r < rows; ++r)
    if (source[r] >= 0) ++start[source[r] / o.active];
  int32_t sum = 0;
  for (int64_t t = 0; t <= tokens; ++t) sum += std::exchange(start[t], sum);
  for (int64_t r = 0; r < rows; ++r)
    if (source[r] >= 0) list[start[source[r] / o.active]++] = int32_t(r);
  // start[t] is now where token t ends, and token t - 1's end is where it begins.
  floats(x.dtype, [&]<class T>() {
    const T* from = c.get<T>(0);
    c.parallel(tokens, std::max<int64_t>(1, kGrain / std::max<int64_t>(1, width)), [&](int64_t b, int64_t e, int32_t) {
      for (int64_t t = b; t < e; ++t) {
        T* y = c.put<T>(0) + t * width;
        const int32_t first = t ? start[t - 1] : 0;
        if (first == start[t]) {
          std::fill(y, y + width, T(0));
          continue;
        }
        std::memcpy(y, from + list[first] * width, size_t(width) * sizeof(T));
        for (int32_t i = first + 1; i < start[t]; ++i) add_lanes(y, from + list[i] * width, width);
      }
    });
  });
}

}  // namespace kb::cpu
