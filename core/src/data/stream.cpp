#include "data/stream.h"

#include <algorithm>
#include <cmath>
#include <set>
#include <utility>

#include "base/text.h"
#include "data/order.h"
#include "data/reader.h"
#include "kitbash/error.h"

namespace kitbash {
namespace {

constexpr int64_t kMeasured = 256;  // samples of a source that its mean length is taken from

}  // namespace

struct DataStream::Impl {
  const DataConfig& data;
  Registry& registry;
  const Tokenizer& tokenizer;
  const StreamOptions options;
  const bool endless;
  const int64_t bos, eos;

  struct Source {
    std::string name;
    double weight = 1;
    int64_t empty = 0;  // empty samples since the last one with text
  };
  std::vector<Source> mix;  // by name; those with samples
  std::vector<double> weights;
  std::map<std::string, std::unique_ptr<SourceReader>> readers;
  DataPosition position;  // without what is open: the lanes know it
  std::vector<std::string> notes;
  std::set<std::string> told;

  // The sample at hand: open (at.offset > 0), or the one to be drawn next. Its tokens stay until they are used up, so that a
  // sample of many documents is read once.
  struct Lane {
    OpenSample at;
    bool ready = false;         // the tokens are there; not so after seek()
    std::vector<int32_t> ids;   // [tokens] with eos
    std::vector<float> weight;  // [tokens] as targets
    int64_t left() const { return int64_t(ids.size()) - at.offset; }
  };
  std::vector<Lane> lanes;
  SampleText sample_text;         // of the sample read last
  std::vector<int16_t> bytes_of;  // [vocab] bytes that an id stands for; -1: not known yet

  Impl(const DataConfig& d, Registry& r, const Tokenizer& t, const StreamOptions& o)
      : data(d), registry(r), tokenizer(t), options(o), endless(o.split == "train"), bos(t.bos()), eos(t.eos()) {
    lanes.resize(size_t(endless ? d.interleave : 1));
    const int64_t least = bos >= 0 ? 2 : 1;
    if (o.context < least || o.micro_tokens < o.context || o.max_documents < 1)
      kb::fail("[data] context must be at least ", least,
               ", micro_tokens at least context and max_documents at least 1 but got ", o.context, ", ", o.micro_tokens,
               ", ", o.max_documents);
    std::map<std::string, double> shares = o.mix;
    if (shares.empty())
      for (const auto& [name, c] : data.sources) shares[name] = 1;
    if (shares.empty()) kb::fail("[data] the recipe must have sources; write [data.sources.NAME]");
    for (const auto& [name, share] : shares) {
      if (!(share > 0) || !std::isfinite(share))
        kb::fail("[data] the share of '", name, "' must be above 0 and finite but got ", share);
      if (reader(name).count())
        mix.push_back({name, share, 0});
      else
        note(kb::text("source '", name, "' has no samples in the split '", o.split, "' and is left out"));
    }
    if (mix.empty())
      kb::fail("[data] the split '", o.split, "' must have samples but no source has any; ",
               endless ? "give a source text" : "name a file as held_out of a source, or do not ask for an evaluation");
    if (endless && mix.size() > 1)
      for (auto& s : mix) s.weight /= mean_tokens(s.name);
    for (const auto& s : mix) weights.push_back(s.weight);
    bytes_of.assign(size_t(tokenizer.vocab()), -1);
  }

  void note(const std::string& text) { notes.push_back(text); }
  void note_once(const std::string& topic, const std::string& text) {
    if (told.insert(topic).second) note(text);
  }
  const SourceReader& reader(const std::string& name) {
    auto& r = readers[name];
    if (!r) {
      const auto c = data.sources.find(name);
      if (c == data.sources.end()) kb::fail("[data] there is no source '", name, "' in the recipe");
      r = std::make_unique<SourceReader>(name, *c->second, registry, options.split);
    }
    return *r;
  }
  double mean_tokens(const std::string& name) {
    const SourceReader& r = reader(name);
    const int64_t n = std::min(kMeasured, r.count());
    Lane l;
    double sum = 0;
    for (int64_t i = 0; i < n; ++i) {
      take(l, r, name, 0, int64_t(double(i) * double(r.count()) / double(n)));
      sum += double(l.ids.size());
    }
    return std::max(1.0, sum / double(n));
  }

