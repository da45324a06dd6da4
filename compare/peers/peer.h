/* One small interface over every peer engine: four tables (0 the rows, 1 to 3 the indexes) of byte
 * keys and values. A `peer_session` belongs to one thread. Functions return 0, PEER_CONFLICT where
 * the transaction must be tried again, or a number that is the engine's own error. `get` returns the
 * value's length, -1 where there is none. `scan` walks one table and counts keys and values;
 * it looks at each value, whose last byte is never 1. `fetch`
 * walks the first index with one cursor and gets the row of each entry (its key ends the entry's);
 * it returns the rows, -1 where an entry has none. */
#pragma once
#include <stddef.h>
#include <stdint.h>

#define PEER_CONFLICT 1000
#define ROW_AT 12 /* where the row's key begins in an entry of the first index */

#ifdef __cplusplus
extern "C" {
#endif

typedef struct peer peer;
typedef struct peer_session peer_session;

#define PEER_FUNCTIONS(name)                                                                     \
  peer *name##_open(const char *dir, uint64_t cache_bytes, int direct);                          \
  void name##_close(peer *);                                                                     \
  int name##_flush_log(peer *);                                                                  \
  int name##_settle(peer *);                                                                     \
  peer_session *name##_session(peer *);                                                          \
  void name##_session_close(peer_session *);                                                     \
  int name##_begin(peer_session *);                                                              \
  int name##_put(peer_session *, int table, const void *key, size_t key_len, const void *value,  \
                 size_t value_len);                                                              \
  int name##_commit(peer_session *);                                                             \
  void name##_abort(peer_session *);                                                             \
  long name##_get(peer_session *, int table, const void *key, size_t key_len, void *into,        \
                  size_t room);                                                                  \
  long name##_scan(peer_session *, int table, const void *from, size_t from_len, long limit,     \
                   uint64_t *bytes);                                                             \
  long name##_fetch(peer_session *, const void *from, size_t from_len, long limit, void *into,   \
                    size_t room);

PEER_FUNCTIONS(rocks)
/* Adds to the number in a value's first eight bytes, without reading it: RocksDB's merge operator. */
int rocks_add(peer_session *, int table, const void *key, size_t key_len, uint64_t amount);
PEER_FUNCTIONS(wired)
PEER_FUNCTIONS(lmdb)

#ifdef __cplusplus
}
#endif
