// RocksDB behind peer.h, with the settings that make a comparison fair: LZ4 with zstd at the bottom,
// 16 KB blocks, Bloom 10 bits, a block cache of 4 shards, write buffers charged to the cache.
#include "peer.h"

#include <rocksdb/cache.h>
#include <rocksdb/db.h>
#include <rocksdb/filter_policy.h>
#include <rocksdb/merge_operator.h>
#include <rocksdb/options.h>
#include <rocksdb/table.h>
#include <rocksdb/write_batch.h>
#include <rocksdb/write_buffer_manager.h>

#include <cstring>
#include <memory>
#include <vector>

using namespace rocksdb;

struct peer {
  DB *db = nullptr;
  std::vector<ColumnFamilyHandle *> tables;
};

struct peer_session {
  peer *of;
  WriteBatch batch;
  PinnableSlice found;
};

// Values and operands begin with a number of eight bytes; an operand is nothing else.
class Add : public AssociativeMergeOperator {
 public:
  bool Merge(const Slice &, const Slice *old, const Slice &operand, std::string *merged,
             Logger *) const override {
    if (!old) {
      merged->assign(operand.data(), operand.size());
      return true;
    }
    if (old->size() < 8 || operand.size() < 8) return false;
    uint64_t sum, more;
    memcpy(&sum, old->data(), 8);
    memcpy(&more, operand.data(), 8);
    sum += more;
    merged->assign(old->data(), old->size());
    memcpy(&(*merged)[0], &sum, 8);
    return true;
  }
  const char *Name() const override { return "add"; }
};

static int code(const Status &s) { return s.ok() ? 0 : 1 + static_cast<int>(s.code()); }

peer *rocks_open(const char *dir, uint64_t cache_bytes, int direct) {
  auto cache = NewLRUCache(cache_bytes, 2);
  Options o;
  o.create_if_missing = o.create_missing_column_families = true;
  o.write_buffer_manager = std::make_shared<WriteBufferManager>(cache_bytes * 3 / 8, cache);
  o.max_background_jobs = 3;
  o.use_direct_reads = direct;
  o.use_direct_io_for_flush_and_compaction = direct;
  o.compression = kLZ4Compression;
  o.bottommost_compression = kZSTD;
  o.level_compaction_dynamic_level_bytes = true;
  o.optimize_filters_for_hits = true;
  o.write_buffer_size = cache_bytes / 8;
  o.manual_wal_flush = true;
  o.max_total_wal_size = 1ull << 30;
  BlockBasedTableOptions t;
  t.block_cache = cache;
  t.block_size = 16 << 10;
  t.filter_policy.reset(NewBloomFilterPolicy(10, false));
  t.cache_index_and_filter_blocks = true;
  t.pin_l0_filter_and_index_blocks_in_cache = true;
  o.table_factory.reset(NewBlockBasedTableFactory(t));
  o.merge_operator = std::make_shared<Add>();
  std::vector<ColumnFamilyDescriptor> families;
  families.emplace_back(kDefaultColumnFamilyName, o);
  for (const char *name : {"one", "two", "three"}) families.emplace_back(name, o);
  auto *p = new peer;
  Status s = DB::Open(o, dir, families, &p->tables, &p->db);
  if (!s.ok()) {
    fprintf(stderr, "rocksdb: %s\n", s.ToString().c_str());
    delete p;
    return nullptr;
  }
  return p;
}

void rocks_close(peer *p) {
  for (auto *t : p->tables) p->db->DestroyColumnFamilyHandle(t);
  p->db->Close();
  delete p->db;
  delete p;
}

int rocks_flush_log(peer *p) { return code(p->db->FlushWAL(true)); }

int rocks_settle(peer *p) {
  for (auto *t : p->tables) {
    if (int e = code(p->db->CompactRange(CompactRangeOptions(), t, nullptr, nullptr))) return e;
  }
  return 0;
}

peer_session *rocks_session(peer *p) {
  auto *s = new peer_session;
  s->of = p;
  return s;
}

void rocks_session_close(peer_session *s) { delete s; }

int rocks_begin(peer_session *s) {
  s->batch.Clear();
  return 0;
}

int rocks_put(peer_session *s, int table, const void *key, size_t key_len, const void *value,
              size_t value_len) {
  return code(s->batch.Put(s->of->tables[table], Slice((const char *)key, key_len),
                           Slice((const char *)value, value_len)));
}

int rocks_add(peer_session *s, int table, const void *key, size_t key_len, uint64_t amount) {
  return code(s->batch.Merge(s->of->tables[table], Slice((const char *)key, key_len),
                             Slice((const char *)&amount, 8)));
}

void rocks_abort(peer_session *s) { s->batch.Clear(); }

int rocks_commit(peer_session *s) { return code(s->of->db->Write(WriteOptions(), &s->batch)); }

long rocks_get(peer_session *s, int table, const void *key, size_t key_len, void *into,
               size_t room) {
  s->found.Reset();
  Status st = s->of->db->Get(ReadOptions(), s->of->tables[table], Slice((const char *)key, key_len),
                             &s->found);
  if (!st.ok()) return -1;
  size_t n = s->found.size() < room ? s->found.size() : room;
  memcpy(into, s->found.data(), n);
  return (long)s->found.size();
}

long rocks_scan(peer_session *s, int table, const void *from, size_t from_len, long limit,
                uint64_t *bytes) {
  ReadOptions o;
  o.adaptive_readahead = true;
  std::unique_ptr<Iterator> it(s->of->db->NewIterator(o, s->of->tables[table]));
  long n = 0;
  for (it->Seek(Slice((const char *)from, from_len)); it->Valid() && n < limit; it->Next(), n++) {
    Slice v = it->value();
    *bytes += it->key().size() + v.size() + (!v.empty() && v[v.size() - 1] == 1);
  }
  return it->status().ok() ? n : -1;
}

long rocks_fetch(peer_session *s, const void *from, size_t from_len, long limit, void *into,
                 size_t room) {
  std::unique_ptr<Iterator> it(s->of->db->NewIterator(ReadOptions(), s->of->tables[1]));
  long n = 0;
  for (it->Seek(Slice((const char *)from, from_len)); it->Valid() && n < limit; it->Next(), n++) {
    Slice entry = it->key();
    entry.remove_prefix(ROW_AT);
    if (rocks_get(s, 0, entry.data(), entry.size(), into, room) < 0) return -1;
  }
  return it->status().ok() ? n : -1;
}
