#include "train/stage_result.h"

#include <algorithm>
#include <cstdio>
#include <nlohmann/json.hpp>

#include "base/number.h"
#include "base/table.h"

namespace kitbash {

namespace {
double number(const nlohmann::json& line, const char* key) {  // what is not finite is null in JSON
  const auto v = line.find(key);
  return v != line.end() && v->is_number() ? v->get<double>() : 0;
}
int64_t integer(const nlohmann::json& line, const char* key) {
  const auto v = line.find(key);
  return v != line.end() && v->is_number_integer() ? v->get<int64_t>() : 0;
}
std::string figure(const char* format, double v) {
  char t[48];
  std::snprintf(t, sizeof t, format, v);
  return t;
}
}  // namespace

StageMeter::StageMeter(const StageConfig& s, int64_t steps) {
  r_.name = s.name, r_.context = s.context, r_.steps = steps;
}

void StageMeter::add(const nlohmann::json& line) {
  seconds_ += number(line, "seconds");
  r_.tokens += integer(line, "batch");
  if (!line.value("ok", false)) {
    ++r_.skipped;
    return;
  }
  last_loss_ = number(line, "loss");
  const bool late = r_.steps - integer(line, "stage_step") < std::max<int64_t>(1, r_.steps / 10);
  if (late) late_loss_ += last_loss_, ++late_;
  if (integer(line, "step") > 100) {
    r_.worst_load = std::max(r_.worst_load, number(line, "worst_load"));
    loads_ += number(line, "worst_load"), ++loaded_;
    r_.dead = std::max(r_.dead, integer(line, "dead"));
  }
}

StageResult StageMeter::result() const {
  StageResult r = r_;
  r.loss = late_ > 0 ? late_loss_ / double(late_) : last_loss_;
  r.mean_load = loaded_ > 0 ? loads_ / double(loaded_) : 0;
  r.seconds = seconds_, r.tokens_per_second = tokens_per_second();
  return r;
}

nlohmann::json evaluation_line(const StageResult& r, int64_t step) {
  return {{"event", "evaluation"},
          {"stage", r.name},
          {"step", step},
          {"loss", r.held_out.loss},
          {"bits_per_byte", r.held_out.bits_per_byte},
          {"tokens", r.held_out.tokens},
          {"bytes", r.held_out.bytes},
          {"context", r.context},
          {"stage_tokens", r.tokens},
          {"steps", r.steps},
          {"skipped", r.skipped},
          {"train_loss", r.loss},
          {"tokens_per_second", r.tokens_per_second},
          {"seconds", r.seconds},
          {"peak_bytes", r.peak_bytes},
          {"planned_bytes", r.planned_bytes},
          {"mean_load", r.mean_load},
          {"worst_load", r.worst_load},
          {"dead", r.dead}};
}

StageResult result_of(const nlohmann::json& line) {
  StageResult r;
  r.name = line.value("stage", "");
  r.held_out.loss = number(line, "loss"), r.held_out.bits_per_byte = number(line, "bits_per_byte");
  r.held_out.tokens = integer(line, "tokens"), r.held_out.bytes = integer(line, "bytes");
  r.context = integer(line, "context"), r.tokens = integer(line, "stage_tokens");
  r.steps = integer(line, "steps"), r.skipped = integer(line, "skipped");
  r.loss = number(line, "train_loss");
  r.tokens_per_second = number(line, "tokens_per_second"), r.seconds = number(line, "seconds");
  r.peak_bytes = integer(line, "peak_bytes"), r.planned_bytes = integer(line, "planned_bytes");
  r.mean_load = number(line, "mean_load"), r.worst_load = number(line, "worst_load"), r.dead = integer(line, "dead");
  return r;
}

std::string results_table(const std::vector<StageResult>& results) {
  Table t({"stage", "context", "tokens", "loss", "held-out bits/byte", "tokens/s", "peak memory", "planned",
           "expert load", "worst step", "dead experts"},
          "lrrrrrrrrrr");
  const auto load = [](double v) {
    return v > 0 ? figure("%.2f", v) : std::string("-");
  };  // none: too early, or no experts
  for (const StageResult& r : results)
    t.row({r.name, std::to_string(r.context), human_count(double(r.tokens)), figure("%.3f", r.loss),
           r.held_out.bytes ? figure("%.3f", r.held_out.bits_per_byte) : "-", human_count(r.tokens_per_second),
           human_binary(double(r.peak_bytes)), human_binary(double(r.planned_bytes)), load(r.mean_load),
           load(r.worst_load), std::to_string(r.dead)});
  return t.text();
}

}  // namespace kitbash
