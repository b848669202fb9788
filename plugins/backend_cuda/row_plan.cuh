// row_plan.cuh: how kernels share a row that stays in registers while it is read once. A row has `threads` threads, a
// part of a warp, a warp, or a whole block; each holds up to `packs` packs of `pack` elements, `threads` packs apart.
#pragma once
#include "element.cuh"

namespace kb::cuda::element {

inline constexpr int kRowBlock = 256;                 // threads of a block whose rows take at most a warp
inline constexpr int kMostThreads = 512;              // of a row
inline constexpr int kMostPacks = 8, kMostKept = 32;  // packs, and numbers, that a thread holds

struct RowPlan {
  int pack, packs, threads, block;
};
inline int power_above(int64_t n) {
  int p = 1;
  while (p < n) p *= 2;
  return p;
}
inline bool plan_row(uint32_t dtype, int64_t n, bool aligned, RowPlan& p) {
  p.pack = aligned ? (dtype == KB_BF16 ? 8 : 4) : 1;
  if (n % p.pack) p.pack = 1;
  const int64_t units = (n + p.pack - 1) / p.pack;
  if (units <= 32 * 4) {
    p.threads = units >= 32 ? 32 : power_above(units);
    p.packs = power_above((units + p.threads - 1) / p.threads);
    p.block = kRowBlock;
    return true;
  }
  p.threads = units > kRowBlock * 4 ? kMostThreads : kRowBlock;
  p.packs = power_above((units + p.threads - 1) / p.threads);
  p.block = p.threads;
  return p.packs * p.pack <= kMostKept && p.packs <= kMostPacks;
}

// f.template operator()<type, pack, packs>()
template <class F>
void with_packs(int packs, F&& f) {
  switch (packs) {
    case 1:
      return f.template operator()<1>();
    case 2:
      return f.template operator()<2>();
    case 4:
      return f.template operator()<4>();
    default:
      return f.template operator()<8>();
  }
}
template <class F>
void dispatch(uint32_t dtype, const RowPlan& p, F&& f) {
  with_packs(p.packs, [&]<int P>() {
    if (dtype == KB_BF16) {
      if (p.pack == 1)
        f.template operator()<Bf16, 1, P>();
      else if constexpr (P <= 4)
        f.template operator()<Bf16, 8, P>();
    } else {
      if (p.pack > 1)
        f.template operator()<float, 4, P>();
      else
        f.template operator()<float, 1, P>();
    }
  });
}

}  // namespace kb::cuda::element
