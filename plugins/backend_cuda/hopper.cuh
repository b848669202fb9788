// hopper.cuh: the sm_90a instructions that have no CUDA C++ form: barriers in shared memory, the copy engine (TMA), the
// warpgroup matrix product (wgmma) and what orders them. Addresses of shared memory are 32-bit, in the CTA's window.
#pragma once
#include <cuda.h>

#include <cstdint>

namespace kb::cuda::hopper {

__device__ inline uint32_t shared_address(const void* p) { return uint32_t(__cvta_generic_to_shared(p)); }

// ---- clusters
__device__ inline uint32_t cluster_rank() {
  uint32_t r;
  asm volatile("mov.u32 %0, %%cluster_ctarank;" : "=r"(r));
  return r;
}
__device__ inline void cluster_sync() {  // every thread of every CTA
  asm volatile("barrier.cluster.arrive.release.aligned;\nbarrier.cluster.wait.acquire.aligned;" ::: "memory");
}
template <int N>
__device__ inline void more_registers() {
  asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;" ::"n"(N));
}
template <int N>
__device__ inline void fewer_registers() {
  asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;" ::"n"(N));
}
__device__ inline void named_sync(int id, int threads) {
  asm volatile("bar.sync %0, %1;" ::"r"(id), "r"(threads) : "memory");
}

// ---- barriers; parity: that of the phase to wait for
__device__ inline void barrier_init(uint32_t b, uint32_t arrivals) {
  asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(b), "r"(arrivals) : "memory");
}
__device__ inline void barrier_init_done() { asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory"); }
__device__ inline void barrier_expect(uint32_t b, uint32_t bytes) {  // arrives, and asks for bytes of the copy engine
  asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(b), "r"(bytes) : "memory");
}
__device__ inline void barrier_arrive(uint32_t b) {
  asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" ::"r"(b) : "memory");
}
// The barrier at the same place in CTA `cta`. Orders nothing but what the tensor cores have read of shared memory: a release
// at the cluster's scope would wait for all stores to global memory.
__device__ inline void barrier_arrive_at(uint32_t b, uint32_t cta) {
  asm volatile(
      "{\n.reg .b32 far;\nmapa.shared::cluster.u32 far, %0, %1;\n"
      "mbarrier.arrive.shared::cluster.b64 _, [far];\n}" ::"r"(b),
      "r"(cta)
      : "memory");
}
__device__ inline void barrier_wait(uint32_t b, uint32_t parity) {
  asm volatile(
      "{\n.reg .pred done;\nagain:\nmbarrier.try_wait.parity.shared::cta.b64 done, [%0], %1;\n"
      "@done bra over;\nbra again;\nover:\n}" ::"r"(b),
      "r"(parity)
      : "memory");
}
// Ordinary stores to shared memory become visible to wgmma and the copy engine; by every writing thread, before a barrier.
__device__ inline void fence_async() { asm volatile("fence.proxy.async.shared::cta;" ::: "memory"); }

// ---- the copy engine: a box of a tensor map to shared memory; `mask`: CTAs of the cluster that get it, at the same place
__device__ inline void prefetch(const CUtensorMap* map) {
  asm volatile("prefetch.tensormap [%0];" ::"l"(map) : "memory");
}
__device__ inline void load(uint32_t to, const CUtensorMap* map, int x, int y, int z, uint32_t barrier) {
  asm volatile(
      "cp.async.bulk.tensor.3d.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1, {%2, %3, %4}], [%5];" ::
          "r"(to),
      "l"(map), "r"(x), "r"(y), "r"(z), "r"(barrier)
      : "memory");
}
__device__ inline void load_to_all(uint32_t to, const CUtensorMap* map, int x, int y, int z, uint32_t barrier,
                                   uint16_t mask) {
  asm volatile(
      "cp.async.bulk.tensor.3d.shared::cluster.global.mbarrier::complete_tx::bytes.multicast::cluster [%0], "
      "[%1, {%2, %3, %4}], [%5], %6;" ::"r"(to),
      "l"(map), "r"(x), "r"(y), "r"(z), "r"(barrier), "h"(mask)
      : "memory");
}