  // Fills the lane with tokens; an empty sample gives none, not even an eos.
  void take(Lane& l, const SourceReader& r, const std::string& name, int64_t epoch, int64_t index) {
    r.sample(mix_bits(mix_bits(options.seed, name) + uint64_t(epoch)), index, sample_text);
    l.ids.clear(), l.weight.clear();
    const std::string_view all = sample_text.text;
    size_t begin = 0;
    for (const auto& s : sample_text.segments) {
      tokenizer.encode_onto(all.substr(begin, s.end - begin), l.ids);
      l.weight.resize(l.ids.size(), s.weight);
      begin = s.end;
    }
    if (!l.ids.empty() && eos >= 0) l.ids.push_back(int32_t(eos)), l.weight.push_back(l.weight.back());
  }
  // Sample number `drawn` of a source.
  void take_drawn(Lane& l, const std::string& name, int64_t drawn) {
    const SourceReader& r = reader(name);
    const int64_t epoch = drawn / r.count(), i = drawn % r.count();
    const uint64_t seed = mix_bits(mix_bits(options.seed, name) ^ mix_bits(uint64_t(epoch)));
    const int64_t index = endless ? permuted(seed, i, r.count()) : i;
    take(l, r, name, epoch, index);
    if (i == 0 && epoch > 0)
      note_once(kb::text(name, " epoch ", epoch),
                kb::text("source '", name, "' begins epoch ", epoch + 1, " after ", drawn, " samples"));
    if (l.ids.empty())
      note_once(kb::text(name, " empty ", index),
                kb::text("source '", name, "' sample ", index, " is empty; left out"));
    if (const size_t at = invalid_utf8(sample_text.text); at != std::string::npos)
      note_once(name + " utf8", kb::text("source '", name, "' sample ", index, " is no valid UTF-8 from byte ", at,
                                         " on; kept as bytes (told once for a source)"));
  }

  int64_t drawn(const std::string& name) const {
    const auto i = position.drawn.find(name);
    return i == position.drawn.end() ? 0 : i->second;
  }
  Source* choose() {
    if (endless) return &mix[drawn_source(options.seed, position.draws, weights)];
    for (auto& s : mix)
      if (drawn(s.name) < reader(s.name).count()) return &s;
    return nullptr;
  }
  void count_draw(const std::string& name) { ++position.draws, ++position.drawn[name]; }

  // Has the lane a sample with tokens left? Draws no sample but empty ones: a sample counts as drawn with its first token.
  bool more(Lane& l) {
    if (l.ready) return true;
    if (l.at.offset > 0) {
      take_drawn(l, l.at.source, l.at.number);
      if (l.left() <= 0)
        kb::fail("[data] the position is token ", l.at.offset, " of sample ", l.at.number, " of '", l.at.source,
                 "', which has ", l.ids.size(), "; the source has changed since it was saved");
      return l.ready = true;
    }
    while (Source* s = choose()) {
      l.at = {s->name, drawn(s->name), 0};
      take_drawn(l, l.at.source, l.at.number);
      if (!l.ids.empty()) return s->empty = 0, l.ready = true;
      count_draw(s->name);
      if (endless && ++s->empty >= reader(s->name).count())
        kb::fail("[data] source '", s->name, "' must have text but its last ", s->empty, " samples are all empty");
    }
    return false;
  }

  int64_t bytes(int32_t id) {
    int16_t& n = bytes_of[size_t(id)];
    if (n < 0) n = int16_t(std::min<size_t>(tokenizer.decode({id}).size(), INT16_MAX));
    return n;
  }
  void aim(MicroBatch& b, const Lane& l, int64_t at) {  // the lane's next token becomes the target of position `at`
    const int32_t id = l.ids[size_t(l.at.offset)];
    const float w = l.weight[size_t(l.at.offset)];
    b.target[size_t(at)] = id, b.weight[size_t(at)] = w;
    if (w > 0) ++b.counted, b.bytes += bytes(id);
  }
  void put(MicroBatch& b, int32_t token) { b.tokens.push_back(token), b.target.push_back(-1), b.weight.push_back(0); }

  // Moves n tokens of the lane into the batch. `linked`: the token before them in the batch has the first as its target.
  void move(MicroBatch& b, Lane& l, int64_t n, bool linked) {
    if (l.at.offset == 0) count_draw(l.at.source);
    for (int64_t i = 0; i < n; ++i, ++l.at.offset) {
      if (i > 0 || linked) aim(b, l, int64_t(b.tokens.size()) - 1);
      put(b, l.ids[size_t(l.at.offset)]);
    }
    if (l.left() > 0) return;
    l.at = {};
    l.ready = false;
  }

