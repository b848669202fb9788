// spikes.h: when a step is refused. A loss or gradient norm beyond mean + 6 sigma of the last 128 accepted steps is a spike
// (active after 64 of them). Non-finite values never enter the window. The bounds are inputs of apply, so that the decision is
// made on the device and the same on every rank.
#pragma once
#include <cstddef>
#include <cstdint>
#include <vector>

namespace kitbash {

class SpikeRule {
 public:
  static constexpr size_t window = 128, warm = 64;
  static constexpr double sigmas = 6;

  // 0 while the window is cold: no limit.
  double loss_limit() const { return limit(loss_); }
  double norm_limit() const { return limit(norm_); }
  void accept(double loss, double norm);
  const std::vector<double>& losses() const { return loss_; }
  const std::vector<double>& norms() const { return norm_; }
  void restore(std::vector<double> losses, std::vector<double> norms);

 private:
  static double limit(const std::vector<double>& v);
  std::vector<double> loss_, norm_;  // oldest first
};

}  // namespace kitbash
