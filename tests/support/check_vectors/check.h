// check.h: compares what the probe gave with a vector file, one printed line a tensor.
#pragma once
#include <optional>
#include <set>

#include "vector_file.h"

namespace check_vectors {

// ||got - want|| / max(||want||, floor): relative, but a gradient that is nought by symmetry is not measured against
// itself.
double error_of(const Array& got, const Array& want, double floor);

struct Tally {
  int tensors = 0, failed = 0;
};

class Check {
 public:
  // `limit`: of error_of. `exact`: integers of the file must be equal, not near.
  Check(const VectorFile& file, std::string dtype, double limit, bool exact, Tally& tally);

  void compare(const std::string& tensor, const Array& got);
  void compare(const std::string& tensor, const Arrays& got, const std::string& name);  // a name not in `got` fails
  // The parts that are in the file: out.y <- got out.y, ...
  void compare_same(const Arrays& got, const std::string& prefix);
  void internal(const std::string& tensor);  // not an output of the component: printed, not compared
  // Every out.* and grad.* that was not compared fails, with `why` when the probe failed.
  void finish(const std::string& why);

 private:
  void print(const std::string& tensor, std::optional<double> error, double limit, const std::string& verdict);
  const VectorFile& file_;
  std::string dtype_;
  double limit_, floor_;
  bool exact_;
  Tally& tally_;
  std::set<std::string> done_;
};

}  // namespace check_vectors
