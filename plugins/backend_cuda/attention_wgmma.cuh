// attention_wgmma.cuh: warpgroup matrix products with the shapes of the attention kernels. Tiles lie in shared memory as boxes
// of 64 rows by 64 bf16 (8 KiB) with the 128-byte swizzle, as the copy engine writes them. An accumulator [64, N] is spread
// over the 128 threads of a warpgroup as by m16n8 of mma.sync: warp w has rows 16 w .., d[4 n + i] is row lane / 4 + 8 (i / 2)
// and column 8 n + 2 (lane % 4) + i % 2 of these.
#pragma once
#include "hopper.cuh"

namespace kb::cuda {

constexpr int kBox = 64 * 64 * 2;  // bytes

// Operand rows are the 16 numbers summed over side by side: box + 32 bytes a step of 16.
__device__ inline uint64_t rows_operand(uint32_t box, int step) { return hopper::descriptor(box + step * 32, 0, 1024); }
// Operand rows are summed over, 16 a step; boxes of 64 columns each lie `apart` bytes apart.
__device__ inline uint64_t columns_operand(uint32_t box, int step, int apart = kBox) {
  return hopper::descriptor(box + step * 2048, apart, 1024);
}

// By one warp: rows [from, rows) of boxes of 64 columns become zero, for products that read them next. Rows behind the end
// of a document are another's: they count with a factor of 0, and 0 * NaN would be NaN.
__device__ inline void clear_rows(char* box, int boxes, int rows, int from) {
  const int pieces = (rows - from) * 8;  // of 16 bytes
  for (int b = 0; b < boxes; ++b)
    for (int i = threadIdx.x & 31; i < pieces; i += 32)
      *reinterpret_cast<uint4*>(box + (b * rows + from) * 128 + i * 16) = make_uint4(0, 0, 0, 0);
  hopper::fence_async();
  __syncwarp();
}

// One thread arrives at barriers for its warpgroup. After a product of the whole warpgroup the other warps cannot be far behind;
// where there was none, they must first have read what the arrival lets others overwrite.
__device__ inline void warpgroup_sync(int group) { hopper::named_sync(4 + group, 128); }

// Keeps the compiler from moving reads or writes of an accumulator over the asynchronous products around it.
template <int N>
__device__ inline void settle(float (&d)[N]) {
#pragma unroll
  for (int i = 0; i < N; ++i) asm volatile("" : "+f"(d[i])::"memory");
}

// clang-format off
#define KB_R4(i) "+f"(d[i]), "+f"(d[i + 1]), "+f"(d[i + 2]), "+f"(d[i + 3])
#define KB_R16(i) KB_R4(i), KB_R4(i + 4), KB_R4(i + 8), KB_R4(i + 12)
#define KB_R32(i) KB_R16(i), KB_R16(i + 16)

// d [64, 64] = a [64, 16] b [64, 16]^T (+ d, if add), both rows_operand()
__device__ inline void multiply_rows(float (&d)[32], uint64_t a, uint64_t b, int add) {
  asm volatile(
      "{\n.reg .pred add;\nsetp.ne.b32 add, %34, 0;\n"
      "wgmma.mma_async.sync.aligned.m64n64k16.f32.bf16.bf16 {"
      "%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, %16, %17, %18, %19, %20, %21, %22, "
      "%23, %24, %25, %26, %27, %28, %29, %30, %31"
      "}, %32, %33, add, 1, 1, 0, 0;\n}"
      : KB_R32(0)
      : "l"(a), "l"(b), "r"(add));
}

// The same in the first half of d [64, 128].
__device__ inline void multiply_rows_64(float (&d)[64], uint64_t a, uint64_t b, int add) {
  asm volatile(
      "{\n.reg .pred add;\nsetp.ne.b32 add, %34, 0;\n"
      "wgmma.mma_async.sync.aligned.m64n64k16.f32.bf16.bf16 {"
      "%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, %16, %17, %18, %19, %20, %21, %22, "
      "%23, %24, %25, %26, %27, %28, %29, %30, %31"
      "}, %32, %33, add, 1, 1, 0, 0;\n}"
      : KB_R32(0)
      : "l"(a), "l"(b), "r"(add));
}

// d [64, 64] += a [64, 16] b [16, 64], a in registers as by mma.sync, b columns_operand()
__device__ inline void multiply_columns(float (&d)[32], const uint32_t (&a)[4], uint64_t b) {
  asm volatile(
      "wgmma.mma_async.sync.aligned.m64n64k16.f32.bf16.bf16 {"
      "%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, %16, %17, %18, %19, %20, %21, %22, "
      "%23, %24, %25, %26, %27, %28, %29, %30, %31"
      "}, {%32, %33, %34, %35}, %36, 1, 1, 1, 1;"
      : KB_R32(0)
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b));
}

