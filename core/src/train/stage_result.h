// stage_result.h: what a stage came to: the line of the table at the end of a run. It is made from the lines of metrics.jsonl
// alone, so that a run which was resumed has the table of one that was not.
#pragma once
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "train/session.h"

namespace kitbash {

struct StageResult {
  std::string name;
  int64_t context = 0, tokens = 0, steps = 0, skipped = 0;
  double loss = 0;      // mean over the accepted of the last tenth of the steps
  Evaluation held_out;  // bytes 0: there is no held-out text
  double tokens_per_second = 0, seconds = 0;
  int64_t peak_bytes = 0, planned_bytes = 0;
  // After the first 100 steps of the run. The load of a step is that of its fullest expert of all layers, as a multiple of the
  // mean: its mean over the steps, and the largest of any step (one long text can fill a step).
  double mean_load = 0, worst_load = 0;
  int64_t dead = 0;  // most experts without a token, of any step
};

// Adds up the "step" lines of one stage.
class StageMeter {
 public:
  StageMeter(const StageConfig& s, int64_t steps);
  void add(const nlohmann::json& line);
  StageResult result() const;
  double tokens_per_second() const { return seconds_ > 0 ? double(r_.tokens) / seconds_ : 0; }

 private:
  StageResult r_;
  double seconds_ = 0, late_loss_ = 0, last_loss_ = 0, loads_ = 0;
  int64_t late_ = 0, loaded_ = 0;
};

nlohmann::json evaluation_line(const StageResult& r, int64_t step);  // event "evaluation", of metrics.jsonl
StageResult result_of(const nlohmann::json& line);                   // of such a line
std::string results_table(const std::vector<StageResult>& r);

}  // namespace kitbash
