// trainer.h: a recipe from its first token to its last: stages, steps, checkpoints, and what to do when something is wrong.
#pragma once
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "checkpoint/checkpoint.h"
#include "graph/instance.h"
#include "train/experts.h"
#include "train/neighbours.h"
#include "train/progress.h"
#include "train/run_folder.h"
#include "train/session.h"
#include "train/spikes.h"
#include "train/stage_result.h"

namespace kitbash {

struct TrainOptions {
  std::string run;  // folder
  bool resume = false, json = false;
  int threads = 0;
  ArenaMode arena = ArenaMode::planned;
  RunDevice device;
  int64_t stop_after = 0;  // steps of the run; 0: to the end. As a signal would: saves and exits with 75
  std::string command;     // how to resume, for messages
};

enum class TrainEnd { done, preempted, failed };

class Trainer {
 public:
  Trainer(const Recipe& recipe, Registry& registry, TrainOptions o);
  TrainEnd run();                                                       // prints as it goes
  const std::vector<StageResult>& results() const { return results_; }  // of all stages so far, also before a resume
  const std::string& last_checkpoint() const { return last_checkpoint_; }

 private:
  struct Step {
    double loss = 0, norm = 0;
    bool ok = false;
    int64_t tokens = 0;
  };
  std::string find_start();  // the checkpoint to resume from; empty: the first step. Changes nothing
  void start();
  CheckpointInfo restore(const std::string& checkpoint);  // everything that a checkpoint says
  void resume(const std::string& checkpoint);
  // Nothing: go on with the next stage.
  std::optional<TrainEnd> run_stage(size_t index);
  std::optional<TrainEnd> finish_stage(const StageConfig& s, StageResult r);
  bool stop_wanted() const;
  bool one_step(double lr, Step& out);  // false: a signal came before the step was done
  void refuse(const StageConfig& s, const Step& step);
  void save();
  TrainEnd preempt();
  bool roll_back();
  TrainEnd give_up();
  void notice(const std::string& text);

  const Recipe& recipe_;
  Registry& registry_;
  TrainOptions options_;
  Session session_;
  bool has_held_out_;  // also says that every source could be opened: nothing is written before that
  std::vector<std::unique_ptr<Instance>> schedules_;  // by stage, all of them at the start: a wrong one is told there
  RunFolder folder_;
  CheckpointFolder checkpoints_;
  Progress progress_;
  SpikeRule spikes_;
  TrainPosition position_;
  int64_t saved_step_ = -1;  // of the newest checkpoint
  const std::string from_;   // the checkpoint to begin with; empty: the first step
  std::unique_ptr<DataStream> stream_;
  std::vector<MicroBatch> batches_;  // of the step under way, to replay a bad one
  std::vector<StageResult> results_;
  std::vector<nlohmann::json> past_;  // lines of a resumed run
  std::map<std::string, std::string> plugins_;
  std::string last_checkpoint_;
  double last_loss_ = 0;
  bool rolled_back_ = false;  // the stage was left for the checkpoint's
  Neighbours neighbours_;
  double last_line_ = 0;  // seconds, of progress
};

// Steps of a stage: its tokens in batches, rounded up.
int64_t stage_steps(const StageConfig& s);
// Learning rate of step i of the stage.
double learning_rate(const StageConfig& s, const kb_schedule& schedule, const void* self, int64_t i);

// SIGINT, SIGTERM, and SIGPIPE (whoever read the output is gone): finish the micro-batch, save, exit 75. A file that grows too
// large (SIGXFSZ) is an error of the write.
void catch_signals();
bool signal_received();

}  // namespace kitbash