// From shared memory to a box of a tensor map; what lies outside the tensor is cut off. store_add: f32, adds.
__device__ inline void store(const CUtensorMap* map, uint32_t from, int x, int y, int z) {
  asm volatile("cp.async.bulk.tensor.3d.global.shared::cta.bulk_group [%0, {%1, %2, %3}], [%4];" ::"l"(map), "r"(x),
               "r"(y), "r"(z), "r"(from)
               : "memory");
}
__device__ inline void store_add(const CUtensorMap* map, uint32_t from, int x, int y, int z) {
  asm volatile("cp.reduce.async.bulk.tensor.3d.global.shared::cta.add.bulk_group [%0, {%1, %2, %3}], [%4];" ::"l"(map),
               "r"(x), "r"(y), "r"(z), "r"(from)
               : "memory");
}
__device__ inline void store_commit() { asm volatile("cp.async.bulk.commit_group;" ::: "memory"); }
__device__ inline void store_wait_read() {  // until shared memory of all own stores has been read
  asm volatile("cp.async.bulk.wait_group.read 0;" ::: "memory");
}
__device__ inline void store_shared(uint32_t at, float x, float y) {
  asm volatile("st.shared.v2.f32 [%0], {%1, %2};" ::"r"(at), "f"(x), "f"(y) : "memory");
}
// Four 8x8 blocks of 16-bit numbers; lane l gives the address of row l % 8 of block l / 8.
__device__ inline void store_matrices(uint32_t at, uint32_t a, uint32_t b, uint32_t c, uint32_t d) {
  asm volatile("stmatrix.sync.aligned.m8n8.x4.shared.b16 [%0], {%1, %2, %3, %4};" ::"r"(at), "r"(a), "r"(b), "r"(c),
               "r"(d)
               : "memory");
}

__device__ inline void prefetch_l2(const void* at) { asm volatile("prefetch.global.L2 [%0];" ::"l"(at)); }

