#include "probe/files.h"

#include <cmath>
#include <cstring>

#include "base/tensor_values.h"
#include "kitbash/op.h"

namespace kitbash {

void load_tensor(const SafeTensor& from, const std::string& name, const kb_type& type, void* to) {
  // Axes of size 1 may come and go; any other shape, and integers for floats or floats for integers, are a mistake.
  std::vector<int64_t> want(type.shape, type.shape + type.rank), got = from.shape;
  for (auto* s : {&want, &got}) std::erase(*s, 1);
  if (want != got || is_integer_dtype(from.dtype) != (type.dtype < KB_BF16)) {
    std::string shape;
    for (int64_t n : from.shape) shape += (shape.empty() ? "" : ", ") + std::to_string(n);
    kb::fail("[probe] ", name, " must be ", type_text(type), " but got ", from.dtype, " [", shape, "]");
  }
  const std::vector<double> v = tensor_values(from, name);
  for (size_t i = 0; i < v.size(); ++i) switch (type.dtype) {
      case KB_F64:
        static_cast<double*>(to)[i] = v[i];
        break;
      case KB_F32:
        static_cast<float*>(to)[i] = float(v[i]);
        break;
      case KB_I64:
        static_cast<int64_t*>(to)[i] = int64_t(v[i]);
        break;
      case KB_I32:
        static_cast<int32_t*>(to)[i] = int32_t(v[i]);
        break;
      case KB_BF16:
        static_cast<uint16_t*>(to)[i] = to_bf16(float(v[i]));
        break;
      default:
        kb::fail("[probe] ", name, " cannot be read as ", kb::dtype_name(type.dtype));
    }
}

void load_entry(const SafeTensor& from, const std::string& name, const StoreEntry& e, StoreMemory& memory) {
  std::vector<char> host(size_t(e.bytes()));
  load_tensor(from, name, e.type, host.data());
  memory.write(e.name, host.data(), 0, int64_t(host.size()));
}

const char* file_dtype(uint32_t dtype) {
  switch (dtype) {
    case KB_U8:
      return "U8";
    case KB_I32:
      return "I32";
    case KB_I64:
      return "I64";
    case KB_BF16:
      return "BF16";
    case KB_F32:
      return "F32";
    case KB_F64:
      return "F64";
    default:
      kb::fail("[probe] dtype ", dtype, " cannot be written");
  }
}

void ResultFile::add(const std::string& name, const kb_type& type, const void* data) {
  Kept& k = tensors_[name];
  k.type = type;
  k.bytes.resize(size_t(type_bytes(type)));
  if (!k.bytes.empty()) std::memcpy(k.bytes.data(), data, k.bytes.size());
}

void ResultFile::write(const std::string& path) const {
  std::vector<TensorToWrite> out;
  for (const auto& [name, k] : tensors_)
    out.push_back({name, file_dtype(k.type.dtype), std::vector<int64_t>(k.type.shape, k.type.shape + k.type.rank),
                   k.bytes.data()});
  write_safetensors(path, out);
}

std::vector<int32_t> read_borders(const SafetensorsFile& f, int64_t tokens) {
  const SafeTensor* t = f.find("in.cu") ? f.find("in.cu") : f.find("in.cu_seqlens");
  if (!t) return {0, int32_t(tokens)};
  std::vector<int32_t> cu;
  for (double v : tensor_values(*t, "in.cu")) cu.push_back(int32_t(v));
  if (cu.size() < 2 || cu.front() != 0) kb::fail("[probe] in.cu must start at 0 and have 2 borders or more");
  for (size_t i = 1; i < cu.size(); ++i)
    if (cu[i] < cu[i - 1] || cu[i] > tokens)
      kb::fail("[probe] in.cu must rise to at most ", tokens, " tokens but border ", i, " is ", cu[i], " after ",
               cu[i - 1]);
  return cu;
}

void fill_sequence(Program& p, const std::vector<int32_t>& cu, int64_t tokens) {
  const auto& in = p.graph().inputs;
  if (in.count("cu")) std::memcpy(p.input("cu"), cu.data(), cu.size() * sizeof cu[0]);
  std::vector<int32_t> position(size_t(tokens), 0), document(size_t(tokens), -1);
  for (size_t d = 0; d + 1 < cu.size(); ++d)
    for (int32_t t = cu[d]; t < cu[d + 1]; ++t) position[size_t(t)] = t - cu[d], document[size_t(t)] = int32_t(d);
  if (in.count("position")) std::memcpy(p.input("position"), position.data(), size_t(tokens) * 4);
  if (in.count("document")) std::memcpy(p.input("document"), document.data(), size_t(tokens) * 4);
  p.set_extent("tokens", cu.back());
}

}  // namespace kitbash
