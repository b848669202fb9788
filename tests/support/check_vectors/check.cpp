#include "check.h"

#include <algorithm>
#include <cmath>
#include <cstdio>

namespace check_vectors {

double error_of(const Array& got, const Array& want, double floor) {
  double apart = 0;
  for (size_t i = 0; i < want.v.size(); ++i) apart += (got.v[i] - want.v[i]) * (got.v[i] - want.v[i]);
  apart = std::sqrt(apart);
  if (apart == 0) return 0;
  return apart / std::max(norm(want), floor);  // infinite when all of the file is nought
}

Check::Check(const VectorFile& file, std::string dtype, double limit, bool exact, Tally& tally)
    : file_(file),
      dtype_(std::move(dtype)),
      limit_(limit),
      floor_(1e-6 * file.largest_gradient()),
      exact_(exact),
      tally_(tally) {}

void Check::print(const std::string& tensor, std::optional<double> error, double limit, const std::string& verdict) {
  if (measured_) return;
  char figures[64];
  if (error)
    std::snprintf(figures, sizeof figures, "%9.2e  %7.0e", *error, limit);
  else
    std::snprintf(figures, sizeof figures, "%9s  %7s", "-", "-");
  std::printf("%-26s  %s  %-32s  %s  %s\n", file_.name().c_str(), dtype_.c_str(), tensor.c_str(), figures,
              verdict.c_str());
}

void Check::compare(const std::string& tensor, const Array& got) {
  const Array& want = file_.at(tensor);
  done_.insert(tensor);
  if (measured_) {
    if (got.v.size() == want.v.size()) (*measured_)[tensor] = error_of(got, want, floor_);
    return;
  }
  ++tally_.tensors;
  if (got.v.size() != want.v.size()) {
    ++tally_.failed;
    return print(tensor, {}, limit_,
                 "FAIL: " + std::to_string(got.v.size()) + " elements, wanted " + std::to_string(want.v.size()));
  }
  const bool equal = want.integer && exact_;
  const auto allowed = allowed_.find(tensor);
  const double error = error_of(got, want, floor_),
               limit = equal ? 0 : std::max(limit_, allowed == allowed_.end() ? 0 : times_ * allowed->second);
  const bool ok = error <= limit;  // false for nan
  tally_.failed += !ok;
  print(tensor, error, limit, ok ? "ok" : "FAIL");
}

void Check::compare(const std::string& tensor, const Arrays& got, const std::string& name) {
  const auto i = got.find(name);
  if (i != got.end()) return compare(tensor, i->second);
  done_.insert(tensor);
  if (measured_ || file_.at(tensor).v.empty()) return;  // an empty tensor belongs to a part that the component has not
  ++tally_.tensors, ++tally_.failed;
  print(tensor, {}, limit_, "FAIL: the probe gave no " + name);
}

void Check::compare_same(const Arrays& got, const std::string& prefix) {
  for (const auto& [name, unused] : file_.tensors())
    if (name.starts_with(prefix) && !done_.count(name)) compare(name, got, name);
}

void Check::internal(const std::string& tensor) {
  if (!file_.has(tensor)) return;
  done_.insert(tensor);
  print(tensor, {}, limit_, "internal: not compared");
}

void Check::finish(const std::string& why) {
  if (measured_) return;
  for (const auto& [name, unused] : file_.tensors()) {
    if (done_.count(name) || !(name.starts_with("out.") || name.starts_with("grad."))) continue;
    ++tally_.tensors, ++tally_.failed;
    print(name, {}, limit_, why.empty() ? "FAIL: no rule compares it" : "FAIL: not reached");
  }
}

}  // namespace check_vectors
