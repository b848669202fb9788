// check.h: compares what the probe gave with a vector file, one printed line a tensor.
#pragma once
#include <map>
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
  // Nothing is printed or counted; error_of each tensor goes to `into`.
  void only_measure(std::map<std::string, double>& into) { measured_ = &into; }
  // The limit of a tensor is at least `times` its error here.
  void allow(std::map<std::string, double> errors, double times) { allowed_ = std::move(errors), times_ = times; }

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
  std::map<std::string, double>* measured_ = nullptr;
  std::map<std::string, double> allowed_;
  double times_ = 0;
};

}  // namespace check_vectors
