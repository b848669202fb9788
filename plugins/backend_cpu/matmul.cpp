#include "matmul.h"

#include "gemm.h"
#include "onednn.h"
#include "shares.h"
#include "team.h"

namespace kb::cpu {
namespace {

constexpr int64_t kFewRows = 4;  // oneDNN's bits change with the thread count below this, and dot products are as fast

// The product for `rows` of axis 0 of a. One b for all of a, with rows contiguous, is a single product.
DenseProduct product_of(const Call& c, const ops::Matmul& op, int64_t rows) {
  const kb_type &a = c.in(0), &b = c.in(1), &y = c.out(0);
  DenseProduct p{
      1, y.shape[y.rank - 2], y.shape[y.rank - 1], c.dim(0, op.ta ? -2 : -1), op.ta, op.tb, b.rank > 2, c.adds(0)};
  for (int i = 1; i < a.rank - 2; ++i) p.batch *= a.shape[i];
  if (a.rank > 2) {
    p.batch *= rows;
  } else if (op.ta) {
    p.k = rows;
  } else {
    p.m = rows;
  }
  if (b.rank == 2 && !op.ta) p.m *= p.batch, p.batch = 1;
  return p;
}

// Rows past those in use are zero and the host clears the output's, so a few more may be multiplied: rounding keeps the
// number of primitives a node needs at 16 or fewer, however its row count moves.
int64_t rounded(int64_t rows, int64_t bound) {
  const int64_t step = std::max<int64_t>(64, (bound + 15) / 16);
  return std::min(bound, (rows + step - 1) / step * step);
}

template <class T>
void clear(const Call& c, const DenseProduct& p) {
  if (!p.add) std::fill_n(c.put<T>(0), p.batch * p.m * p.n, T(0));
}

// Rows and columns in blocks, each block on one thread.
template <class T>
void run_blocked(const Call& c, const DenseProduct& p) {
  const T *a = c.get<T>(0), *b = c.get<T>(1);
  T* y = c.put<T>(0);
  // Blocks may depend on the team: a number's sum runs over k in one order whatever block it is in.
  const int64_t even = (p.batch * p.m + c.threads() - 1) / c.threads();
  const int64_t rows = std::clamp<int64_t>((even + 7) / 8 * 8, 8, kBlockRows);
  const int64_t cols = p.batch * p.m >= 8 * c.threads() ? std::max<int64_t>(p.n, 1) : kBlockWidth;
  const int64_t down = (p.m + rows - 1) / rows, across = (p.n + cols - 1) / cols;
  const std::vector<double> cost(size_t(p.batch * down * across),
                                 double(rows) * double(std::min(cols, p.n)) * double(p.k));
  share(c, cost, [&](int64_t first, int64_t last, int32_t thread) {
    T* scratch = c.workspace<T>() + thread * kBlockScratch;
    for (int64_t u = first; u < last; ++u) {
      const int64_t z = u / (down * across), i = u / across % down * rows, j = u % across * cols;
      multiply_blocked<T>({p.m, p.n, p.k, p.ta, p.tb, p.add}, a + z * p.m * p.k,
                          b + (p.b_per_batch ? z * p.k * p.n : 0), y + z * p.m * p.n, i, std::min(p.m, i + rows), j,
                          std::min(p.n, j + cols), scratch);
    }
  });
}

bool is_empty(const DenseProduct& p) { return !p.batch || !p.m || !p.n || !p.k; }

// m <= 4, bound by reading b once: columns over the team. Not for ta with tb, where no side lies well.
bool few_rows(const DenseProduct& p) { return p.m <= kFewRows && !(p.ta && p.tb); }
template <class T>
void run_few_rows(const Call& c, const DenseProduct& p) {
  constexpr int64_t kColumns = 64;
  const int64_t pieces = (p.n + kColumns - 1) / kColumns;
  const std::vector<double> cost(size_t(p.batch * pieces), double(p.m) * double(std::min(p.n, kColumns)) * double(p.k));
  share(c, cost, [&](int64_t first, int64_t last, int32_t) {
    for (int64_t u = first; u < last;) {
      const int64_t z = u / pieces, end = std::min(last, (z + 1) * pieces);  // the pieces of one batch entry together
      const int64_t j = (u - z * pieces) * kColumns, n = std::min(p.n, (end - z * pieces) * kColumns) - j;
      const T *a = c.get<T>(0) + z * p.m * p.k, *b = c.get<T>(1) + (p.b_per_batch ? z * p.k * p.n : 0);
      T* y = c.put<T>(0) + z * p.m * p.n + j;
      u = end;
      if (p.tb) {
        multiply_dots(p.m, n, p.k, a, p.k, b + j * p.k, p.k, y, p.n, p.add);
        continue;
      }
      for (int64_t l = 0; l < p.k; l += kBlockDepth)
        multiply(p.m, n, std::min(kBlockDepth, p.k - l),
                 Left<T>{a + (p.ta ? l * p.m : l), p.ta ? 1 : p.k, p.ta ? p.m : 1}, b + l * p.n + j, p.n, y, p.n,
                 p.add || l > 0);
    }
  });
}

}  // namespace

struct MatmulPlan {
  struct Entry {
    DenseProduct product;
    DensePrimitive primitive;
  };
  std::vector<Entry> made;  // latest first

