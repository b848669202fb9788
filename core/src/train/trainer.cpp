#include "train/trainer.h"

#include <unistd.h>

#include <cmath>
#include <csignal>
#include <nlohmann/json.hpp>

#include "base/number.h"
#include "data/reader.h"
#include "kitbash/error.h"
#include "train/feed.h"

namespace kitbash {

namespace {
volatile std::sig_atomic_t got_signal = 0;
constexpr int bad_steps_allowed = 5;      // in a row
constexpr int64_t rollbacks_allowed = 3;  // in a run
constexpr double longest_silence = 15;    // seconds

std::string figure(const char* format, double v) {
  char t[48];
  std::snprintf(t, sizeof t, format, v);
  return t;
}

// Opens both splits of every source; true: there is held-out text.
bool open_sources(const Recipe& recipe, Registry& registry) {
  if (recipe.data.sources.empty()) kb::fail("[train] the recipe must have a source; write [data.sources.NAME]");
  bool held_out = false;
  for (const auto& [name, c] : recipe.data.sources) {
    if (!SourceReader(name, *c, registry, "train").count())
      kb::fail("[data.sources.", name, "] the source must have samples in the split 'train' but has none");
    held_out = SourceReader(name, *c, registry, "held_out").count() > 0 || held_out;
  }
  return held_out;
}

std::vector<std::unique_ptr<Instance>> make_schedules(const Recipe& recipe, Registry& registry) {
  std::vector<std::unique_ptr<Instance>> all;
  for (const StageConfig& s : recipe.curriculum) all.push_back(create_instance(*s.schedule, registry, &host_table()));
  return all;
}
}  // namespace

void catch_signals() {
  struct sigaction a = {};
  a.sa_handler = [](int s) {
    constexpr char text[] = "\nstopping: the micro-batch is finished and the run is saved\n";
    const bool first = !got_signal;
    got_signal = s;  // before anything that may fail: nobody need be there to read the words
    if (first && s != SIGPIPE && ::write(STDERR_FILENO, text, sizeof text - 1) < 0) return;
  };
  sigaction(SIGINT, &a, nullptr);
  sigaction(SIGTERM, &a, nullptr);
  sigaction(SIGPIPE, &a, nullptr);
  std::signal(SIGXFSZ, SIG_IGN);
}
bool signal_received() { return got_signal != 0; }

int64_t stage_steps(const StageConfig& s) { return (s.tokens + s.batch_tokens - 1) / s.batch_tokens; }
double learning_rate(const StageConfig& s, const kb_schedule& schedule, const void* self, int64_t i) {
  return s.lr * schedule.at(self, i, stage_steps(s));
}

Trainer::Trainer(const Recipe& recipe, Registry& registry, TrainOptions o)
    : recipe_(recipe),
      registry_(registry),
      options_(std::move(o)),
      session_(recipe, registry, options_.threads, options_.arena, options_.device),
      has_held_out_((session_.tokenizer(), open_sources(recipe, registry))),
      schedules_(make_schedules(recipe, registry)),
      folder_(options_.run, options_.resume),
      checkpoints_(folder_.checkpoints(), int(recipe.train.keep)),
      progress_(options_.json),
      from_(find_start()) {}

void Trainer::notice(const std::string& text) {
  progress_.say("notice: " + text);
  progress_.event({{"event", "notice"}, {"step", position_.step}, {"text", text}});
  folder_.log("notice: " + text);
}

std::string Trainer::find_start() {
  if (!options_.resume) return "";
  std::vector<std::string> notices;
  const std::string newest = checkpoints_.newest(notices);
  if (newest.empty() && !notices.empty()) {
    std::string lines;
    for (const std::string& n : notices) lines += "\n  " + n;
    kb::fail("[train] ", folder_.path(), " must have a checkpoint that is whole but has none:", lines,
             "\nmove these away to start from the first step, or choose another --run");
  }
  for (const std::string& n : notices) notice(n);
  if (newest.empty()) {
    notice("no checkpoint yet: starting from the first step");
    return "";
  }
  const CheckpointInfo info = read_manifest(newest);
  const std::vector<std::string> differ =
      diff_recipes(without_run_keys(info.recipe), without_run_keys(recipe_.resolved));
  if (!differ.empty()) {
    std::string lines;
    for (size_t i = 0; i < differ.size() && i < 20; ++i) lines += "\n  " + differ[i];
    if (differ.size() > 20) lines += "\n  and " + std::to_string(differ.size() - 20) + " more";
    kb::fail("[train] ", newest,
             " must be resumed with the recipe it was written by (-) but this one (+) differs:", lines,
             "\nresume with ", folder_.path(), "/recipe.toml, or start another --run");
  }
  if (size_t(info.position.stage) >= recipe_.curriculum.size())
    kb::fail("[", newest, "] must be in one of the ", recipe_.curriculum.size(),
             " stages of the recipe but is in stage ", info.position.stage);
  return newest;
}

void Trainer::start() {
  if (from_.empty()) {
    folder_.keep_metrics(0);
    session_.enter_stage(recipe_.curriculum[0]);
    session_.init_parameters();
  } else {
    resume(from_);
  }
  folder_.write_recipe(recipe_.resolved);
  if (!has_held_out_)
    notice("no source has held-out text, so there is no evaluation; name a file as held_out of a source");
}

CheckpointInfo Trainer::restore(const std::string& checkpoint) {
  CheckpointInfo info = load_checkpoint(checkpoint, session_.memory());
  position_ = info.position;
  spikes_.restore(position_.recent_loss, position_.recent_norm);
  last_checkpoint_ = checkpoint;
  last_loss_ = info.loss;
  saved_step_ = position_.step;
  past_ = folder_.keep_metrics(position_.step);
  results_.clear();
  for (const nlohmann::json& line : past_)
    if (line.value("event", "") == "evaluation") results_.push_back(result_of(line));
  return info;
}

void Trainer::resume(const std::string& checkpoint) {
  session_.enter_stage(recipe_.curriculum[size_t(read_manifest(checkpoint).position.stage)]);
  const CheckpointInfo info = restore(checkpoint);
  plugins_ = plugin_identities(registry_);
  for (const auto& [id, identity] : info.plugins)
    if (const auto now = plugins_.find(id); now != plugins_.end() && now->second != identity)
      notice("plugin " + id + " is another than the checkpoint's (" + now->second.substr(0, now->second.find(' ')) +
             ", was " + identity.substr(0, identity.find(' ')) + "): what follows may differ from an undisturbed run");
  const std::string text = "resumed from " + checkpoint + " (step " + std::to_string(position_.step) + ")";
  progress_.say(text);
  folder_.log(text);
  progress_.event({{"event", "resumed"}, {"step", position_.step}, {"checkpoint", checkpoint}});
}

TrainEnd Trainer::run() {
  now_seconds();
  start();
  auto entered = size_t(position_.stage);
  for (size_t i = entered; i < recipe_.curriculum.size();) {
    if (i != entered) session_.enter_stage(recipe_.curriculum[entered = i]);
    if (const auto end = run_stage(i)) return *end;
    i = rolled_back_ ? size_t(position_.stage) : i + 1;
  }
  return TrainEnd::done;
}

bool Trainer::stop_wanted() const {
  return signal_received() || (options_.stop_after && position_.step >= options_.stop_after);
}

std::optional<TrainEnd> Trainer::run_stage(size_t index) {
  const StageConfig& s = recipe_.curriculum[index];
  const int64_t steps = stage_steps(s);
  rolled_back_ = false;
  if (position_.stage != int64_t(index))
    position_.stage = int64_t(index), position_.stage_step = 0, position_.stage_tokens = 0;
  StreamOptions o;
  o.seed = uint64_t(recipe_.train.seed);
  o.context = s.context, o.micro_tokens = s.micro_tokens, o.max_documents = s.max_documents, o.mix = s.mix;
  stream_ = std::make_unique<DataStream>(recipe_.data, registry_, session_.tokenizer(), o);
  stream_->seek(position_.data);
  const auto& schedule = *static_cast<const kb_schedule*>(service_of(*schedules_[index]->table));
  const std::string opening = "stage " + s.name + ": context " + std::to_string(s.context) + ", " +
                              std::to_string(steps) + " steps of " + std::to_string(s.batch_tokens) +
                              " tokens, planned memory " + human_binary(double(session_.planned_bytes()));
  progress_.say(opening);
  folder_.log(opening);
  progress_.event({{"event", "stage"}, {"stage", s.name}, {"context", s.context}, {"steps", steps}});

  StageMeter meter(s, steps);
  for (const nlohmann::json& line : past_)
    if (line.value("event", "") == "step" && line.value("stage", "") == s.name) meter.add(line);
  while (position_.stage_step < steps) {
    const double lr = learning_rate(s, schedule, schedules_[index]->self, position_.stage_step);
    const double begun = now_seconds();
    Step step;
    if (stop_wanted() || !one_step(lr, step)) return preempt();
    const double seconds = now_seconds() - begun;
    ++position_.step, ++position_.stage_step;
    position_.tokens += step.tokens, position_.stage_tokens += step.tokens;
    position_.data = stream_->position();
    for (const std::string& n : stream_->notices()) notice(n);
    ExpertLoad load;
    if (step.ok) {
      position_.refused_in_a_row = 0;
      spikes_.accept(step.loss, step.norm);
      last_loss_ = step.loss;
      load = expert_load(session_.apply());
    } else {
      refuse(s, step);
      ++position_.skipped, ++position_.refused_in_a_row;
    }
    position_.recent_loss = spikes_.losses(), position_.recent_norm = spikes_.norms();
    const nlohmann::json m = {{"event", "step"},
                              {"step", position_.step},
                              {"stage", s.name},
                              {"stage_step", position_.stage_step},
                              {"loss", step.loss},
                              {"norm", step.norm},
                              {"lr", lr},
                              {"batch", step.tokens},
                              {"tokens", position_.tokens},
                              {"ok", step.ok},
                              {"worst_load", load.worst},
                              {"dead", load.dead},
                              {"seconds", seconds}};
    folder_.metric(m);
    meter.add(m);
    const bool log_point = position_.stage_step % recipe_.train.log_every == 0 || position_.stage_step == steps ||
                           position_.step == 1 || now_seconds() - last_line_ > longest_silence;
    if (log_point) last_line_ = now_seconds();
    const double rate = meter.tokens_per_second();
    const double left = double((steps - position_.stage_step) * s.batch_tokens) / std::max(rate, 1e-9);
    progress_.step(s.name, position_.stage_step, steps, step.loss, rate, left, log_point);
    if (log_point) progress_.event(m);
    if (const auto hint = neighbours_.hint(session_.device())) notice(*hint);
    if (position_.refused_in_a_row >= bad_steps_allowed) {
      if (!roll_back()) return give_up();
      return std::nullopt;
    }
    if (recipe_.train.checkpoint_every && position_.step % recipe_.train.checkpoint_every == 0) save();
  }
  return finish_stage(s, meter.result());
}

// What is saved is the end of the stage, before its evaluation: a run that is stopped there evaluates when it is resumed.
std::optional<TrainEnd> Trainer::finish_stage(const StageConfig& s, StageResult r) {
  save();
  for (const StageResult& known : results_)
    if (known.name == s.name) return std::nullopt;
  std::string line = "stage " + s.name + " done: ";
  if (has_held_out_) {
    const auto e = evaluate(session_, recipe_, s, recipe_.train.eval_tokens, signal_received);
    if (!e) return preempt();
    r.held_out = *e;
    line += "held-out " + figure("%.3f", e->bits_per_byte) + " bits per byte, loss " + figure("%.4f", e->loss) + ", ";
  }
  r.peak_bytes = peak_bytes(session_);
  r.planned_bytes = session_.planned_bytes();
  line += "checkpoint " + last_checkpoint_;
  progress_.say(line);
  folder_.log(line);
  const nlohmann::json m = evaluation_line(r, position_.step);
  folder_.metric(m);
  progress_.event(m);
  results_.push_back(r);
  return std::nullopt;
}

bool Trainer::one_step(double lr, Step& out) {
  const StageConfig& s = recipe_.curriculum[size_t(position_.stage)];
  batches_.clear();
  const int64_t micros = s.batch_tokens / s.micro_tokens;
  for (int64_t i = 0; i < micros; ++i) {
    if (signal_received()) {  // half a step is dropped
      session_.clear_sums();
      return false;
    }
    batches_.push_back(stream_->next());
    feed_batch(session_.micro(), batches_.back());
    session_.micro().run();
    out.tokens += batches_.back().used;
  }
  Program& apply = session_.apply();
  feed_scalar(apply, "lr", lr);
  feed_scalar(apply, "step", double(position_.step + 1));
  feed_scalar(apply, "loss_limit", spikes_.loss_limit());
  feed_scalar(apply, "norm_limit", spikes_.norm_limit());
  apply.run();
  out.ok = apply.scalar("step_ok") != 0;
  out.loss = apply.scalar("loss"), out.norm = apply.scalar("grad_norm");
  return true;
}

// A refused step wrote nothing, so its micro-batches can be run again, this time looking at every node.
void Trainer::refuse(const StageConfig& s, const Step& step) {
  int64_t counted = 0;
  for (const MicroBatch& b : batches_) counted += b.counted;
  std::string why;
  if (counted == 0)
    why = "no token of the batch counts (every loss_weight or target is empty)";
  else if (!std::isfinite(step.loss) || !std::isfinite(step.norm))
    why =
        "loss " + figure("%g", step.loss) + " or gradient norm " + figure("%g", step.norm) +
        " is not finite; first bad value: " +
        session_.first_bad_node(batches_).value_or("none of the nodes of micro; the sum over micro-batches overflows");
  else
    why = "loss " + figure("%.4f", step.loss) + " (limit " + figure("%.4f", spikes_.loss_limit()) +
          ") or gradient norm " + figure("%.3f", step.norm) + " (limit " + figure("%.3f", spikes_.norm_limit()) +
          ") is a spike";
  notice("step " + std::to_string(position_.step) + " of stage " + s.name + " is skipped: " + why);
}

void Trainer::save() {
  if (saved_step_ == position_.step) return;  // the end of a stage, or a stop, right after a checkpoint
  CheckpointInfo info;
  info.position = position_;
  info.recipe_name = recipe_.name;
  info.recipe = recipe_.resolved;
  info.recipe_seed = recipe_.train.seed;
  info.loss = last_loss_;
  if (plugins_.empty()) plugins_ = plugin_identities(registry_);  // reads every library, so once
  info.plugins = plugins_;
  std::vector<std::string> notices;
  last_checkpoint_ = checkpoints_.save(session_.memory(), info, &notices);
  saved_step_ = position_.step;
  for (const std::string& n : notices) notice(n);
  progress_.event({{"event", "checkpoint"}, {"step", position_.step}, {"path", last_checkpoint_}});
}

TrainEnd Trainer::preempt() {
  save();
  const std::string text = "stopped at step " + std::to_string(position_.step) +
                           (position_.step ? ", loss " + figure("%.4f", last_loss_) : std::string()) + "; saved " +
                           last_checkpoint_;
  progress_.say(text + "\ncontinue with: " + options_.command);
  progress_.event({{"event", "preempted"},
                   {"step", position_.step},
                   {"checkpoint", last_checkpoint_},
                   {"resume", options_.command}});
  folder_.log(text);
  return TrainEnd::preempted;
}

// Steps that are refused one after the other mean that the weights have come to a bad place: back to the newest checkpoint
// with other weights, and past the text that led here. That checkpoint is written anew with the new place in the text, so that
// a run which is resumed goes the same way. False: there is no such checkpoint, or too many were needed.
bool Trainer::roll_back() {
  const int64_t refused = position_.step, good = refused - position_.refused_in_a_row;
  if (position_.rollbacks >= rollbacks_allowed) return false;
  const DataPosition data = position_.data;
  const int64_t rollbacks = position_.rollbacks + 1;
  const std::vector<CheckpointInfo> all = checkpoints_.list();
  bool found = false;
  for (auto c = all.rbegin(); c != all.rend() && !found; ++c) {
    if (c->position.step >= good) continue;
    try {
      restore(c->path);
      found = true;
    } catch (const kb::Error& e) {
      notice("checkpoint " + c->path + " is not used: " + e.what());
    }
  }
  if (!found) return false;
  session_.clear_sums();
  position_.data = data, position_.rollbacks = rollbacks, position_.refused_in_a_row = 0;
  rolled_back_ = true;
  saved_step_ = -1;
  notice(std::to_string(bad_steps_allowed) + " steps in a row were refused: back to step " +
         std::to_string(position_.step) + "; the text of steps " + std::to_string(position_.step + 1) + " to " +
         std::to_string(refused) + " is left out (rollback " + std::to_string(rollbacks) + " of at most " +
         std::to_string(rollbacks_allowed) + ")");
  save();
  return true;
}

TrainEnd Trainer::give_up() {
  const std::string text = std::to_string(bad_steps_allowed) +
                           " steps in a row were refused; the last good checkpoint is " +
                           (last_checkpoint_.empty() ? "none" : last_checkpoint_);
  progress_.say("error: " + text + "; lower the stage's lr, or repair the data, and start from it");
  progress_.event({{"event", "failed"}, {"step", position_.step}, {"text", text}});
  folder_.log("error: " + text);
  return TrainEnd::failed;
}

}  // namespace kitbash
