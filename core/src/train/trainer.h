// trainer.h: a recipe from its first token to its last: stages, steps, checkpoints, and what to do when something is wrong.
#pragma once
#include <memory>
#include <string>
#include <vector>

#include "checkpoint/checkpoint.h"
#include "train/experts.h"
#include "train/progress.h"
#include "train/run_folder.h"
#include "train/session.h"
#include "train/spikes.h"

namespace kitbash {

struct TrainOptions {
  std::string run;             // folder
  bool resume = false, json = false;
  int threads = 0;
  ArenaMode arena = ArenaMode::planned;
  int64_t stop_after = 0;      // steps; 0: to the end. As a signal would: saves and exits with 75
  std::string command;         // how to resume, for messages
};

struct StageResult {
  std::string name;
  int64_t context = 0, tokens = 0, steps = 0, skipped = 0;
  double loss = 0;  // mean of the last steps
  Evaluation held_out;
  double tokens_per_second = 0, seconds = 0;
  int64_t peak_bytes = 0, planned_bytes = 0;
  double worst_load = 0;  // largest after the first 100 steps of the run
  int64_t dead = 0;
};

enum class TrainEnd { done, preempted, failed };

class Trainer {
 public:
  Trainer(const Recipe& recipe, Registry& registry, TrainOptions o);
  TrainEnd run();  // prints as it goes
  const std::vector<StageResult>& results() const { return results_; }
  const std::string& last_checkpoint() const { return last_checkpoint_; }

 private:
  struct Step {
    double loss = 0, norm = 0;
    bool ok = false;
    int64_t tokens = 0;
  };
  void start();
  void check_recipe() const;
  bool run_stage(size_t index, TrainEnd& end);
  bool one_step(const StageConfig& s, double lr, Step& out);  // false: a signal came before the step was done
  void refuse(const StageConfig& s, const Step& step);
  std::string first_bad_node();
  void save(double loss);
  void finish_stage(const StageConfig& s, StageResult& r);

  const Recipe& recipe_;
  Registry& registry_;
  TrainOptions options_;
  Session session_;
  RunFolder folder_;
  CheckpointFolder checkpoints_;
  Progress progress_;
  SpikeRule spikes_;
  TrainPosition position_;
  std::unique_ptr<DataStream> stream_;
  std::vector<MicroBatch> batches_;  // of the step under way, to replay a bad one
  std::vector<StageResult> results_;
  std::string last_checkpoint_;
  double last_loss_ = 0;
  int bad_in_a_row_ = 0;
};

// Steps of a stage: its tokens in batches, rounded up.
int64_t stage_steps(const StageConfig& s);
// Learning rate of step i of the stage.
double learning_rate(const StageConfig& s, const kb_schedule& schedule, const void* self, int64_t i);

void catch_signals();    // SIGINT, SIGTERM: finish the micro-batch, save, exit 75
bool signal_received();

std::string results_table(const std::vector<StageResult>& r);

}  // namespace kitbash
