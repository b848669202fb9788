// session.h: a recipe made ready to run on one device: model, store, and the programs of a stage.
#pragma once
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "data/stream.h"
#include "model/language_model.h"
#include "runtime/device.h"
#include "runtime/program.h"

namespace kitbash {

struct RunDevice {
  kb_device_kind kind = KB_CPU;
  bool capture = true;  // off: cuda launches node by node, as it also does to find a bad node; the bits are the same
  bool fuse = true;     // off: cuda runs every pointwise node by itself, rounding between them
};

class Session {
 public:
  Session(const Recipe& recipe, Registry& registry, int threads, ArenaMode arena, const RunDevice& where = {});

  // Replaces the programs by those of the stage. The store and what is in it stay.
  void enter_stage(const StageConfig& s);
  void init_parameters();  // from the recipe's seed

  Program& micro() { return *micro_; }
  Program& apply() { return *apply_; }
  Program& eval() { return *eval_; }
  StoreMemory& memory() { return *memory_; }
  LanguageModel& model() { return model_; }
  Device& device() { return device_; }
  const Device& device() const { return device_; }
  const Tokenizer& tokenizer() const;  // throws when the recipe has none
  int64_t store_bytes() const { return memory_->bytes(); }
  int64_t arena_bytes() const { return arena_->bytes(); }
  // Of the process: what it held before the model had memory (code, recipe, text), the store and arena of the stage, and what
  // its nodes hold when they are ready. On a device with memory of its own: store and arena.
  int64_t planned_bytes() const;
  // Runs micro-batches of the stage again, every node by itself, and describes the first whose output is not finite. The sums
  // are back at their fill afterwards.
  std::optional<std::string> first_bad_node(const std::vector<MicroBatch>& batches);
  void clear_sums();  // accumulators and states of a step: what half a step has left behind

 private:
  BuildOptions options() const;
  void check_room(const StageConfig& s) const;
  const Recipe& recipe_;
  Device device_;
  LanguageModel model_;
  std::unique_ptr<Tokenizer> tokenizer_;  // null: numbers are trained on, as in bench
  ArenaMode mode_;
  bool capture_, fuse_;
  Bounds bounds_;              // of the stage
  int64_t program_bytes_ = 0;  // resident before the model has memory
  std::unique_ptr<StoreMemory> memory_;
  std::unique_ptr<Arena> arena_;
  std::unique_ptr<Program> micro_, apply_, eval_;
};

struct Evaluation {
  double loss = 0;           // nats a counted token
  double bits_per_byte = 0;  // all counted nats over the bytes of the text
  int64_t tokens = 0, bytes = 0;
};
// Over the held-out split, once through or up to `limit` tokens (0: all). Changes nothing in the store. Throws when no source
// has held-out text. `stop` is asked between micro-batches; nothing comes back when it says yes.
std::optional<Evaluation> evaluate(Session& s, const Recipe& recipe, const StageConfig& stage, int64_t limit,
                                   bool (*stop)() = nullptr);

// Seconds since the first call.
double now_seconds();
int64_t resident_bytes();       // VmRSS
int64_t peak_resident_bytes();  // VmHWM
// Of the memory that the session works in: the host's peak, or all of a GPU's that is in use now, by whomever.
int64_t peak_bytes(const Session& s);

}  // namespace kitbash
