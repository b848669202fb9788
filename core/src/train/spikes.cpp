#include "train/spikes.h"

#include <cmath>

namespace kitbash {

double SpikeRule::limit(const std::vector<double>& v) {
  if (v.size() < warm) return 0;
  double mean = 0, square = 0;
  for (double x : v) mean += x / double(v.size());
  for (double x : v) square += (x - mean) * (x - mean) / double(v.size());
  return mean + sigmas * std::sqrt(square);
}

void SpikeRule::accept(double loss, double norm) {
  if (!std::isfinite(loss) || !std::isfinite(norm)) return;
  loss_.push_back(loss), norm_.push_back(norm);
  if (loss_.size() > window) loss_.erase(loss_.begin()), norm_.erase(norm_.begin());
}

void SpikeRule::restore(std::vector<double> losses, std::vector<double> norms) {
  loss_ = std::move(losses), norm_ = std::move(norms);
}

}  // namespace kitbash