  // One document of at most `room` tokens, of the lane whose turn it is; false: none is left, or it does not fit.
  bool document(MicroBatch& b, int64_t room) {
    Lane& l = lanes[size_t(position.turn)];
    const int64_t head = bos >= 0;
    if (room <= head || !more(l)) return false;
    const int64_t longest = std::min(room, options.context);
    if (!data.join && head + std::min(l.left(), options.context - head) > room) return false;
    const int64_t begin = int64_t(b.tokens.size());
    if (head) put(b, int32_t(bos));
    const bool rest = l.at.offset > 0;  // what came before the cut aims at its first token already
    const auto used = [&] { return int64_t(b.tokens.size()) - begin; };
    move(b, l, std::min(l.left(), longest - used()), head && !rest);
    while (data.join && used() < longest && more(l)) move(b, l, std::min(l.left(), longest - used()), true);
    if (l.at.offset > 0) aim(b, l, int64_t(b.tokens.size()) - 1);
    b.cu.push_back(int32_t(b.tokens.size()));
    position.turn = (position.turn + 1) % int64_t(lanes.size());
    return true;
  }

  void check(const DataPosition& p) {
    int64_t sum = 0;
    for (const auto& [name, n] : p.drawn) {
      if (n < 0) kb::fail("[data] the position must count at least 0 samples of '", name, "' but counts ", n);
      sum += n;
    }
    if (p.draws != sum)
      kb::fail("[data] the position must have the sum of its sources, ", sum, ", as draws but has ", p.draws);
    const auto lane = [&](const char* what, int64_t i) {
      if (i < 0) kb::fail("[data] the position must count lanes from 0 but ", what, " lane ", i);
      if (i >= int64_t(lanes.size()))
        kb::fail("[data] the position must be within ", lanes.size(), " lanes but ", what, " lane ", i,
                 "; set interleave to what it was when the position was saved");
    };
    lane("its turn is at", p.turn);
    std::map<std::pair<std::string, int64_t>, int64_t> lane_of;
    for (const auto& [i, s] : p.open) {
      lane("a sample is open in", i);
      if (s.offset < 1)
        kb::fail("[data] an open sample must have used a token but lane ", i, " is at token ", s.offset, " of '",
                 s.source, "'");
      const auto drawn = p.drawn.find(s.source);
      const int64_t n = drawn == p.drawn.end() ? 0 : drawn->second;
      if (s.number < 0 || s.number >= n)
        kb::fail("[data] an open sample must be among the ", n, " drawn from '", s.source, "' but lane ", i,
                 " is in number ", s.number);
      const auto [other, alone] = lane_of.emplace(std::pair(s.source, s.number), i);
      if (!alone)
        kb::fail("[data] a sample must be open in one lane but number ", s.number, " of '", s.source,
                 "' is open in lanes ", other->second, " and ", i);
      if (!reader(s.source).count())
        kb::fail("[data] lane ", i, " is in source '", s.source, "', which has no samples in the split '",
                 options.split, "'");
    }
  }
};

DataStream::DataStream(const DataConfig& data, Registry& registry, const Tokenizer& tokenizer, const StreamOptions& o)
    : impl_(std::make_unique<Impl>(data, registry, tokenizer, o)) {}
DataStream::~DataStream() = default;

MicroBatch DataStream::next() {
  const StreamOptions& o = impl_->options;
  MicroBatch b;
  b.tokens.reserve(size_t(o.micro_tokens)), b.target.reserve(size_t(o.micro_tokens));
  b.weight.reserve(size_t(o.micro_tokens));
  b.cu.push_back(0);
  while (int64_t(b.cu.size()) <= o.max_documents && impl_->document(b, o.micro_tokens - int64_t(b.tokens.size()))) {
  }
  b.used = int64_t(b.tokens.size()), b.documents = int64_t(b.cu.size()) - 1;
  return b;
}
DataPosition DataStream::position() const {
  DataPosition p = impl_->position;
  for (size_t i = 0; i < impl_->lanes.size(); ++i)
    if (const OpenSample& s = impl_->lanes[i].at; s.offset > 0) p.open[int64_t(i)] = s;
  return p;
}

void DataStream::seek(const DataPosition& p) {
  Impl& s = *impl_;
  s.check(p);
  s.position = p;
  s.position.open.clear();
  for (auto& l : s.lanes) l.at = {}, l.ready = false;
  for (const auto& [i, open] : p.open) s.lanes[size_t(i)].at = open;
}
int64_t DataStream::samples(const std::string& source) const { return impl_->reader(source).count(); }
std::vector<std::string> DataStream::notices() { return std::exchange(impl_->notes, {}); }

}  // namespace kitbash
