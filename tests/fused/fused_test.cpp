// Graphs run node by node on the device, as they are and after the pass `fuse`. In f32 the bits must be equal: a step is
// computed as the kernel of its op computes it. In bf16 a value is rounded where it leaves the group and not at every step,
// so results differ by the roundings that are left out; both are compared with f32 then.
#include <gtest/gtest.h>

#include <map>

#include "fused_kernels.h"
#include "nvrtc_library.h"
#include "pointwise_kernels.h"
#include "tests/passes/fixture.h"
#include "tests/support/device_call.h"

namespace kitbash {
namespace {

using kbtest::Array;
using test::Bench;

template <class... K>
std::map<std::string, const kb_kernel*> by_op() {
  return {{K::Op::name, kb::kernel_table<K>()}...};
}
const kb_kernel* kernel_of(const std::string& op) {
  namespace e = kb::cuda::element;
  static const auto all =
      by_op<e::AffineKernel, e::ExpKernel, e::LogKernel, e::SigmoidKernel, e::TanhKernel, e::SoftplusKernel,
            e::RsqrtKernel, e::SqrtKernel, e::SinKernel, e::CosKernel, e::ErfKernel, e::FloorKernel, e::IsFiniteKernel,
            e::AddKernel, e::SubKernel, e::MulKernel, e::DivKernel, e::MinimumKernel, e::MaximumKernel, e::LessKernel,
            e::CastKernel, kb::cuda::FusedKernel>();
  return all.at(op);
}

class Runner {
 public:
  explicit Runner(const Graph& g) : g_(g), at_(g.values.size()) {}
  void feed(const std::string& name, const Array& a) { at_[g_.inputs.at(name)] = a; }
  void run(const std::vector<NodeId>& order) {
    for (NodeId id : order) step(g_.nodes[id]);
  }
  const Array& operator[](ValueId v) const { return at_[v]; }

