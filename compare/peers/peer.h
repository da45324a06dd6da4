/* One small interface over every peer engine: four tables (0 the rows, 1 to 3 the indexes) of byte
 * keys and values. A `peer_session` belongs to one thread. Functions return 0, or a number that is
 * the engine's own error; `peer_get` returns the value's length, -1 where there is none. */
#pragma once
#include <stddef.h>
#include <stdint.h>

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
  long name##_get(peer_session *, int table, const void *key, size_t key_len, void *into,        \
                  size_t room);                                                                  \
  long name##_scan(peer_session *, int table, const void *from, size_t from_len, long limit,     \
                   void *last_key, size_t *last_key_len, uint64_t *bytes);

PEER_FUNCTIONS(rocks)
PEER_FUNCTIONS(wired)
PEER_FUNCTIONS(lmdb)

#ifdef __cplusplus
}
#endif
