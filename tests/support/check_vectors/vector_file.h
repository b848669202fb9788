// vector_file.h: one file of oracle vectors, its settings, and how its tokens lie.
#pragma once
#include <set>

#include "array.h"

namespace check_vectors {

class VectorFile {
 public:
  explicit VectorFile(const std::string& path);

  const std::string& name() const { return name_; }  // without folder and ending
  const Arrays& tensors() const { return tensors_; }
  bool has(const std::string& tensor) const { return tensors_.count(tensor) != 0; }
  const Array& at(const std::string& tensor) const;
  double largest_gradient() const;  // largest norm of a grad.*; 0 when there is none

  // Settings from the header. Asking marks a setting as used; the ones never asked for are reported.
  std::string text(const std::string& key, const std::string& fallback) const;
  double number(const std::string& key, double fallback) const;
  // An integer that the shapes give: a header that says otherwise is an error.
  int64_t agreed(const std::string& key, int64_t by_shape) const;
  int64_t integer(const std::string& key) const;  // must be in the header
  std::vector<std::string> unused() const;

  // Borders of the documents in packed tokens [documents + 1]: those of in.cu_seqlens, else one document a row of the
  // batch.
  Array borders(int64_t batch, int64_t time) const;

 private:
  std::string path_, name_;
  Arrays tensors_;
  std::map<std::string, std::string> metadata_;
  mutable std::set<std::string> used_;
};

double norm(const Array& a);

}  // namespace check_vectors
