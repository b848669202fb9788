// The chunked kernels through the graph against the recurrent one, token by token, and the state across a cut.
#include "lab.h"

namespace kitbash::test {
namespace {

constexpr int64_t H = 2, K = 6, V = 9, most = 130;

struct Inputs {
  Numbers q = normal(most * H * K, 1), k = normal(most * H * K, 2), v = normal(most * H * V, 3),
          z = normal(most * H * K, 4, 3), beta = normal(most * H, 5, 2), s0 = normal(H * K * V, 6);
};
struct Result {
  Numbers o, state;
  std::string kernel;
};

class Kda : public ::testing::TestWithParam<std::string> {
 protected:
  Kda() { bench.load("attention", "kda", {"decay.use=" + GetParam()}); }
  // Tokens [from, to) from the state.
  Result run(int64_t from, int64_t to, const Numbers& state) {
    const int64_t n = to - from;
    Runnable*& r = programs[n];
    if (!r) {
      auto g = bench.graph(KB_EVAL);
      kb::Builder b = g->builder();
      auto in = [&](const char* name, const std::vector<int64_t>& shape, uint32_t dtype = KB_F64) {
        return kb::Value{&b, g->input(name, make_type(dtype, shape))};
      };
      const kb::Value q = in("q", {n, H, K}), k = in("k", {n, H, K}), v = in("v", {n, H, V}), z = in("z", {n, H, K});
      const kb::Value beta = in("beta", {n, H}), s0 = in("s0", {1, H, K, V}), cu = in("cu", {2}, KB_I32);
      const kb::Values y = g->build(*bench.instance, "kda", 1, {q, k, v, z, beta, s0, cu});
      g->output("o", y[0].id), g->output("state", y[1].id);
      r = &bench.ready(std::move(g));
      bench.set("kda.A_log", {0.3, -0.4});
    }
    Program& p = r->program;
    auto feed = [&](const char* name, const Numbers& all, int64_t row) {
      put(p.input(name), p.graph().type(p.graph().inputs.at(name)),
          Numbers(all.begin() + from * row, all.begin() + to * row));
    };
    feed("q", x.q, H * K), feed("k", x.k, H * K), feed("v", x.v, H * V), feed("z", x.z, H * K), feed("beta", x.beta, H);
    put(p.input("s0"), p.graph().type(p.graph().inputs.at("s0")), state);
    static_cast<int32_t*>(p.input("cu"))[0] = 0, static_cast<int32_t*>(p.input("cu"))[1] = int32_t(n);
    p.run();
    Result out;
    out.o = numbers(p.output_type("o"), p.output("o")), out.state = numbers(p.output_type("state"), p.output("state"));
    for (const Choice& c : p.choices())
      if (c.kernel && !std::strcmp(c.kernel->op, "kda")) out.kernel = c.kernel->name;
    return out;
  }
  // The recurrence of README.md in plain loops: the judge of both kernels.
  Result plain() const {
    Result out;
    out.o.resize(size_t(most * H * V)), out.state = x.s0;
    const double a_log[H] = {0.3, -0.4};
    for (int64_t t = 0; t < most; ++t)
      for (int64_t h = 0; h < H; ++h) {
        const double *q = &x.q[size_t((t * H + h) * K)], *k = &x.k[size_t((t * H + h) * K)];
        const double *v = &x.v[size_t((t * H + h) * V)], *z = &x.z[size_t((t * H + h) * K)];
        double *S = &out.state[size_t(h * K * V)], qq = 1e-6, kk = 1e-6;
        for (int64_t i = 0; i < K; ++i) qq += q[i] * q[i], kk += k[i] * k[i];
        const double beta = 1 / (1 + std::exp(-x.beta[size_t(t * H + h)])), a = std::exp(a_log[h]);
        for (int64_t i = 0; i < K; ++i) {
          const double g = GetParam() == "bounded" ? -5 / (1 + std::exp(-a * z[i])) : -a * std::log1p(std::exp(z[i]));
          for (int64_t j = 0; j < V; ++j) S[i * V + j] *= std::exp(g);
        }
        for (int64_t j = 0; j < V; ++j) {
          double e = v[j], o = 0;
          for (int64_t i = 0; i < K; ++i) e -= S[i * V + j] * k[i] / std::sqrt(kk);
          for (int64_t i = 0; i < K; ++i) S[i * V + j] += beta * e * k[i] / std::sqrt(kk);
          for (int64_t i = 0; i < K; ++i) o += S[i * V + j] * q[i] / std::sqrt(qq);
          out.o[size_t((t * H + h) * V + j)] = o / std::sqrt(double(K));
        }
      }
    return out;
  }

  Bench bench;
  Inputs x;
  std::map<int64_t, Runnable*> programs;
};

TEST_P(Kda, ChunkedEqualsRecurrentAtEveryLength) {
  Numbers o, state = x.s0;
  std::vector<Numbers> states;
  for (int64_t t = 0; t < most; ++t) {  // one token a run
    const Result one = run(t, t + 1, state);
    o.insert(o.end(), one.o.begin(), one.o.end());
    states.push_back(state = one.state);
  }
  const Result judge = plain();
  EXPECT_LT(error(o, judge.o), 1e-12);
  EXPECT_LT(error(state, judge.state), 1e-12);
  for (int64_t n = 1; n <= most; ++n) {
    const Result all = run(0, n, x.s0);
    EXPECT_LT(error(all.o, Numbers(o.begin(), o.begin() + n * H * V)), 1e-12) << n << " tokens";
    EXPECT_LT(error(all.state, states[size_t(n - 1)]), 1e-12) << n << " tokens";
    if (n == most) {
      EXPECT_EQ(all.kernel, GetParam() == "bounded" ? "chunk" : "chunk-rescaled");
    }
  }
}

TEST_P(Kda, StateCarriedAcrossACutGivesTheSameNumbers) {
  const Result all = run(0, most, x.s0);
  for (int64_t cut : {1, 15, 16, 17, 64, 65, 129}) {
    const Result first = run(0, cut, x.s0), second = run(cut, most, first.state);
    Numbers o = first.o;
    o.insert(o.end(), second.o.begin(), second.o.end());
    EXPECT_LT(error(o, all.o), 1e-12) << "cut at " << cut;
    EXPECT_LT(error(second.state, all.state), 1e-12) << "cut at " << cut;
  }
}
INSTANTIATE_TEST_SUITE_P(Decays, Kda, ::testing::Values("bounded", "softplus"));

}  // namespace
}  // namespace kitbash::test
