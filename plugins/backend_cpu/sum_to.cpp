// sum_to.cpp: the gradient of broadcasting. Axes merge into runs that stay and runs that vanish; each vanishing run is
// summed, the innermost first.
#include "reduce.h"

namespace kb::cpu {
namespace {

struct Run {
  int64_t size;
  bool gone;
};
struct Runs {
  Run at[KB_MAX_RANK];
  int n = 0;
};

Runs runs_of(const kb_type& x, const kb_type& y, int64_t rows) {
  Runs r;
  for (int d = 0; d < x.rank; ++d) {
    const int e = d - (x.rank - y.rank);
    const int64_t have = x.shape[d], size = d == 0 ? rows : have, want = e < 0 ? 1 : y.shape[e];
    if (want != 1 && want != have)
      fail("sum_to must keep ", have, " or give 1 on axis ", d, " but was asked for ", want);
    if (have == 1) continue;
    const bool gone = want == 1;
    if (r.n && r.at[r.n - 1].gone == gone)
      r.at[r.n - 1].size *= size;
    else
      r.at[r.n++] = {size, gone};
  }
  return r;
}
// The last vanishing run as [outer, width, inner]; false when none is left.
bool last_gone(const Runs& r, Middle& m, int& at) {
  for (at = r.n - 1; at >= 0 && !r.at[at].gone; --at) {
  }
  if (at < 0) return false;
  m = {1, r.at[at].size, 1};
  for (int i = 0; i < r.n; ++i) (i < at ? m.outer : i > at ? m.inner : m.width = 1) *= r.at[i].size;
  return true;
}
void drop(Runs& r, int at) {
  for (int i = at; i + 1 < r.n; ++i) r.at[i] = r.at[i + 1];
  --r.n;
}
int gone_count(const Runs& r) {
  int n = 0;
  for (int i = 0; i < r.n; ++i) n += r.at[i].gone;
  return n;
}

}  // namespace

// Two buffers of the first intermediate's size, and the room of the greediest step.
uint64_t SumToKernel::workspace(const Call& c, const Op&) {
  const kb_type& x = c.in(0);
  const Runs r = runs_of(x, c.out(0), x.rank ? x.shape[0] : 1);
  int64_t room = 0, between = 0, at_most = 0;
  // Fewer rows in use shrink the first run, which may cut a step in more pieces than the bound would: take the worst.
  for (int64_t rows : {x.rank ? x.shape[0] : 1, int64_t(15), int64_t(1)}) {
    if (x.rank && rows > x.shape[0]) continue;
    Runs s = runs_of(x, c.out(0), rows);
    Middle m;
    for (int at; last_gone(s, m, at); drop(s, at)) {
      room = std::max({room, sum_middle_room(m), sum_middle_room({15, m.width, m.inner})});
      at_most = std::max(at_most, m.outer * m.inner);
    }
  }
  between = gone_count(r) > 1 ? at_most : 0;
  return uint64_t(2 * between + room) * sizeof(double);
}

void SumToKernel::launch(const Call& c, const Op&) {
  if (!c.wanted(0)) return;
  const kb_type& x = c.in(0);
  Runs r = runs_of(x, c.out(0), x.rank ? c.rows(x) : 1);
  const Runs bound = runs_of(x, c.out(0), x.rank ? x.shape[0] : 1);
  int64_t between = 0;
  if (gone_count(bound) > 1) {
    Runs s = bound;
    Middle m;
    for (int at; last_gone(s, m, at); drop(s, at)) between = std::max(between, m.outer * m.inner);
  }
  double *spare = c.workspace<double>(), *other = spare + between, *room = other + between;
  floats(x.dtype, [&]<class In>() {
    floats(c.out(0).dtype, [&]<class Out>() {
      const In* from = c.get<In>(0);
      Out* to = c.put<Out>(0);
      Middle m;
      int at;
      if (!last_gone(r, m, at)) return sum_middle(c, from, {used(c, x), 1, 1}, to, c.adds(0), room);
      drop(r, at);
      if (!gone_count(r)) return sum_middle(c, from, m, to, c.adds(0), room);
      sum_middle(c, from, m, spare, false, room);
      while (last_gone(r, m, at)) {
        drop(r, at);
        if (!gone_count(r)) return sum_middle(c, spare, m, to, c.adds(0), room);
        sum_middle(c, spare, m, other, false, room);
        std::swap(spare, other);
      }
    });
  });
}

}  // namespace kb::cpu