  DensePrimitive& get(const DenseProduct& p) {
    for (size_t i = 0; i < made.size(); ++i)
      if (made[i].product == p) {
        if (i) std::rotate(made.begin(), made.begin() + int64_t(i), made.begin() + int64_t(i) + 1);
        return made.front().primitive;
      }
    if (made.size() == 16) made.pop_back();
    made.insert(made.begin(), Entry{p, DensePrimitive(p)});
    return made.front().primitive;
  }
};
Matmul::Plan::Plan() : state(std::make_unique<MatmulPlan>()) {}
Matmul::Plan::~Plan() = default;

// oneDNN cuts the work by 32-bit counts.
void Matmul::supports(const Call& c, const Op& op) {
  decline_bf16(c, "matmul");
  const DenseProduct p = product_of(c, op, c.dim(0, 0));
  const std::pair<const char*, int64_t> sizes[] = {{"m", p.m}, {"n", p.n}, {"k", p.k}};
  for (const auto& [name, n] : sizes)
    if (n > INT32_MAX)
      fail("[matmul] ", name, " must be at most ", INT32_MAX, " on the cpu but got ", n, "; lower micro_tokens");
}

uint64_t Matmul::workspace(const Call& c, const Op& op) {
  if (c.in(0).dtype == KB_F64) return uint64_t(c.threads() * kBlockScratch) * sizeof(double);
  const DenseProduct p = product_of(c, op, c.dim(0, 0));
  return few_rows(p) || is_empty(p) ? 0 : uint64_t(DensePrimitive::scratch_bytes(p, c.threads()));
}

std::unique_ptr<Matmul::Plan> Matmul::prepare(const Call& c, const Op& op) {
  auto plan = std::make_unique<Plan>();
  const DenseProduct p = product_of(c, op, c.dim(0, 0));
  if (c.in(0).dtype == KB_F32 && !few_rows(p) && !is_empty(p)) {
    use_threads(c.threads());
    plan->state->get(p);
  }
  return plan;
}

void Matmul::launch(const Call& c, const Op& op, Plan& plan) {
  if (!c.wanted(0)) return;
  const kb_type& a = c.in(0);
  const int64_t rows = c.rows(a);
  DenseProduct p = product_of(c, op, rows);
  if (p.batch * p.m * p.n == 0) return;
  floats(a.dtype, [&]<class T>() {
    if (p.k == 0) return clear<T>(c, p);
    if (few_rows(p)) return run_few_rows<T>(c, p);
    if constexpr (std::is_same_v<T, double>) {
      run_blocked<T>(c, p);
    } else {
      use_threads(c.threads());
      if (rows != a.shape[0]) p = product_of(c, op, rounded(rows, a.shape[0]));
      plan.state->get(p).run(c.get<float>(0), c.get<float>(1), c.put<float>(0), c.c->workspace,
                             c.c->workspace ? int64_t(workspace(c, op)) : 0);
    }
  });
}

}  // namespace kb::cpu