// ---- wgmma: operands in shared memory, 128-byte swizzle. A descriptor names an address and two strides in bytes.
// K-major: rows of 64 numbers; `step`: from 8 rows to the next 8. MN-major: blocks of [8 or more depths][64 numbers];
// `step`: from 8 depths to the next 8, `block`: from 64 numbers to the next 64.
__device__ inline uint64_t descriptor(uint32_t address, uint32_t block, uint32_t step) {
  return uint64_t((address & 0x3ffff) >> 4) | uint64_t(block >> 4) << 16 | uint64_t(step >> 4) << 32 |
         uint64_t(1) << 62;
}
__device__ inline void wgmma_fence() { asm volatile("wgmma.fence.sync.aligned;" ::: "memory"); }
__device__ inline void wgmma_commit() { asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory"); }
template <int N>  // until at most N groups are under way
__device__ inline void wgmma_wait() {
  asm volatile("wgmma.wait_group.sync.aligned %0;" ::"n"(N) : "memory");
}

// clang-format off
#define KB_REGS_4(i) "+f"(d[i]), "+f"(d[i + 1]), "+f"(d[i + 2]), "+f"(d[i + 3])
#define KB_REGS_8(i) KB_REGS_4(i), KB_REGS_4(i + 4)
#define KB_REGS_32(i) KB_REGS_8(i), KB_REGS_8(i + 8), KB_REGS_8(i + 16), KB_REGS_8(i + 24)
#define KB_REGS_128 KB_REGS_32(0), KB_REGS_32(32)
#define KB_REGS_192 KB_REGS_128, KB_REGS_32(64)
#define KB_REGS_224 KB_REGS_192, KB_REGS_8(96), KB_REGS_8(104)
#define KB_REGS_240 KB_REGS_224, KB_REGS_8(112)
#define KB_REGS_256 KB_REGS_240, KB_REGS_8(120)
template <bool ATurned, bool BTurned>
__device__ inline void wgmma_128(float (&d)[128], uint64_t a, uint64_t b, int add) {
  asm volatile(
      "{\n.reg .pred add;\nsetp.ne.b32 add, %66, 0;\n"
      "wgmma.mma_async.sync.aligned.m64n128k16.f32.bf16.bf16 {"
      "%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, %16, %17, %18, %19, %20, %21, "
      "%22, %23, %24, %25, %26, %27, %28, %29, %30, %31, %32, %33, %34, %35, %36, %37, %38, %39, %40, %41, "
      "%42, %43, %44, %45, %46, %47, %48, %49, %50, %51, %52, %53, %54, %55, %56, %57, %58, %59, %60, %61, "
      "%62, %63"
      "}, %64, %65, add, 1, 1, %67, %68;\n}"
      : KB_REGS_128
      : "l"(a), "l"(b), "r"(add), "n"(int(ATurned)), "n"(int(BTurned)));
}
template <bool ATurned, bool BTurned>
__device__ inline void wgmma_192(float (&d)[128], uint64_t a, uint64_t b, int add) {
  asm volatile(
      "{\n.reg .pred add;\nsetp.ne.b32 add, %98, 0;\n"
      "wgmma.mma_async.sync.aligned.m64n192k16.f32.bf16.bf16 {"
      "%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, %16, %17, %18, %19, %20, %21, "
      "%22, %23, %24, %25, %26, %27, %28, %29, %30, %31, %32, %33, %34, %35, %36, %37, %38, %39, %40, %41, "
      "%42, %43, %44, %45, %46, %47, %48, %49, %50, %51, %52, %53, %54, %55, %56, %57, %58, %59, %60, %61, "
      "%62, %63, %64, %65, %66, %67, %68, %69, %70, %71, %72, %73, %74, %75, %76, %77, %78, %79, %80, %81, "
      "%82, %83, %84, %85, %86, %87, %88, %89, %90, %91, %92, %93, %94, %95"
      "}, %96, %97, add, 1, 1, %99, %100;\n}"
      : KB_REGS_192
      : "l"(a), "l"(b), "r"(add), "n"(int(ATurned)), "n"(int(BTurned)));
}
template <bool ATurned, bool BTurned>
__device__ inline void wgmma_224(float (&d)[128], uint64_t a, uint64_t b, int add) {
  asm volatile(
      "{\n.reg .pred add;\nsetp.ne.b32 add, %114, 0;\n"
      "wgmma.mma_async.sync.aligned.m64n224k16.f32.bf16.bf16 {"
      "%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, %16, %17, %18, %19, %20, %21, "
      "%22, %23, %24, %25, %26, %27, %28, %29, %30, %31, %32, %33, %34, %35, %36, %37, %38, %39, %40, %41, "
      "%42, %43, %44, %45, %46, %47, %48, %49, %50, %51, %52, %53, %54, %55, %56, %57, %58, %59, %60, %61, "
      "%62, %63, %64, %65, %66, %67, %68, %69, %70, %71, %72, %73, %74, %75, %76, %77, %78, %79, %80, %81, "
      "%82, %83, %84, %85, %86, %87, %88, %89, %90, %91, %92, %93, %94, %95, %96, %97, %98, %99, %100, "
      "%101, %102, %103, %104, %105, %106, %107, %108, %109, %110, %111"
      "}, %112, %113, add, 1, 1, %115, %116;\n}"
      : KB_REGS_224
      : "l"(a), "l"(b), "r"(add), "n"(int(ATurned)), "n"(int(BTurned)));
}
template <bool ATurned, bool BTurned>
__device__ inline void wgmma_240(float (&d)[128], uint64_t a, uint64_t b, int add) {
  asm volatile(
      "{\n.reg .pred add;\nsetp.ne.b32 add, %122, 0;\n"
      "wgmma.mma_async.sync.aligned.m64n240k16.f32.bf16.bf16 {"
      "%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, %16, %17, %18, %19, %20, %21, "
      "%22, %23, %24, %25, %26, %27, %28, %29, %30, %31, %32, %33, %34, %35, %36, %37, %38, %39, %40, %41, "
      "%42, %43, %44, %45, %46, %47, %48, %49, %50, %51, %52, %53, %54, %55, %56, %57, %58, %59, %60, %61, "
      "%62, %63, %64, %65, %66, %67, %68, %69, %70, %71, %72, %73, %74, %75, %76, %77, %78, %79, %80, %81, "
      "%82, %83, %84, %85, %86, %87, %88, %89, %90, %91, %92, %93, %94, %95, %96, %97, %98, %99, %100, "
      "%101, %102, %103, %104, %105, %106, %107, %108, %109, %110, %111, %112, %113, %114, %115, %116, "
      "%117, %118, %119"
      "}, %120, %121, add, 1, 1, %123, %124;\n}"
      : KB_REGS_240
      : "l"(a), "l"(b), "r"(add), "n"(int(ATurned)), "n"(int(BTurned)));
}
template <bool ATurned, bool BTurned>
__device__ inline void wgmma_256(float (&d)[128], uint64_t a, uint64_t b, int add) {
  asm volatile(
      "{\n.reg .pred add;\nsetp.ne.b32 add, %130, 0;\n"
      "wgmma.mma_async.sync.aligned.m64n256k16.f32.bf16.bf16 {"
      "%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, %16, %17, %18, %19, %20, %21, "
      "%22, %23, %24, %25, %26, %27, %28, %29, %30, %31, %32, %33, %34, %35, %36, %37, %38, %39, %40, %41, "
      "%42, %43, %44, %45, %46, %47, %48, %49, %50, %51, %52, %53, %54, %55, %56, %57, %58, %59, %60, %61, "
      "%62, %63, %64, %65, %66, %67, %68, %69, %70, %71, %72, %73, %74, %75, %76, %77, %78, %79, %80, %81, "
      "%82, %83, %84, %85, %86, %87, %88, %89, %90, %91, %92, %93, %94, %95, %96, %97, %98, %99, %100, "
      "%101, %102, %103, %104, %105, %106, %107, %108, %109, %110, %111, %112, %113, %114, %115, %116, "
      "%117, %118, %119, %120, %121, %122, %123, %124, %125, %126, %127"
      "}, %128, %129, add, 1, 1, %131, %132;\n}"
      : KB_REGS_256
      : "l"(a), "l"(b), "r"(add), "n"(int(ATurned)), "n"(int(BTurned)));
}
#undef KB_REGS_256
#undef KB_REGS_240
#undef KB_REGS_224
#undef KB_REGS_192
#undef KB_REGS_128
#undef KB_REGS_32
#undef KB_REGS_8
#undef KB_REGS_4
// clang-format on

// d [64 x N] = a [64 x 16] b [16 x N] (+ d, if add) in the first N / 2 registers; MN-major operands where ATurned, BTurned.
template <int N, bool ATurned, bool BTurned>
__device__ inline void wgmma(float (&d)[128], uint64_t a, uint64_t b, int add) {
  static_assert(N == 128 || N == 192 || N == 224 || N == 240 || N == 256);
  if constexpr (N == 128)
    wgmma_128<ATurned, BTurned>(d, a, b, add);
  else if constexpr (N == 192)
    wgmma_192<ATurned, BTurned>(d, a, b, add);
  else if constexpr (N == 224)
    wgmma_224<ATurned, BTurned>(d, a, b, add);
  else if constexpr (N == 240)
    wgmma_240<ATurned, BTurned>(d, a, b, add);
  else
    wgmma_256<ATurned, BTurned>(d, a, b, add);
}

}  // namespace kb::cuda::hopper
