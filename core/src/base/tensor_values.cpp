#include "base/tensor_values.h"

#include <cmath>
#include <cstring>

#include "kitbash/error.h"

namespace kitbash {
namespace {

double from_half(uint16_t h) {
  const int exponent = h >> 10 & 31, mantissa = h & 1023;
  double v = exponent == 31  ? (mantissa ? NAN : INFINITY)
             : exponent == 0 ? std::ldexp(mantissa, -24)
                             : std::ldexp(mantissa + 1024, exponent - 25);
  return h & 0x8000 ? -v : v;
}

double from_bfloat(uint16_t h) {
  const uint32_t bits = uint32_t(h) << 16;
  float f;
  std::memcpy(&f, &bits, sizeof f);
  return double(f);
}

template <class T, class F>
std::vector<double> convert(const SafeTensor& t, F&& to_double) {
  std::vector<double> out(size_t(t.elements()));
  for (size_t i = 0; i < out.size(); ++i) {
    T v;  // memcpy, since the data need not be aligned
    std::memcpy(&v, t.data + i * sizeof(T), sizeof(T));
    out[i] = to_double(v);
  }
  return out;
}

}  // namespace

bool is_integer_dtype(const std::string& d) { return !d.empty() && (d[0] == 'I' || d[0] == 'U' || d == "BOOL"); }

std::vector<double> tensor_values(const SafeTensor& t, const std::string& where) {
  auto plain = [](auto v) { return double(v); };
  const std::string& d = t.dtype;
  if (d == "F64") return convert<double>(t, plain);
  if (d == "F32") return convert<float>(t, plain);
  if (d == "BF16") return convert<uint16_t>(t, from_bfloat);
  if (d == "F16") return convert<uint16_t>(t, from_half);
  if (d == "I64") return convert<int64_t>(t, plain);
  if (d == "U64") return convert<uint64_t>(t, plain);
  if (d == "I32") return convert<int32_t>(t, plain);
  if (d == "U32") return convert<uint32_t>(t, plain);
  if (d == "I16") return convert<int16_t>(t, plain);
  if (d == "U16") return convert<uint16_t>(t, plain);
  if (d == "I8") return convert<int8_t>(t, plain);
  if (d == "U8" || d == "BOOL") return convert<uint8_t>(t, plain);
  kb::fail("[", where, "] dtype must be a float of 16 bits or more, or an integer, but got ", d);
}

}  // namespace kitbash
