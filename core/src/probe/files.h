// files.h: tensors between a safetensors file and the memory of a program.
#pragma once
#include <map>
#include <string>
#include <vector>

#include "base/safetensors.h"
#include "runtime/program.h"

namespace kitbash {

// Copies the tensor to memory of the given type, converting numbers. Throws unless the shapes agree and both are floats or integers.
void load_tensor(const SafeTensor& from, const std::string& name, const kb_type& type, void* to);
// The same for a store entry, wherever its memory is.
void load_entry(const SafeTensor& from, const std::string& name, const StoreEntry& e, StoreMemory& memory);
// "F32", "BF16", "I32", ...
const char* file_dtype(uint32_t dtype);

class ResultFile {
 public:
  void add(const std::string& name, const kb_type& type, const void* data);  // copies; replaces an earlier one
  void write(const std::string& path) const;

 private:
  struct Kept {
    kb_type type;
    std::vector<char> bytes;
  };
  std::map<std::string, Kept> tensors_;
};

// Fills cu, position and document of a program from borders; returns the number of counted tokens.
void fill_sequence(Program& p, const std::vector<int32_t>& cu, int64_t tokens);
// in.cu or in.cu_seqlens of the file, or one document of all tokens.
std::vector<int32_t> read_borders(const SafetensorsFile& f, int64_t tokens);

}  // namespace kitbash
