#include "lt_product.h"

#include <utility>

#include "product_errors.h"

namespace kb::cuda {
namespace {

constexpr uint64_t kWorkspace = uint64_t(32) << 20;  // what cuBLAS asks for on Hopper
constexpr uint32_t kAlignment = 16;                  // of operands, in bytes: rows of an arena are aligned no further
constexpr uint64_t kWorkspaceAlignment = 256;        // an arena gives 64; cuBLASLt refuses less than this

class Layout {
 public:
  Layout() = default;
  Layout(const Layout&) = delete;
  ~Layout() {
    if (l_) cublasLtMatrixLayoutDestroy(l_);
  }
  // Column-major rows x cols without gaps; `stride` elements from one entry of the batch to the next.
  void make(cudaDataType_t type, int64_t rows, int64_t cols, int64_t batch, int64_t stride) {
    check(cublasLtMatrixLayoutCreate(&l_, type, uint64_t(rows), uint64_t(cols), rows), "a matrix layout");
    if (batch == 1) return;
    const auto count = int32_t(batch);
    check(cublasLtMatrixLayoutSetAttribute(l_, CUBLASLT_MATRIX_LAYOUT_BATCH_COUNT, &count, sizeof count),
          "batch count");
    check(cublasLtMatrixLayoutSetAttribute(l_, CUBLASLT_MATRIX_LAYOUT_STRIDED_BATCH_OFFSET, &stride, sizeof stride),
          "batch stride");
  }
  cublasLtMatrixLayout_t get() const { return l_; }

 private:
  cublasLtMatrixLayout_t l_ = nullptr;
};

class Preference {
 public:
  Preference() { check(cublasLtMatmulPreferenceCreate(&p_), "a preference"); }
  Preference(const Preference&) = delete;
  ~Preference() { cublasLtMatmulPreferenceDestroy(p_); }
  template <class T>
  void set(cublasLtMatmulPreferenceAttributes_t a, T v) {
    check(cublasLtMatmulPreferenceSetAttribute(p_, a, &v, sizeof v), "a preference");
  }
  cublasLtMatmulPreference_t get() const { return p_; }

 private:
  cublasLtMatmulPreference_t p_ = nullptr;
};

// Which of what the heuristic names, best first, to take. It likes tiles of 256 x 128, on which both halves of a block write their results
// at once and nobody multiplies meanwhile. With a short inner axis that costs more than smaller tiles, which take turns: on an H200
// 6 to 17 % of the time (plugins/backend_cuda/README.md). Chosen from shapes alone, so that bits repeat.
const cublasLtMatmulHeuristicResult_t& choose(const cublasLtMatmulHeuristicResult_t* found, int n, int64_t k,
                                              bool adds) {
  constexpr int64_t kShort = 2048;
  constexpr float kWaves = 1.5f;  // of the first: fewer, and a last wave of small tiles may cost what they gain
  if (k > kShort || found[0].wavesCount < kWaves) return found[0];
  const auto get = [](const cublasLtMatmulHeuristicResult_t& h, cublasLtMatmulAlgoConfigAttributes_t a) {
    int v = 0;
    size_t bytes = 0;
    return cublasLtMatmulAlgoConfigGetAttribute(&h.algo, a, &v, sizeof v, &bytes) == CUBLAS_STATUS_SUCCESS ? v : -1;
  };
  const int first = get(found[0], CUBLASLT_ALGO_CONFIG_TILE_ID);
  if (first != CUBLASLT_MATMUL_TILE_256x128 && first != CUBLASLT_MATMUL_TILE_128x256) return found[0];
  int want[2] = {CUBLASLT_MATMUL_TILE_128x160, CUBLASLT_MATMUL_TILE_128x128};
  if (adds) std::swap(want[0], want[1]);
  for (const int tile : want)
    for (int i = 1; i < n; ++i)
      if (get(found[i], CUBLASLT_ALGO_CONFIG_TILE_ID) == tile && get(found[i], CUBLASLT_ALGO_CONFIG_SPLITK_NUM) <= 1)
        return found[i];
  return found[0];
}

}  // namespace

struct LtProduct::State {
  cublasLtHandle_t handle;
  cublasLtMatmulDesc_t desc = nullptr;
  Layout left, right, result;
  cublasLtMatmulAlgo_t algo{};
  ~State() {
    if (desc) cublasLtMatmulDescDestroy(desc);
  }
};
LtProduct::~LtProduct() = default;

// cuBLASLt is column-major: what it sees is y' [n, m] = b' [n, k] a' [k, m], each a transpose that costs nothing.
LtProduct::LtProduct(const Product& p, bool bf16, bool f32_result, bool adds, cublasLtHandle_t handle)
    : state_(std::make_unique<State>()) {
  State& s = *state_;
  s.handle = handle;
  const cudaDataType_t type = bf16 ? CUDA_R_16BF : CUDA_R_32F, result = f32_result ? CUDA_R_32F : type;
  check(cublasLtMatmulDescCreate(&s.desc, CUBLAS_COMPUTE_32F, CUDA_R_32F), "a matmul description");
  const cublasOperation_t left = p.tb ? CUBLAS_OP_T : CUBLAS_OP_N, right = p.ta ? CUBLAS_OP_T : CUBLAS_OP_N;
  check(cublasLtMatmulDescSetAttribute(s.desc, CUBLASLT_MATMUL_DESC_TRANSA, &left, sizeof left), "transposition of b");
  check(cublasLtMatmulDescSetAttribute(s.desc, CUBLASLT_MATMUL_DESC_TRANSB, &right, sizeof right),
        "transposition of a");
  s.left.make(type, p.tb ? p.k : p.n, p.tb ? p.n : p.k, p.batch, p.b_batched ? p.k * p.n : 0);
  s.right.make(type, p.ta ? p.m : p.k, p.ta ? p.k : p.m, p.batch, p.m * p.k);
  s.result.make(result, p.n, p.m, p.batch, p.m * p.n);
  Preference want;
  want.set(CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, size_t(kWorkspace));
  // Split sums meet in fp32 in the workspace: in the result's type they would lose bits.
  want.set(CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK, uint32_t(CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE));
  for (auto a : {CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES,
                 CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES})
    want.set(a, kAlignment);
  constexpr int kAsked = 8;
  cublasLtMatmulHeuristicResult_t found[kAsked] = {};
  int n = 0;
  check(cublasLtMatmulAlgoGetHeuristic(handle, s.desc, s.left.get(), s.right.get(), s.result.get(), s.result.get(),
                                       want.get(), kAsked, found, &n),
        "the search for an algorithm");
  if (n < 1)
    fail("cuBLASLt must have an algorithm for ", p.batch, " products of ", p.m, "x", p.k, " by ", p.k, "x", p.n,
         " but has none");
  s.algo = (bf16 ? choose(found, n, p.k, adds) : found[0]).algo;
}

void LtProduct::run(const void* a, const void* b, void* y, bool add, void* room, cudaStream_t stream) const {
  const State& s = *state_;
  const float one = 1, keep = add ? 1 : 0;
  const auto aligned = (uintptr_t(room) + kWorkspaceAlignment - 1) / kWorkspaceAlignment * kWorkspaceAlignment;
  check(cublasLtMatmul(s.handle, s.desc, &one, b, s.left.get(), a, s.right.get(), &keep, y, s.result.get(), y,
                       s.result.get(), &s.algo, reinterpret_cast<void*>(aligned), kWorkspace, stream),
        "cublasLtMatmul");
}

}  // namespace kb::cuda
