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
  DataPosition position;
  std::vector<std::string> notes;
  std::set<std::string> told;

  // The sample at hand: open (position.offset > 0), or the one to be drawn next.
  struct Hand {
    bool ready = false;
    std::string source;
    std::vector<int32_t> ids;   // [tokens] with eos
    std::vector<float> weight;  // [tokens] as targets
    SampleText text;
  } hand;
  std::vector<int16_t> bytes_of;  // [vocab] bytes that an id stands for; -1: not known yet

  Impl(const DataConfig& d, Registry& r, const Tokenizer& t, const StreamOptions& o)
      : data(d), registry(r), tokenizer(t), options(o), endless(o.split == "train"), bos(t.bos()), eos(t.eos()) {
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
    double sum = 0;
    for (int64_t i = 0; i < n; ++i) {
      take(r, name, 0, int64_t(double(i) * double(r.count()) / double(n)));
      sum += double(hand.ids.size());
    }
    return std::max(1.0, sum / double(n));
  }

  // Fills the hand with tokens; an empty sample gives none, not even an eos.
  void take(const SourceReader& r, const std::string& name, int64_t epoch, int64_t index) {
    r.sample(mix_bits(mix_bits(options.seed, name) + uint64_t(epoch)), index, hand.text);
    hand.ready = false;
    hand.source = name;
    hand.ids.clear(), hand.weight.clear();
    const std::string_view text = hand.text.text;
    size_t begin = 0;
    for (const auto& s : hand.text.segments) {
      tokenizer.encode_onto(text.substr(begin, s.end - begin), hand.ids);
      hand.weight.resize(hand.ids.size(), s.weight);
      begin = s.end;
    }
    if (!hand.ids.empty() && eos >= 0) hand.ids.push_back(int32_t(eos)), hand.weight.push_back(hand.weight.back());
  }
  // Sample number `drawn` of a source.
  void take_drawn(const std::string& name, int64_t drawn) {
    const SourceReader& r = reader(name);
    const int64_t epoch = drawn / r.count(), i = drawn % r.count();
    const uint64_t seed = mix_bits(mix_bits(options.seed, name) ^ mix_bits(uint64_t(epoch)));
    const int64_t index = endless ? permuted(seed, i, r.count()) : i;
    take(r, name, epoch, index);
    if (i == 0 && epoch > 0)
      note_once(kb::text(name, " epoch ", epoch),
                kb::text("source '", name, "' begins epoch ", epoch + 1, " after ", drawn, " samples"));
    if (hand.ids.empty())
      note_once(kb::text(name, " empty ", index),
                kb::text("source '", name, "' sample ", index, " is empty; left out"));
    if (const size_t at = invalid_utf8(hand.text.text); at != std::string::npos)
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

  // Has the hand a sample with tokens left? Draws no sample but empty ones: a sample counts as drawn with its first token.
  bool more() {
    if (hand.ready) return true;
    if (position.offset > 0) {
      take_drawn(position.source, drawn(position.source) - 1);
      if (size_t(position.offset) >= hand.ids.size())
        kb::fail("[data] the position is token ", position.offset, " of a sample of '", position.source, "' that has ",
                 hand.ids.size(), "; the source has changed since it was saved");
      return hand.ready = true;
    }
    while (Source* s = choose()) {
      take_drawn(s->name, drawn(s->name));
      if (!hand.ids.empty()) return s->empty = 0, hand.ready = true;
      count_draw(s->name);
      if (endless && ++s->empty >= reader(s->name).count())
        kb::fail("[data] source '", s->name, "' must have text but its last ", s->empty, " samples are all empty");
    }
    return false;
  }
  int64_t left() const { return int64_t(hand.ids.size()) - position.offset; }

  int64_t bytes(int32_t id) {
    int16_t& n = bytes_of[size_t(id)];
    if (n < 0) n = int16_t(std::min<size_t>(tokenizer.decode({id}).size(), INT16_MAX));
    return n;
  }
  void aim(MicroBatch& b, int64_t at) {  // the hand's next token becomes the target of position `at`
    const int32_t id = hand.ids[size_t(position.offset)];
    const float w = hand.weight[size_t(position.offset)];
    b.target[size_t(at)] = id, b.weight[size_t(at)] = w;
    if (w > 0) ++b.counted, b.bytes += bytes(id);
  }
  void put(MicroBatch& b, int32_t token) { b.tokens.push_back(token), b.target.push_back(-1), b.weight.push_back(0); }

  // Moves n tokens of the hand into the batch. `linked`: the token before them in the batch has the first as its target.
  void move(MicroBatch& b, int64_t n, bool linked) {
    if (position.offset == 0) {
      count_draw(hand.source);
      position.source = hand.source;
    }
    for (int64_t i = 0; i < n; ++i, ++position.offset) {
      if (i > 0 || linked) aim(b, int64_t(b.tokens.size()) - 1);
      put(b, hand.ids[size_t(position.offset)]);
    }
    if (left() > 0) return;
    position.offset = 0, position.source.clear();
    hand.ready = false;
  }

  // One document of at most `room` tokens; false: none is left, or none fits.
  bool document(MicroBatch& b, int64_t room) {
    const int64_t head = bos >= 0;
    if (room <= head || !more()) return false;
    const int64_t longest = std::min(room, options.context);
    if (!data.join && head + std::min(left(), options.context - head) > room) return false;
    const int64_t begin = int64_t(b.tokens.size());
    if (head) put(b, int32_t(bos));
    const bool rest = position.offset > 0;  // what came before the cut aims at its first token already
    const auto used = [&] { return int64_t(b.tokens.size()) - begin; };
    move(b, std::min(left(), longest - used()), head && !rest);
    while (data.join && used() < longest && more()) move(b, std::min(left(), longest - used()), true);
    if (position.offset > 0) aim(b, int64_t(b.tokens.size()) - 1);
    b.cu.push_back(int32_t(b.tokens.size()));
    return true;
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
const DataPosition& DataStream::position() const { return impl_->position; }

void DataStream::seek(const DataPosition& p) {
  Impl& s = *impl_;
  int64_t sum = 0;
  for (const auto& [name, n] : p.drawn) {
    if (n < 0) kb::fail("[data] the position must count at least 0 samples of '", name, "' but counts ", n);
    sum += n;
  }
  if (p.draws != sum)
    kb::fail("[data] the position must have the sum of its sources, ", sum, ", as draws but has ", p.draws);
  const auto drawn = p.drawn.find(p.source);
  if (p.offset < 0 || (p.offset > 0 && (drawn == p.drawn.end() || drawn->second < 1)))
    kb::fail("[data] the position is at token ", p.offset, " of a sample of '", p.source,
             "' but none was drawn from it");
  if (p.offset > 0 && !s.reader(p.source).count())
    kb::fail("[data] the position is in source '", p.source, "', which has no samples in the split '", s.options.split,
             "'");
  s.position = p;
  s.hand.ready = false;
}
int64_t DataStream::samples(const std::string& source) const { return impl_->reader(source).count(); }
std::vector<std::string> DataStream::notices() { return std::exchange(impl_->notes, {}); }

}  // namespace kitbash
