// array.h: a named set of plain arrays, and the two ways of moving them: to and from a safetensors file.
#pragma once
#include <cstdint>
#include <map>
#include <string>
#include <vector>

namespace check_vectors {

struct Array {
  std::vector<int64_t> shape;
  std::vector<double> v;  // row-major; exact for every integer a vector holds
  bool integer = false;
  int64_t dim(int axis) const;  // negative: from the end
};
using Arrays = std::map<std::string, Array>;

Array scalar(double v);
Array packed(Array a);  // [batch, time, ...] -> [batch * time, ...]
Array reshaped(Array a, std::vector<int64_t> shape);
Array row(const Array& a, int64_t index);  // a[index, ...]

Array rounded_to_bf16(Array a);  // floats to the nearest, ties to even; integers stay

Arrays load(const std::string& path);
void save(const std::string& path, const Arrays& arrays);  // floats as F64, integers as I32

}  // namespace check_vectors
