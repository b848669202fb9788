// mma_cuda.cuh: the instructions that the chunk kernels are made of: matrix products of a warp, their loads from and
// stores to shared memory, asynchronous copies, and barriers that count bytes.
//
// A fragment of D or C [16, 8] (float): lane l holds rows l / 4 and l / 4 + 8, columns 2 (l % 4) and the next:
// d[0 .. 1], then d[2 .. 3]. A [16, 16] (bf16): the same for two groups of eight columns, a[0 .. 1] and a[2 .. 3]. B [16, 8]:
// lane l holds column l / 4, rows 2 (l % 4) and the next: b0; those plus eight: b1.
#pragma once
#include <cuda_bf16.h>

#include <cstdint>

#include "convert_cuda.cuh"

namespace kda::cuda {

__device__ inline uint32_t shared_at(const void* p) { return uint32_t(__cvta_generic_to_shared(p)); }

__device__ inline uint32_t pack(float low, float high) {
  const __nv_bfloat162 x = __floats2bfloat162_rn(low, high);
  return *reinterpret_cast<const uint32_t*>(&x);
}
__device__ inline float2 unpack(uint32_t x) { return __bfloat1622float2(*reinterpret_cast<const __nv_bfloat162*>(&x)); }
__device__ inline float power2(float x) {
  float y;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
  return y;
}

// Four 8 x 8 matrices; lanes 8 m .. 8 m + 7 name the rows (16 bytes each) of matrix m. Lane l gets of each row l / 4,
// columns 2 (l % 4) and the next; transposed: column l / 4, rows 2 (l % 4) and the next.
__device__ inline void load_matrices(uint32_t (&r)[4], const void* row) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
               : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
               : "r"(shared_at(row))
               : "memory");
}
__device__ inline void load_transposed(uint32_t (&r)[4], const void* row) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];"
               : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
               : "r"(shared_at(row))
               : "memory");
}
__device__ inline void store_matrices(void* row, uint32_t r0, uint32_t r1, uint32_t r2, uint32_t r3) {
  asm volatile("stmatrix.sync.aligned.m8n8.x4.shared.b16 [%0], {%1, %2, %3, %4};" ::"r"(shared_at(row)), "r"(r0),
               "r"(r1), "r"(r2), "r"(r3)
               : "memory");
}
__device__ inline void store_transposed(void* row, uint32_t r0, uint32_t r1, uint32_t r2, uint32_t r3) {
  asm volatile("stmatrix.sync.aligned.m8n8.x4.trans.shared.b16 [%0], {%1, %2, %3, %4};" ::"r"(shared_at(row)), "r"(r0),
               "r"(r1), "r"(r2), "r"(r3)
               : "memory");
}
__device__ inline void mma(float (&d)[4], const uint32_t (&a)[4], uint32_t b0, uint32_t b1) {
  asm volatile(
      "mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, "
      "%3};"
      : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}

// D [16, 8] += A [16, 8] B [8, 8] in tf32, floats of eleven bits: lane l holds of A rows l / 4 (+ 8), columns l % 4 (a[0 .. 1])
// and l % 4 + 4 (a[2 .. 3]), of B rows l % 4 and l % 4 + 4, column l / 4.
__device__ inline uint32_t to_tf32(float x) {
  uint32_t y;
  asm("cvt.rna.tf32.f32 %0, %1;" : "=r"(y) : "f"(x));
  return y;
}
__device__ inline void mma_tf32(float (&d)[4], const uint32_t (&a)[4], uint32_t b0, uint32_t b1) {
  asm volatile(
      "mma.sync.aligned.m16n8k8.row.col.f32.tf32.tf32.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, "
      "%3};"
      : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}

// Sixteen bytes to shared memory; zeros unless `valid`.
__device__ inline void copy16(void* to, const void* from, bool valid) {
  asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(shared_at(to)), "l"(from), "r"(valid ? 16 : 0)
               : "memory");
}
__device__ inline void copy_commit() { asm volatile("cp.async.commit_group;" ::: "memory"); }
template <int Pending>
__device__ inline void copy_wait() {
  asm volatile("cp.async.wait_group %0;" ::"n"(Pending) : "memory");
}

__device__ inline void prefetch(const void* x) { asm volatile("prefetch.global.L2 [%0];" ::"l"(x)); }

// A barrier in shared memory that a phase of copies completes.
__device__ inline void barrier_init(uint64_t* b, uint32_t arrivals) {
  asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(shared_at(b)), "r"(arrivals) : "memory");
}
__device__ inline void barrier_init_done() { asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory"); }
__device__ inline void barrier_arrive(uint64_t* b) {
  asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" ::"r"(shared_at(b)) : "memory");
}
__device__ inline void barrier_expect(uint64_t* b, uint32_t bytes) {  // arrives too
  asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(shared_at(b)), "r"(bytes) : "memory");
}
__device__ inline bool barrier_passed(uint64_t* b, uint32_t parity) {
  uint32_t done;
  asm volatile("{\n.reg .pred p;\nmbarrier.try_wait.parity.shared::cta.b64 p, [%1], %2;\nselp.u32 %0, 1, 0, p;\n}"
               : "=r"(done)
               : "r"(shared_at(b)), "r"(parity)
               : "memory");
  return done;
}
__device__ inline void barrier_wait(uint64_t* b, uint32_t parity) {
  while (!barrier_passed(b, parity)) {
  }
}
// Contiguous bytes to shared memory, counted by the barrier; addresses and size are multiples of 16.
__device__ inline void bulk_copy(void* to, const void* from, uint32_t bytes, uint64_t* b) {
  asm volatile(
      "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];" ::"r"(shared_at(to)),
      "l"(from), "r"(bytes), "r"(shared_at(b))
      : "memory");
}
// After ordinary writes of shared memory that bulk copies or wgmma read next; a barrier follows.
__device__ inline void fence_async() { asm volatile("fence.proxy.async.shared::cta;" ::: "memory"); }
// Contiguous bytes from shared memory by lane 0, without a branch, after all lanes have written them. Before they are
// overwritten, and before the end, bulk_store_wait.
__device__ inline void bulk_store(void* to, const void* from, uint32_t bytes) {
  fence_async();
  __syncwarp();
  asm volatile(
      "{\n.reg .pred p;\nsetp.eq.u32 p, %3, 0;\n"
      "@p cp.async.bulk.global.shared::cta.bulk_group [%0], [%1], %2;\n@p cp.async.bulk.commit_group;\n}" ::"l"(to),
      "r"(shared_at(from)), "r"(bytes), "r"(threadIdx.x & 31)
      : "memory");
}
__device__ inline void bulk_store_wait() {
  asm volatile("cp.async.bulk.wait_group 0;" ::: "memory");
  __syncwarp();
}

}  // namespace kda::cuda
