#include "checkpoint/manifest.h"

#include <checkpoint.pb.h>

#include <algorithm>
#include <cstring>
#include <map>
#include <set>

#include "base/text.h"
#include "checkpoint/read.h"
#include "kitbash/op.h"

namespace kitbash {
namespace {

constexpr struct {
  uint32_t dtype;
  const char* name;
} kDtypes[] = {{KB_U8, "U8"}, {KB_I32, "I32"}, {KB_I64, "I64"}, {KB_BF16, "BF16"}, {KB_F32, "F32"}, {KB_F64, "F64"}};

std::string raw(const Digest& d) { return {reinterpret_cast<const char*>(d.data()), d.size()}; }

Digest digest_of(const std::string& bytes, const std::string& where) {
  Digest d;
  if (bytes.size() != d.size()) kb::fail(where, " checksum must have ", d.size(), " bytes but has ", bytes.size());
  std::memcpy(d.data(), bytes.data(), d.size());
  return d;
}

proto::Life life_to_proto(Life l) {
  return l == Life::param ? proto::PARAMETER : l == Life::model ? proto::MODEL : proto::OPTIMIZER;
}
Life life_from_proto(proto::Life l, const std::string& where) {
  if (l == proto::PARAMETER) return Life::param;
  if (l == proto::MODEL) return Life::model;
  if (l == proto::OPTIMIZER) return Life::optimizer;
  kb::fail(where, " life must be parameter, model or optimizer but is number ", int(l));
}

// A name in the folder of the checkpoint, never a way out of it.
void check_file_name(const std::string& name, const std::string& where) {
  if (name.empty() || name == "." || name == ".." || name.find('/') != std::string::npos ||
      name.find('\0') != std::string::npos || name == kManifestFile || name == kManifestSum)
    kb::fail(where, " a file must be named without a folder but one is '", name, "'");
}

void write_position(const TrainPosition& p, proto::Position& out) {
  out.set_step(p.step);
  out.set_stage(p.stage);
  out.set_stage_step(p.stage_step);
  out.set_tokens(p.tokens);
  out.set_stage_tokens(p.stage_tokens);
  out.set_skipped(p.skipped), out.set_rollbacks(p.rollbacks);
  out.set_refused_in_a_row(p.refused_in_a_row);
  for (double v : p.recent_loss) out.add_recent_loss(v);
  for (double v : p.recent_norm) out.add_recent_norm(v);
  proto::DataPosition& d = *out.mutable_data();
  d.set_draws(p.data.draws);
  for (const auto& [source, n] : p.data.drawn) {
    proto::Drawn& one = *d.add_drawn();
    one.set_source(source);
    one.set_samples(n);
  }
  d.set_turn(p.data.turn);
  for (const auto& [lane, s] : p.data.open) {
    proto::OpenSample& one = *d.add_open();
    one.set_lane(lane);
    one.set_source(s.source);
    one.set_number(s.number), one.set_offset(s.offset);
  }
}

TrainPosition read_position(const proto::Position& in) {
  TrainPosition p;
  p.step = in.step(), p.stage = in.stage(), p.stage_step = in.stage_step();
  p.tokens = in.tokens(), p.stage_tokens = in.stage_tokens(), p.skipped = in.skipped();
  p.rollbacks = in.rollbacks(), p.refused_in_a_row = in.refused_in_a_row();
  p.recent_loss.assign(in.recent_loss().begin(), in.recent_loss().end());
  p.recent_norm.assign(in.recent_norm().begin(), in.recent_norm().end());
  p.data.draws = in.data().draws();
  for (const proto::Drawn& d : in.data().drawn()) p.data.drawn[d.source()] = d.samples();
  p.data.turn = in.data().turn();
  for (const proto::OpenSample& s : in.data().open()) p.data.open[s.lane()] = {s.source(), s.number(), s.offset()};
  return p;
}

TensorRecord read_tensor(const proto::Tensor& in, const std::map<std::string, int64_t>& files,
                         const std::string& manifest) {
  const std::string where = "[" + manifest + ": " + in.name() + "]";
  TensorRecord t;
  t.name = in.name();
  t.life = life_from_proto(in.life(), where);
  for (const auto& d : kDtypes)
    if (in.dtype() == d.name) t.dtype = d.dtype;
  if (t.dtype == KB_NONE) kb::fail(where, " dtype must be one that this program knows but is '", in.dtype(), "'");
  if (in.shape_size() > KB_MAX_RANK) kb::fail(where, " has rank ", in.shape_size(), " of at most ", KB_MAX_RANK);
  int64_t total = int64_t(dtype_bytes(t.dtype));
  for (int64_t d : in.shape()) {
    if (d < 0 || __builtin_mul_overflow(total, d, &total)) kb::fail(where, " the shape is negative or too large");
    t.shape.push_back(d);
  }
  for (const proto::Piece& p : in.pieces()) {
    const auto file = files.find(p.file());
    if (file == files.end()) kb::fail(where, " lies in '", p.file(), "', which is not among the files");
    const uint64_t size = uint64_t(file->second);
    if (p.file_offset() > size || p.bytes() > size - p.file_offset())
      kb::fail(where, " ends behind ", p.file(), " (", size, " bytes)");
    t.pieces.push_back({p.file(), p.key(), int64_t(p.file_offset()), int64_t(p.bytes()), p.global_offset(),
                        digest_of(p.xxh3_128(), where)});
  }
  std::stable_sort(t.pieces.begin(), t.pieces.end(),
                   [](const auto& a, const auto& b) { return a.global_offset < b.global_offset; });
  const int64_t width = int64_t(dtype_bytes(t.dtype));
  int64_t at = 0;
  for (const PieceRecord& p : t.pieces) {
    if (p.bytes % width || p.global_offset != at)
      kb::fail(where, " pieces must cover it once but one begins at element ", p.global_offset, " where ", at,
               " is due");
    at += p.bytes / width;
  }
  if (at != t.elements() || t.pieces.empty())
    kb::fail(where, " pieces must cover ", t.elements(), " elements but cover ", at);
  return t;
}

}  // namespace

int64_t TensorRecord::elements() const {
  int64_t n = 1;
  for (int64_t d : shape) n *= d;
  return n;
}

bool saved_life(Life l) { return l == Life::param || l == Life::model || l == Life::optimizer; }

std::string safetensors_dtype(uint32_t dtype) {
  for (const auto& d : kDtypes)
    if (d.dtype == dtype) return d.name;
  kb::fail("dtype ", dtype, " cannot be stored");
}

std::string record_text(const TensorRecord& t) { return type_text(make_type(t.dtype, t.shape)); }

std::string encode_manifest(const Manifest& m) {
  proto::Manifest out;
  out.set_format(kCheckpointFormat);
  out.set_kitbash(m.info.kitbash);
  out.set_written(m.info.written);
  out.set_recipe_name(m.info.recipe_name);
  out.set_recipe(m.info.recipe);
  out.set_seed(m.info.recipe_seed);
  out.set_loss(m.info.loss);
  for (const auto& [id, identity] : m.info.plugins) {
    proto::Plugin& p = *out.add_plugins();
    p.set_id(id);
    p.set_identity(identity);
  }
  write_position(m.info.position, *out.mutable_position());
  for (const FileRecord& f : m.files) {
    proto::File& o = *out.add_files();
    o.set_name(f.name);
    o.set_bytes(uint64_t(f.bytes));
    o.set_xxh3_128(raw(f.digest));
  }
  for (const TensorRecord& t : m.tensors) {
    proto::Tensor& o = *out.add_tensors();
    o.set_name(t.name);
    o.set_life(life_to_proto(t.life));
    o.set_dtype(safetensors_dtype(t.dtype));
    for (int64_t d : t.shape) o.add_shape(d);
    for (const PieceRecord& p : t.pieces) {
      proto::Piece& q = *o.add_pieces();
      q.set_file(p.file);
      q.set_key(p.key);
      q.set_file_offset(uint64_t(p.file_offset));
      q.set_bytes(uint64_t(p.bytes));
      q.set_global_offset(p.global_offset);
      q.set_xxh3_128(raw(p.digest));
    }
  }
  std::string bytes;
  if (!out.SerializeToString(&bytes)) kb::fail("[checkpoint] the manifest must have less than 2 GiB");
  return bytes;
}

Manifest decode_manifest(std::string_view bytes, const std::string& where) {
  proto::Manifest in;
  if (bytes.size() > size_t(INT32_MAX) || !in.ParseFromArray(bytes.data(), int(bytes.size())))
    kb::fail("[", where, "] must be a Protobuf manifest but cannot be parsed");
  if (in.format() == 0 || in.format() > kCheckpointFormat)
    kb::fail("[", where, "] has format ", in.format(), ", written by kitbash ", in.kitbash(),
             ", but this program reads formats 1 to ", kCheckpointFormat, "; use a newer program");
  Manifest m;
  m.info.kitbash = in.kitbash(), m.info.written = in.written();
  m.info.recipe_name = in.recipe_name(), m.info.recipe = in.recipe();
  m.info.recipe_seed = in.seed(), m.info.loss = in.loss();
  for (const proto::Plugin& p : in.plugins()) m.info.plugins[p.id()] = p.identity();
  m.info.position = read_position(in.position());
  m.info.bytes = int64_t(bytes.size());
  std::map<std::string, int64_t> files;
  for (const proto::File& f : in.files()) {
    check_file_name(f.name(), "[" + where + "]");
    if (f.bytes() > uint64_t(INT64_MAX) || !files.emplace(f.name(), int64_t(f.bytes())).second)
      kb::fail("[", where, "] names ", f.name(), " twice, or with an impossible size");
    m.files.push_back({f.name(), int64_t(f.bytes()), digest_of(f.xxh3_128(), "[" + where + ": " + f.name() + "]")});
    m.info.bytes += int64_t(f.bytes());
  }
  std::set<std::string> names;
  for (const proto::Tensor& t : in.tensors()) {
    if (!names.insert(t.name()).second) kb::fail("[", where, ": ", t.name(), "] must be there once but is there twice");
    m.tensors.push_back(read_tensor(t, files, where));
  }
  return m;
}

std::string manifest_sum(std::string_view manifest) { return hex(xxh3(manifest)) + "  " + kManifestFile + "\n"; }

Manifest open_manifest(const std::string& path) {
  const std::string file = path + "/" + kManifestFile, sum_file = path + "/" + kManifestSum;
  const std::string bytes = read_small_file(file), sum = read_small_file(sum_file);
  if (sum != manifest_sum(bytes))
    kb::fail("[", file, "] must have the checksum in ", kManifestSum, " but has ", hex(xxh3(bytes)),
             "; one of the two files has been damaged");
  Manifest m = decode_manifest(bytes, file);
  m.info.path = path;
  m.info.bytes += int64_t(sum.size());
  return m;
}

}  // namespace kitbash