 private:
  Array like(ValueId v) const {
    Array a;
    a.type = g_.type(v);
    a.bytes.resize(size_t(kb::elements(a.type)) * Array::width(a.type.dtype));
    return a;
  }
  void step(const Node& n) {
    if (n.kind != NodeKind::op) return;
    std::vector<Array> out;
    for (ValueId v : n.out) out.push_back(like(v));
    if (n.traits() & KB_VIEW) {
      out[0].bytes = at_[n.in[0]].bytes;
    } else if (n.is("fill")) {
      for (int64_t i = 0; i < out[0].size(); ++i) out[0].set(i, n.attr[1].v.f);
    } else if (n.is("sum") || n.is("sum_to")) {  // over the last axis, in double
      const Array& x = at_[n.in[0]];
      const int64_t width = x.size() / out[0].size();
      for (int64_t i = 0; i < out[0].size(); ++i) {
        double s = 0;
        for (int64_t k = 0; k < width; ++k) s += x.at(i * width + k);
        out[0].set(i, s);
      }
    } else if (n.is("broadcast")) {
      const Array& x = at_[n.in[0]];
      for (int64_t i = 0; i < out[0].size(); ++i) {
        int64_t rest = i, from = 0, step = 1;
        for (int d = 0; d < out[0].type.rank; ++d) {
          const int64_t size = out[0].type.shape[out[0].type.rank - 1 - d];
          const int64_t mine = d < x.type.rank ? x.type.shape[x.type.rank - 1 - d] : 1;
          from += (mine > 1 ? rest % size : 0) * step;
          step *= mine, rest /= size;
        }
        out[0].set(i, x.at(from));
      }
    } else {
      std::vector<const Array*> in;
      for (ValueId v : n.in) in.push_back(&at_[v]);
      kbtest::run_device(kernel_of(n.op->name), {n.attr, n.attr + n.n_attr}, in, out);
    }
    for (size_t o = 0; o < n.out.size(); ++o) at_[n.out[o]] = out[o];
  }
  const Graph& g_;
  std::vector<Array> at_;
};

struct Case {
  Bench bench;
  std::unique_ptr<Graph> g;
  std::vector<std::pair<std::string, Array>> feeds;
  kb::Builder b;
  uint32_t compute;
  explicit Case(uint32_t dtype) : g(bench.graph(KB_TRAIN, dtype)), b(g->builder()), compute(dtype) {}
  kb::Value input(const std::string& name, const kb::Shape& s, uint32_t dtype, double scale = 1) {
    feeds.emplace_back(name, kbtest::normal(dtype, s, 17 + feeds.size(), scale));
    kb_type t = feeds.back().second.type;
    return {&b, g->input(name, t)};
  }
  // Results of the graph as it is, and fused. The number of fused nodes.
  int64_t run(std::vector<Array>& plain, std::vector<Array>& fused) {
    const std::vector<NodeId> order = schedule(*g);
    Runner r(*g);
    for (auto& [name, a] : feeds) r.feed(name, a);
    r.run(order);
    const std::vector<NodeId> now = fuse(*g, order);
    Runner f(*g);
    for (auto& [name, a] : feeds) f.feed(name, a);
    f.run(now);
    for (const auto& [name, v] : g->outputs) plain.push_back(r[v]), fused.push_back(f[v]);
    return std::count_if(now.begin(), now.end(), [&](NodeId id) { return g->nodes[id].is("fused"); });
  }
};

double worst = 0;
// groups: fused nodes that there must be; below 0: any.
void expect_equal(Case& c, int64_t groups, double tolerance, const std::string& what) {
  std::vector<Array> plain, fused;
  const int64_t n = c.run(plain, fused);
  if (groups >= 0) {
    EXPECT_EQ(n, groups) << what;
  }
  for (size_t i = 0; i < plain.size(); ++i) {
    if (tolerance == 0) {
      EXPECT_EQ(plain[i].bytes, fused[i].bytes)
          << what << ", output " << i << ", error " << kbtest::relative_error(fused[i], plain[i]);
    } else {
      const double e = kbtest::relative_error(fused[i], plain[i]);
      worst = std::max(worst, e);
      EXPECT_LE(e, tolerance) << what << ", output " << i;
    }
  }
}

#define KB_NEEDS_NVRTC() \
  KB_NEEDS_DEVICE();     \
  if (!kb::cuda::nvrtc_missing().empty()) GTEST_SKIP() << kb::cuda::nvrtc_missing()

TEST(Fused, HasTheBitsOfSingleKernelsInF32) {
  KB_NEEDS_NVRTC();
  for (int64_t rows : {1, 3, 64})
    for (int64_t width : {1, 5, 8, 40, 130}) {
      Case c(KB_F32);
      const kb::Value x = c.input("x", {rows, width}, KB_F32), y = c.input("y", {rows, width}, KB_F32, 5);
      const kb::Value row = c.input("row", {width}, KB_F32), column = c.input("column", {rows, 1}, KB_F32);
      const kb::Value s = c.input("s", {}, KB_F32);
      kb::Builder& b = c.b;
      const kb::Value u = b.exp(x) * row + column, p = b.softplus(y) / (b.tanh(u) + 2.0) - s;
      const kb::Value q = b.sqrt(b.maximum(p, b.fill({rows, width}, 0.01))) * b.rsqrt(x * x + 1.0);
      const kb::Value r =
          b.erf(q) + b.sin(y) * b.cos(y) + b.emit("floor", {y}) + b.log(b.exp(x) + 1.0) + b.sigmoid(-3.0 * y);
      c.g->output("a", r.id);
      c.g->output("b", (b.minimum(r, p) * b.less(x, row)).id);
      c.g->output("c", u.id);
      c.g->output("d", b.is_finite(r / (x - x)).id);
      expect_equal(c, 1, 0, kb::text(rows, " x ", width));
    }
}

TEST(Fused, HasTheBitsOfSingleKernelsOverBroadcastsAndReshapes) {
  KB_NEEDS_NVRTC();
  int64_t groups = 0;
  for (uint32_t seed = 0; seed < 60; ++seed) {
    std::mt19937 random(seed);
    auto below = [&](size_t n) { return std::uniform_int_distribution<size_t>(0, n - 1)(random); };
    Case c(KB_F32);
    kb::Builder& b = c.b;
    const int64_t K = seed % 3 ? 16 : 6;
    const std::vector<kb::Shape> small{{4, K}, {4, 1}, {K}, {5, 1, 1}, {1, 4, 1}, {}, {5, 1, K}, {1}};
    kb::Values operands, flat;
    for (size_t i = 0; i < small.size(); ++i) operands.push_back(c.input("s" + std::to_string(i), small[i], KB_F32));
    for (const kb::Shape& s : {kb::Shape{4 * K}, {5, 1}, {1, 1}})
      flat.push_back(c.input("f" + std::to_string(flat.size()), s, KB_F32));
    kb::Values pool{c.input("x", {5, 4, K}, KB_F32), c.input("y", {5, 4, K}, KB_F32)};
    for (size_t k = 0; k < 4 + seed % 12; ++k) {
      const kb::Value a = pool[below(pool.size())], d = pool[below(pool.size())];
      switch (below(7)) {
        case 0:
          pool.push_back(b.sigmoid(a));
          break;
        case 1:
          pool.push_back(b.tanh(a) * d);
          break;
        case 2:
          pool.push_back(a + operands[below(operands.size())]);
          break;
        case 3:
          pool.push_back(b.reshape(b.reshape(a, {5, 4 * K}) * flat[below(flat.size())], {5, 4, K}));
          break;
        case 4:
          pool.push_back(b.maximum(a, b.fill({5, 4, K}, 0.25)));
          break;
        case 5:
          pool.push_back(a - b.broadcast(operands[below(operands.size())], {5, 4, K}));
          break;
        default:
          pool.push_back(1.5 * a - d);
          break;
      }
    }
    for (size_t i = 2; i < pool.size(); ++i)
      if (i + 1 == pool.size() || !below(4)) c.g->output("o" + std::to_string(i), pool[i].id);
    std::vector<Array> plain, fused;
    groups += c.run(plain, fused);
    for (size_t i = 0; i < plain.size(); ++i)
      EXPECT_EQ(plain[i].bytes, fused[i].bytes)
          << "seed " << seed << ", output " << i << ", error " << kbtest::relative_error(fused[i], plain[i]);
  }
  EXPECT_GT(groups, 30);
}

kb::Value swiglu(kb::Builder& b, kb::Value gate, kb::Value up) { return gate * b.sigmoid(gate) * up; }

TEST(Fused, ComputesGatedUnitsInBf16NoWorseThanSingleKernels) {
  KB_NEEDS_NVRTC();
  for (bool wide : {false, true}) {
    Array exact;
    double errors[2] = {};
    for (uint32_t dtype : {KB_F32, KB_BF16}) {
      Case c(dtype);
      const kb::Shape s{33, 264};
      kb::Value gate = c.input("gate", s, KB_BF16, 2), up = c.input("up", s, KB_BF16);
      if (dtype == KB_F32) gate = c.b.cast(gate, KB_F32), up = c.b.cast(up, KB_F32);
      if (wide) gate = c.b.wide(gate), up = c.b.wide(up);
      kb::Value y = swiglu(c.b, gate, up);
      if (wide) y = c.b.narrow(y);
      c.g->output("y", y.id);
      std::vector<Array> plain, fused;
      EXPECT_EQ(c.run(plain, fused), 1);
      if (dtype == KB_F32)
        exact = plain[0];
      else
        errors[0] = kbtest::relative_error(plain[0], exact), errors[1] = kbtest::relative_error(fused[0], exact);
    }
    printf("swiglu%s in bf16: single kernels %.2e, fused %.2e\n", wide ? ", wide inside," : "", errors[0], errors[1]);
    EXPECT_LE(errors[1], errors[0] * 1.05);
    EXPECT_LE(errors[1], 2.5e-3);
  }
}

TEST(Fused, TakesIntegersThroughACast) {
  KB_NEEDS_NVRTC();
  Case c(KB_F32);
  Array ids = kbtest::array(KB_I32, {40});
  for (int64_t i = 0; i < 40; ++i) ids.set(i, double(i * 7 % 11 - 3));
  c.feeds.emplace_back("ids", ids);
  const kb::Value x{&c.b, c.g->input("ids", ids.type)}, w = c.input("w", {40}, KB_F32);
  c.g->output("y", (c.b.maximum(c.b.cast(x, KB_F32), 0.0 * w) * w).id);
  expect_equal(c, 1, 0, "ids");
}

// Sums over rows: in another order than the kernel of sum.
TEST(Fused, ComputesNormsAndGradientsOfRowWeights) {
  KB_NEEDS_NVRTC();
  for (int64_t width : {2, 7, 40, 128, 512, 1000})
    for (int64_t rows : {1, 5, 37}) {
      Case c(KB_F32);
      kb::Builder& b = c.b;
      const kb::Value x = c.input("x", {rows, 3, width}, KB_F32), y = c.input("y", {rows, 3, width}, KB_F32);
      const kb::Value weight = c.input("weight", {rows, 3, 1}, KB_F32), row = c.input("row", {width}, KB_F32);
      const kb::Value r = b.rsqrt(b.sum(x * x, -1, true) + 1e-6), n = x * r * row;
      c.g->output("n", n.id), c.g->output("r", r.id);
      const kb::Value s = b.sum_to(n * y, {rows, 3, 1});
      c.g->output("d", ((n - s * weight) * b.sigmoid(s)).id);
      c.g->output("s", b.reshape(b.sum(b.reshape(b.exp(n), {rows * 3, width}), -1, false), {rows, 3, 1}).id);
      expect_equal(c, -1, 2e-6, kb::text(rows, " x 3 x ", width));
    }
  printf("largest difference of sums over rows %.2e\n", worst);
  worst = 0;
}

TEST(Fused, SumsASingleRow) {
  KB_NEEDS_NVRTC();
  Case c(KB_F32);
  const kb::Value x = c.input("x", {1, 8}, KB_F32);
  c.g->output("y", (x / (c.b.sum(x, 1, true) + 1e-20)).id);
  expect_equal(c, -1, 2e-6, "one row");
}

TEST(Fused, StaysWithinRoundingInBf16) {
  KB_NEEDS_NVRTC();
  for (int64_t width : {7, 40, 128}) {
    Case c(KB_BF16);
    kb::Builder& b = c.b;
    const kb::Value x = c.input("x", {19, width}, KB_BF16), y = c.input("y", {19, width}, KB_BF16);
    const kb::Value row = c.input("row", {width}, KB_BF16), w = c.input("w", {width}, KB_F32);
    const kb::Value h = b.tanh(x * row) + y;
    c.g->output("h", h.id);
    c.g->output("g", (b.wide(b.sigmoid(h)) * w).id);
    c.g->output("k", b.narrow(b.softplus(b.wide(y)) * w).id);
    expect_equal(c, 1, 1e-2, kb::text("width ", width));
  }
  printf("largest difference in bf16 %.2e\n", worst);
}

}  // namespace
}  // namespace kitbash
