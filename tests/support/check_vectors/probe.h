// probe.h: runs `kitbash probe` as a process on files in a temporary folder, as a user would.
#pragma once
#include <filesystem>

#include "array.h"

namespace check_vectors {

struct Request {
  std::string what;                  // "attention.kda", "op.depth_mix", "model"
  std::string config;                // TOML; empty: no --config
  std::vector<std::string> options;  // further ones: "--backward", "--attr", "experts=8", ...
  Arrays in;                         // in.*, param.*, state.*
};

class Probe {
 public:
  // `plugin_path`: folders passed on as --plugin-path; `arena`, `device`: passed on too, unless empty. `keep`: leave the
  // files for a look afterwards.
  Probe(std::string program, std::vector<std::string> plugin_path, std::string arena, std::string device, bool keep);
  ~Probe();
  Probe(const Probe&) = delete;

  void dtype(const std::string& d) { dtype_ = d; }  // f64, f32 or bf16, for the runs that follow
  const std::string& dtype() const { return dtype_; }
  void round_inputs(bool on) { round_inputs_ = on; }  // to bf16, of the runs that follow
  Arrays run(const Request& r);                       // throws kb::Error with what the program printed
  const std::string folder() const { return folder_.string(); }

 private:
  std::string program_, dtype_ = "f64";
  std::vector<std::string> plugin_path_;
  std::string arena_, device_;
  std::filesystem::path folder_;
  bool keep_, round_inputs_ = false;
  int runs_ = 0;
};

}  // namespace check_vectors