// d [64, 128] = a [64, 16] b [128, 16]^T (+ d, if add), both rows_operand()
__device__ inline void multiply_rows(float (&d)[64], uint64_t a, uint64_t b, int add) {
  asm volatile(
      "{\n.reg .pred add;\nsetp.ne.b32 add, %66, 0;\n"
      "wgmma.mma_async.sync.aligned.m64n128k16.f32.bf16.bf16 {"
      "%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, %16, %17, %18, %19, %20, %21, %22, "
      "%23, %24, %25, %26, %27, %28, %29, %30, %31, %32, %33, %34, %35, %36, %37, %38, %39, %40, %41, %42, %43, "
      "%44, %45, %46, %47, %48, %49, %50, %51, %52, %53, %54, %55, %56, %57, %58, %59, %60, %61, %62, %63"
      "}, %64, %65, add, 1, 1, 0, 0;\n}"
      : KB_R32(0), KB_R32(32)
      : "l"(a), "l"(b), "r"(add));
}

// d [64, 128] += a [64, 16] b [16, 128], a in registers as by mma.sync, b columns_operand()
__device__ inline void multiply_columns(float (&d)[64], const uint32_t (&a)[4], uint64_t b) {
  asm volatile(
      "wgmma.mma_async.sync.aligned.m64n128k16.f32.bf16.bf16 {"
      "%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, %16, %17, %18, %19, %20, %21, %22, "
      "%23, %24, %25, %26, %27, %28, %29, %30, %31, %32, %33, %34, %35, %36, %37, %38, %39, %40, %41, %42, %43, "
      "%44, %45, %46, %47, %48, %49, %50, %51, %52, %53, %54, %55, %56, %57, %58, %59, %60, %61, %62, %63"
      "}, {%64, %65, %66, %67}, %68, 1, 1, 1, 1;"
      : KB_R32(0), KB_R32(32)
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b));
}

// d [64, 192] += a [64, 16] b [16, 192], a in registers as by mma.sync, b columns_operand()
__device__ inline void multiply_columns(float (&d)[96], const uint32_t (&a)[4], uint64_t b) {
  asm volatile(
      "wgmma.mma_async.sync.aligned.m64n192k16.f32.bf16.bf16 {"
      "%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, %16, %17, %18, %19, %20, %21, %22, "
      "%23, %24, %25, %26, %27, %28, %29, %30, %31, %32, %33, %34, %35, %36, %37, %38, %39, %40, %41, %42, %43, "
      "%44, %45, %46, %47, %48, %49, %50, %51, %52, %53, %54, %55, %56, %57, %58, %59, %60, %61, %62, %63, %64, "
      "%65, %66, %67, %68, %69, %70, %71, %72, %73, %74, %75, %76, %77, %78, %79, %80, %81, %82, %83, %84, %85, "
      "%86, %87, %88, %89, %90, %91, %92, %93, %94, %95"
      "}, {%96, %97, %98, %99}, %100, 1, 1, 1, 1;"
      : KB_R32(0), KB_R32(32), KB_R32(64)
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b));
}
#undef KB_R4
#undef KB_R16
#undef KB_R32
// clang-format on

}  // namespace kb::cuda
