#include "routing.h"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <set>

#include "kitbash/error.h"

namespace check_vectors {
namespace {

double biased(const Array& scores, const Array& bias, int64_t token, int64_t expert) {
  const double b = bias.v.empty() ? 0 : bias.v[size_t(expert)];
  return scores.v[size_t(token * scores.dim(1) + expert)] + b;
}

}  // namespace

Array best_experts(const Array& scores, const Array& bias, int64_t active) {
  const int64_t tokens = scores.dim(0), experts = scores.dim(1);
  if (active > experts) kb::fail("[check_vectors] ", active, " active experts of ", experts);
  Array ids{{tokens, active}, {}, true};
  std::vector<int64_t> order(static_cast<size_t>(experts));
  for (int64_t t = 0; t < tokens; ++t) {
    std::iota(order.begin(), order.end(), 0);
    std::stable_sort(order.begin(), order.end(),
                     [&](int64_t a, int64_t b) { return biased(scores, bias, t, a) > biased(scores, bias, t, b); });
    for (int64_t k = 0; k < active; ++k) ids.v.push_back(double(order[size_t(k)]));
  }
  return ids;
}

Array settle_ties(const Array& got, const Array& scores, const Array& bias, double tolerance) {
  const int64_t tokens = scores.dim(0), experts = scores.dim(1), active = got.dim(-1);
  if (int64_t(got.v.size()) != tokens * active) return got;  // the comparison says so
  const Array right = best_experts(scores, bias, active);
  Array settled = got;
  for (int64_t t = 0; t < tokens; ++t) {
    const auto at = [&](int64_t k) { return size_t(t * active + k); };
    std::set<double> distinct;
    bool rounding = true;
    for (int64_t k = 0; k < active; ++k) {
      const double id = got.v[at(k)];
      rounding = rounding && id >= 0 && id < double(experts) && distinct.insert(id).second &&
                 std::fabs(biased(scores, bias, t, int64_t(id)) - biased(scores, bias, t, int64_t(right.v[at(k)]))) <=
                     tolerance;
    }
    if (rounding)
      for (int64_t k = 0; k < active; ++k) settled.v[at(k)] = right.v[at(k)];
  }
  return settled;
}

Array loads(const Array& ids, int64_t experts) {
  Array load{{experts}, std::vector<double>(size_t(experts), 0.0), true};
  for (double id : ids.v) {
    if (!(id >= 0 && id < double(experts))) kb::fail("expert id ", id, " is not in 0 .. ", experts - 1);
    load.v[size_t(id)] += 1;
  }
  return load;
}

}  // namespace check_vectors
