#include "train/trainer.h"

#include <cmath>
#include <csignal>
#include <nlohmann/json.hpp>

#include "base/number.h"
#include "base/table.h"
#include "kitbash/error.h"
#include "train/feed.h"

namespace kitbash {

namespace {
volatile std::sig_atomic_t got_signal = 0;
constexpr int bad_steps_allowed = 5;  // in a row

std::string figure(const char* format, double v) {
  char t[48];
  std::snprintf(t, sizeof t, format, v);
  return t;
}
}  // namespace

void catch_signals() {
  struct sigaction a = {};
  a.sa_handler = [](int s) { got_signal = s; };
  sigaction(SIGINT, &a, nullptr);
  sigaction(SIGTERM, &a, nullptr);
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
      session_(recipe, registry, options_.threads, options_.arena),
      folder_(options_.run, options_.resume),
      checkpoints_(folder_.checkpoints(), int(recipe.train.keep)),
      progress_(options_.json) {
  check_recipe();
}

void Trainer::check_recipe() const {
  if (recipe_.data.sources.empty()) kb::fail("[train] the recipe must have a source in [data.sources]");
}

void Trainer::start() {
  session_.enter_stage(recipe_.curriculum[0]);
  session_.init_parameters();
  folder_.write_recipe(recipe_.resolved);
  if (!options_.resume) return;
  std::vector<std::string> notices;
  const std::string newest = checkpoints_.newest(notices);
  for (const std::string& n : notices) progress_.say("notice: " + n);
  if (newest.empty()) {
    progress_.say("no checkpoint yet: starting from the first step");
    return;
  }
  const CheckpointInfo info = load_checkpoint(newest, session_.memory());
  if (info.recipe != recipe_.resolved)
    kb::fail("[train] ", newest, " must come from this recipe but its recipe differs; see `kitbash checkpoint list ",
             folder_.checkpoints(), "`, or start another --run");
  position_ = info.position;
  spikes_.restore(position_.recent_loss, position_.recent_norm);
  last_checkpoint_ = newest;
  last_loss_ = info.loss;
  progress_.say("resumed from " + newest + " (step " + std::to_string(position_.step) + ")");
}

TrainEnd Trainer::run() {
  now_seconds();
  start();
  TrainEnd end = TrainEnd::done;
  for (auto i = size_t(position_.stage); i < recipe_.curriculum.size(); ++i)
    if (!run_stage(i, end)) return end;
  return end;
}

bool Trainer::run_stage(size_t index, TrainEnd& end) {
  const StageConfig& s = recipe_.curriculum[index];
  const int64_t steps = stage_steps(s);
  if (index > 0) session_.enter_stage(s);
  if (position_.stage != int64_t(index)) position_.stage = int64_t(index), position_.stage_step = 0, position_.stage_tokens = 0;
  StreamOptions o;
  o.seed = uint64_t(recipe_.train.seed);
  o.context = s.context, o.micro_tokens = s.micro_tokens, o.max_documents = s.max_documents, o.mix = s.mix;
  stream_ = std::make_unique<DataStream>(recipe_.data, registry_, session_.tokenizer(), o);
  stream_->seek(position_.data);
  const auto schedule_instance = create_instance(*s.schedule, registry_, &host_table());
  const auto& schedule = *static_cast<const kb_schedule*>(service_of(*schedule_instance->table));
  const std::string opening = "stage " + s.name + ": context " + std::to_string(s.context) + ", " + std::to_string(steps) +
                              " steps of " + std::to_string(s.batch_tokens) + " tokens, planned memory " +
                              human_binary(double(session_.planned_bytes()));
  progress_.say(opening);
  folder_.log(opening);
  progress_.event({{"event", "stage"}, {"stage", s.name}, {"context", s.context}, {"steps", steps}});

  StageResult r;
  r.name = s.name, r.context = s.context;
  double loss_sum = 0, loss_count = 0, busy = 0;
  int64_t stage_start_tokens = position_.stage_tokens;
  while (position_.stage_step < steps) {
    const double lr = learning_rate(s, schedule, schedule_instance->self, position_.stage_step);
    const TrainPosition before = position_;
    const double begun = now_seconds();
    Step step;
    if (signal_received() || (options_.stop_after && position_.step >= options_.stop_after) || !one_step(s, lr, step)) {
      position_ = before;
      save(last_loss_);
      progress_.say("stopped at step " + std::to_string(position_.step) + "; saved " + last_checkpoint_ + "\ncontinue with: " +
                    options_.command);
      progress_.event({{"event", "preempted"}, {"step", position_.step}, {"checkpoint", last_checkpoint_}});
      end = TrainEnd::preempted;
      return false;
    }
    busy += now_seconds() - begun;
    ++position_.step, ++position_.stage_step;
    position_.tokens += step.tokens, position_.stage_tokens += step.tokens;
    position_.data = stream_->position();
    for (const std::string& n : stream_->notices()) progress_.say("notice: " + n), folder_.log(n);
    ExpertLoad load;
    if (step.ok) {
      bad_in_a_row_ = 0;
      spikes_.accept(step.loss, step.norm);
      last_loss_ = step.loss;
      load = expert_load(session_.apply());
      if (position_.step > 100) r.worst_load = std::max(r.worst_load, load.worst), r.dead = std::max(r.dead, load.dead);
      const bool late = steps - position_.stage_step < std::max<int64_t>(1, steps / 10);
      if (late) loss_sum += step.loss, ++loss_count;
    } else {
      refuse(s, step);
      ++r.skipped, ++position_.skipped;
      if (++bad_in_a_row_ >= bad_steps_allowed) {
        progress_.say("error: " + std::to_string(bad_steps_allowed) + " steps in a row were refused; the last good checkpoint is " +
                      (last_checkpoint_.empty() ? "none" : last_checkpoint_) + "; lower the stage's lr and resume from it");
        end = TrainEnd::failed;
        return false;
      }
    }
    position_.recent_loss = spikes_.losses(), position_.recent_norm = spikes_.norms();
    const double rate = double(position_.stage_tokens - stage_start_tokens) / std::max(busy, 1e-9);
    const bool log_point = position_.stage_step % recipe_.train.log_every == 0 || position_.stage_step == steps || position_.step == 1;
    progress_.step(s.name, position_.stage_step, steps, step.loss, rate, log_point);
    nlohmann::json m = {{"event", "step"},  {"step", position_.step}, {"stage", s.name},        {"loss", step.loss},
                        {"norm", step.norm}, {"lr", lr},               {"tokens", position_.tokens}, {"ok", step.ok},
                        {"worst_load", load.worst}, {"dead", load.dead}, {"seconds", now_seconds() - begun}};
    folder_.metric(m);
    if (log_point) progress_.event(m);
    if (recipe_.train.checkpoint_every && position_.step % recipe_.train.checkpoint_every == 0) save(step.loss);
  }
  r.tokens = position_.stage_tokens, r.steps = steps;
  r.loss = loss_count > 0 ? loss_sum / loss_count : last_loss_;
  r.seconds = busy;
  r.tokens_per_second = double(position_.stage_tokens - stage_start_tokens) / std::max(busy, 1e-9);
  finish_stage(s, r);
  return true;
}

void Trainer::finish_stage(const StageConfig& s, StageResult& r) {
  // The position after the last step of a stage is the first step of the next.
  ++position_.stage, position_.stage_step = 0, position_.stage_tokens = 0;
  save(last_loss_);
  r.held_out = evaluate(session_, recipe_, s, recipe_.train.eval_tokens);
  r.peak_bytes = peak_resident_bytes();
  r.planned_bytes = session_.planned_bytes();
  const std::string line = "stage " + s.name + " done: held-out " + figure("%.3f", r.held_out.bits_per_byte) +
                           " bits per byte, loss " + figure("%.4f", r.held_out.loss) + ", checkpoint " + last_checkpoint_;
  progress_.say(line);
  folder_.log(line);
  const nlohmann::json m = {{"event", "evaluation"},
                            {"stage", s.name},
                            {"step", position_.step},
                            {"loss", r.held_out.loss},
                            {"bits_per_byte", r.held_out.bits_per_byte},
                            {"tokens", r.held_out.tokens},
                            {"bytes", r.held_out.bytes},
                            {"tokens_per_second", r.tokens_per_second}};
  folder_.metric(m);
  progress_.event(m);
  results_.push_back(r);
}

bool Trainer::one_step(const StageConfig& s, double lr, Step& out) {
  batches_.clear();
  const int64_t micros = s.batch_tokens / s.micro_tokens;
  for (int64_t i = 0; i < micros; ++i) {
    if (signal_received()) {
      for (const StoreEntry& e : session_.memory().store().entries())  // half a step is dropped
        if (e.life == Life::accumulator || e.life == Life::step) session_.memory().fill(e.name);
      stream_->seek(position_.data);
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

void Trainer::refuse(const StageConfig& s, const Step& step) {
  int64_t counted = 0;
  for (const MicroBatch& b : batches_) counted += b.counted;
  std::string why;
  if (counted == 0)
    why = "no token of the batch counts (every loss_weight or target is empty)";
  else if (!std::isfinite(step.loss) || !std::isfinite(step.norm))
    why = "loss " + figure("%g", step.loss) + " or gradient norm " + figure("%g", step.norm) + " is not finite; first bad value: " +
          first_bad_node();
  else
    why = "loss " + figure("%.4f", step.loss) + " (limit " + figure("%.4f", spikes_.loss_limit()) + ") or gradient norm " +
          figure("%.3f", step.norm) + " (limit " + figure("%.3f", spikes_.norm_limit()) + ") is a spike";
  const std::string line = "notice: step " + std::to_string(position_.step) + " of stage " + s.name + " is skipped: " + why;
  progress_.say(line);
  folder_.log(line);
}

// A refused step wrote nothing, so its micro-batches can be run again, this time looking at every node.
std::string Trainer::first_bad_node() {
  std::string found = "none of the nodes of micro; the sum over micro-batches overflows";
  for (const MicroBatch& b : batches_) {
    feed_batch(session_.micro(), b);
    if (const auto bad = session_.micro().run(Check::finite)) {
      found = *bad;
      break;
    }
  }
  for (const StoreEntry& e : session_.memory().store().entries())
    if (e.life == Life::accumulator || e.life == Life::step) session_.memory().fill(e.name);
  return found;
}

void Trainer::save(double loss) {
  CheckpointInfo info;
  info.position = position_;
  info.recipe_name = recipe_.name;
  info.recipe = recipe_.resolved;
  info.recipe_seed = recipe_.train.seed;
  info.loss = loss;
  for (const auto& p : registry_.loaded()) info.plugins[p->info->id] = p->info->version;
  last_checkpoint_ = checkpoints_.save(session_.memory(), info);
  progress_.event({{"event", "checkpoint"}, {"step", position_.step}, {"path", last_checkpoint_}});
}

std::string results_table(const std::vector<StageResult>& results) {
  Table t({"stage", "context", "tokens", "loss", "held-out bits/byte", "tokens/s", "peak memory", "planned", "worst load", "dead experts"},
          "lrrrrrrrrr");
  for (const StageResult& r : results)
    t.row({r.name, std::to_string(r.context), human_count(double(r.tokens)), figure("%.3f", r.loss),
           figure("%.3f", r.held_out.bits_per_byte), human_count(r.tokens_per_second), human_binary(double(r.peak_bytes)),
           human_binary(double(r.planned_bytes)), figure("%.2f", r.worst_load), std::to_string(r.dead)});
  return t.text();
}

}  // namespace kitbash
