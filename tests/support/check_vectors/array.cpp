#include "array.h"

#include <bit>
#include <cmath>

#include "base/safetensors.h"
#include "base/tensor_values.h"
#include "kitbash/error.h"

namespace check_vectors {

int64_t Array::dim(int axis) const {
  const int rank = int(shape.size()), i = axis < 0 ? axis + rank : axis;
  if (i < 0 || i >= rank) kb::fail("[check_vectors] a tensor of rank ", rank, " has no axis ", axis);
  return shape[size_t(i)];
}

Array scalar(double v) { return {{}, {v}, false}; }

Array reshaped(Array a, std::vector<int64_t> shape) {
  int64_t n = 1;
  for (int64_t d : shape) n *= d;
  if (n != int64_t(a.v.size())) kb::fail("[check_vectors] ", a.v.size(), " elements cannot take a shape of ", n);
  a.shape = std::move(shape);
  return a;
}

Array packed(Array a) {
  const int64_t tokens = a.dim(0) * a.dim(1);
  a.shape.erase(a.shape.begin());
  a.shape[0] = tokens;
  return a;
}

Array row(const Array& a, int64_t index) {
  const auto n = int64_t(a.v.size()) / a.dim(0);
  Array r;
  r.integer = a.integer;
  r.shape.assign(a.shape.begin() + 1, a.shape.end());
  r.v.assign(a.v.begin() + index * n, a.v.begin() + (index + 1) * n);
  return r;
}

Array rounded_to_bf16(Array a) {
  if (a.integer) return a;
  for (double& x : a.v) {
    uint32_t bits = std::bit_cast<uint32_t>(float(x));
    if (std::isfinite(x)) bits += 0x7fff + (bits >> 16 & 1), bits &= 0xffff0000u;
    x = std::bit_cast<float>(bits);
  }
  return a;
}

Arrays load(const std::string& path) {
  const auto file = kitbash::SafetensorsFile::open(path);
  Arrays all;
  for (const auto& [name, t] : file.tensors())
    all[name] = {t.shape, kitbash::tensor_values(t, path + ": " + name), kitbash::is_integer_dtype(t.dtype)};
  return all;
}

void save(const std::string& path, const Arrays& arrays) {
  std::map<std::string, std::vector<int32_t>> integers;
  std::vector<kitbash::TensorToWrite> out;
  for (const auto& [name, a] : arrays) {
    if (a.integer) {
      auto& i = integers[name];
      for (double v : a.v) i.push_back(int32_t(v));
      out.push_back({name, "I32", a.shape, i.data()});
    } else {
      out.push_back({name, "F64", a.shape, a.v.data()});
    }
  }
  kitbash::write_safetensors(path, out);
}

}  // namespace check_vectors
