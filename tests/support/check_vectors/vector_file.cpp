#include "vector_file.h"

#include <algorithm>
#include <cmath>
#include <filesystem>

#include "base/safetensors.h"
#include "kitbash/error.h"

namespace check_vectors {

double norm(const Array& a) {
  double s = 0;
  for (double v : a.v) s += v * v;
  return std::sqrt(s);
}

VectorFile::VectorFile(const std::string& path)
    : path_(path),
      name_(std::filesystem::path(path).stem().string()),
      tensors_(load(path)),
      metadata_(kitbash::SafetensorsFile::open(path).metadata()) {}

const Array& VectorFile::at(const std::string& tensor) const {
  const auto i = tensors_.find(tensor);
  if (i == tensors_.end()) kb::fail("[", path_, "] has no tensor '", tensor, "', which its rule needs");
  return i->second;
}

double VectorFile::largest_gradient() const {
  double largest = 0;
  for (const auto& [name, a] : tensors_)
    if (name.starts_with("grad.")) largest = std::max(largest, norm(a));
  return largest;
}

std::string VectorFile::text(const std::string& key, const std::string& fallback) const {
  used_.insert(key);
  const auto i = metadata_.find(key);
  return i == metadata_.end() ? fallback : i->second;
}

double VectorFile::number(const std::string& key, double fallback) const {
  const std::string s = text(key, "");
  if (s.empty()) return fallback;
  try {
    size_t end = 0;
    const double v = std::stod(s, &end);
    if (end == s.size()) return v;
  } catch (const std::exception&) {  // reported below, with the value
  }
  kb::fail("[", path_, "] setting '", key, "' must be a number but got '", s, "'");
}

int64_t VectorFile::agreed(const std::string& key, int64_t by_shape) const {
  const double v = number(key, double(by_shape));
  if (v != double(by_shape)) kb::fail("[", path_, "] setting '", key, "' is ", v, " but the shapes give ", by_shape);
  return by_shape;
}

int64_t VectorFile::integer(const std::string& key) const {
  const double v = number(key, NAN);
  if (!(v == std::floor(v)))
    kb::fail("[", path_, "] setting '", key, "' must be in the header, and whole, but got ", v);
  return int64_t(v);
}

std::vector<std::string> VectorFile::unused() const {
  std::vector<std::string> left;
  for (const auto& [key, unused] : metadata_)
    if (!used_.count(key) && key != "what" && key != "note") left.push_back(key);
  return left;
}

Array VectorFile::borders(int64_t batch, int64_t time) const {
  Array cu;
  cu.integer = true;
  cu.v.push_back(0);
  for (int64_t b = 0; b < batch; ++b) {
    if (!has("in.cu_seqlens")) {
      cu.v.push_back(double((b + 1) * time));
      continue;
    }
    const Array& in = at("in.cu_seqlens");  // the same borders in every row of the batch
    for (size_t i = 1; i < in.v.size(); ++i) cu.v.push_back(double(b * time) + in.v[i]);
  }
  cu.shape = {int64_t(cu.v.size())};
  return cu;
}

}  // namespace check_vectors
