// attention_mma.cuh: the tensor core pieces of the bf16 attention kernels: mma.sync m16n8k16, ldmatrix, cp.async, and the
// load of a tile of rows into shared memory.
#pragma once
#include <cuda_bf16.h>

#include <cstdint>

namespace kb::cuda {

using bf16 = __nv_bfloat16;

// A row of a tile in shared memory takes 8 elements (16 bytes) more than its width, a multiple of 64: eight rows of one
// ldmatrix then lie in different banks.
__host__ __device__ constexpr int padded(int width) { return width + 8; }

__device__ inline uint32_t shared_address(const void* p) { return uint32_t(__cvta_generic_to_shared(p)); }

// Four 8x8 matrices; lane i gives the address of row i % 8 of matrix i / 8.
__device__ inline void load_matrices(uint32_t (&r)[4], const bf16* row) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0,%1,%2,%3}, [%4];"
               : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
               : "r"(shared_address(row)));
}
__device__ inline void load_matrices_transposed(uint32_t (&r)[4], const bf16* row) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0,%1,%2,%3}, [%4];"
               : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
               : "r"(shared_address(row)));
}

// c [16, 8] += a [16, 16] b [16, 8]. Lane l holds c(l / 4 + 8 * (i / 2), 2 * (l % 4) + i % 2) in c[i].
__device__ inline void multiply_add(float (&c)[4], const uint32_t (&a)[4], uint32_t b0, uint32_t b1) {
  asm volatile(
      "mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
      : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}

__device__ inline uint32_t pack(float low, float high) {
  const __nv_bfloat162 v = __floats2bfloat162_rn(low, high);
  return reinterpret_cast<const uint32_t&>(v);
}

// a: 16 rows from `rows` on, columns [column, column + 16) of a tile that is `stride` wide.
__device__ inline void load_a(uint32_t (&a)[4], const bf16* rows, int stride, int column) {
  const int lane = threadIdx.x & 31;
  load_matrices(a, rows + (lane & 15) * stride + column + (lane >> 4) * 8);
}
// b for 16 columns of c that are 16 rows of the tile: c = a * tile^T. b[0], b[1]: the first 8, b[2], b[3]: the others.
__device__ inline void load_b_rows(uint32_t (&b)[4], const bf16* rows, int stride, int column) {
  const int lane = threadIdx.x & 31;
  load_matrices(b, rows + ((lane & 7) + (lane >> 4) * 8) * stride + column + (lane >> 3 & 1) * 8);
}
// b for 16 columns of c that are columns of the tile, whose 16 rows are summed over: c = a * tile.
__device__ inline void load_b_columns(uint32_t (&b)[4], const bf16* rows, int stride, int column) {
  const int lane = threadIdx.x & 31;
  load_matrices_transposed(b, rows + (lane & 15) * stride + column + (lane >> 4) * 8);
}

__device__ inline void copy_async(bf16* to, const bf16* from, bool valid) {  // 16 bytes; zeros unless valid
  asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(shared_address(to)), "l"(from),
               "r"(valid ? 16 : 0));
}
__device__ inline void copies_commit() { asm volatile("cp.async.commit_group;"); }
template <int kLeft>
__device__ inline void copies_wait() {
  asm volatile("cp.async.wait_group %0;" ::"n"(kLeft));
}

// ROWS rows of `width` elements, `stride` apart, into a tile [ROWS, padded(WIDTH)]; rows from `valid` on and columns from
// `width` on become zero. Whole 16-byte pieces go asynchronously; an odd width goes element by element.
template <int ROWS, int WIDTH, int THREADS>
__device__ inline void load_tile(bf16* to, const bf16* from, int64_t stride, int width, int valid) {
  constexpr int kPieces = WIDTH / 8;
  if (width % 8 == 0) {
#pragma unroll
    for (int i = threadIdx.x; i < ROWS * kPieces; i += THREADS) {
      const int r = i / kPieces, c = i % kPieces * 8;
      const bool in = r < valid && c < width;
      copy_async(to + r * padded(WIDTH) + c, in ? from + r * stride + c : from, in);
    }
  } else {
    for (int i = threadIdx.x; i < ROWS * WIDTH; i += THREADS) {
      const int r = i / WIDTH, c = i % WIDTH;
      to[r * padded(WIDTH) + c] = r < valid && c < width ? from[r * stride + c] : __float2bfloat16(0.f);
    }
  }
}

}  // namespace kb::cuda
