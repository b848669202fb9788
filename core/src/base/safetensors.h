// safetensors.h: the safetensors file format, read and written by its strict rules.
// Layout: u64 N (little endian), N bytes of JSON, then the data. Every range of data is contiguous with the next, from
// 0 to the end of the file. Source: the format's README and reference reader, github.com/huggingface/safetensors.
#pragma once
#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

namespace kitbash {

struct SafeTensor {
  std::string dtype;            // as in the file: "F32", "BF16", "I64", ...
  std::vector<int64_t> shape;   // row-major; empty for a scalar
  uint64_t begin = 0, end = 0;  // bytes, relative to the start of the data
  const char* data = nullptr;   // end - begin bytes, as long as the file object lives; not aligned in general
  int64_t elements() const;
};

// Bits of one element; 0 for an unknown name.
int dtype_bits(const std::string& dtype);

class SafetensorsFile {
 public:
  // Maps the file. Throws kb::Error naming the file, and the tensor where there is one, for everything that breaks a
  // rule.
  static SafetensorsFile open(const std::string& path);

  const std::string& path() const { return path_; }
  const std::map<std::string, SafeTensor>& tensors() const { return tensors_; }
  const std::map<std::string, std::string>& metadata() const { return metadata_; }
  const SafeTensor* find(const std::string& name) const;  // null: none
  const SafeTensor& at(const std::string& name) const;    // throws kb::Error that names the file

 private:
  std::string path_;
  std::shared_ptr<const char> map_;
  std::map<std::string, SafeTensor> tensors_;
  std::map<std::string, std::string> metadata_;
};

struct TensorToWrite {
  std::string name, dtype;
  std::vector<int64_t> shape;
  const void* data = nullptr;  // dense, row-major
};

// Writes beside `path` and renames, so that a reader sees the old file or the whole new one. Tensors are ordered by
// alignment, widest first, then by name; the data starts at a multiple of 8. Throws kb::Error; then `path` is as
// before.
void write_safetensors(const std::string& path, const std::vector<TensorToWrite>& tensors,
                       const std::map<std::string, std::string>& metadata = {});

}  // namespace kitbash
