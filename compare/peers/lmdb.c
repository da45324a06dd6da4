/* LMDB behind peer.h: MDB_NOSYNC, one read transaction kept per session and renewed for each read. */
#include "peer.h"

#include <lmdb.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef struct {
  MDB_env *environment;
  MDB_dbi tables[4];
} lm_peer;

typedef struct {
  lm_peer *of;
  MDB_txn *write, *read;
} lm_session;

peer *lmdb_open(const char *dir, uint64_t cache_bytes, int direct) {
  (void)cache_bytes;
  (void)direct;
  static const char *const names[4] = {"rows", "one", "two", "three"};
  lm_peer *p = calloc(1, sizeof *p);
  MDB_txn *t = NULL;
  int e = mdb_env_create(&p->environment);
  if (e == 0) e = mdb_env_set_maxdbs(p->environment, 8);
  if (e == 0) e = mdb_env_set_mapsize(p->environment, (size_t)1 << 36);
  if (e == 0) e = mdb_env_open(p->environment, dir, MDB_NOSYNC | MDB_NOTLS, 0644);
  if (e == 0) e = mdb_txn_begin(p->environment, NULL, 0, &t);
  for (int i = 0; e == 0 && i < 4; i++) e = mdb_dbi_open(t, names[i], MDB_CREATE, &p->tables[i]);
  if (e == 0) e = mdb_txn_commit(t);
  if (e != 0) {
    fprintf(stderr, "lmdb: %s\n", mdb_strerror(e));
    free(p);
    return NULL;
  }
  return (peer *)p;
}

void lmdb_close(peer *of) {
  lm_peer *p = (lm_peer *)of;
  mdb_env_close(p->environment);
  free(p);
}

int lmdb_flush_log(peer *of) {
  (void)of;
  return 0;
}

int lmdb_settle(peer *of) { return mdb_env_sync(((lm_peer *)of)->environment, 1); }

peer_session *lmdb_session(peer *of) {
  lm_session *s = calloc(1, sizeof *s);
  s->of = (lm_peer *)of;
  if (mdb_txn_begin(s->of->environment, NULL, MDB_RDONLY, &s->read) != 0) {
    free(s);
    return NULL;
  }
  mdb_txn_reset(s->read);
  return (peer_session *)s;
}

void lmdb_session_close(peer_session *of) {
  lm_session *s = (lm_session *)of;
  mdb_txn_abort(s->read);
  free(s);
}

int lmdb_begin(peer_session *of) {
  lm_session *s = (lm_session *)of;
  return mdb_txn_begin(s->of->environment, NULL, 0, &s->write);
}

int lmdb_put(peer_session *of, int table, const void *key, size_t key_len, const void *value,
             size_t value_len) {
  lm_session *s = (lm_session *)of;
  MDB_val k = {key_len, (void *)key}, v = {value_len, (void *)value};
  return mdb_put(s->write, s->of->tables[table], &k, &v, 0);
}

int lmdb_commit(peer_session *of) {
  lm_session *s = (lm_session *)of;
  MDB_txn *write = s->write;
  s->write = NULL;
  return mdb_txn_commit(write);
}

void lmdb_abort(peer_session *of) {
  lm_session *s = (lm_session *)of;
  mdb_txn_abort(s->write);
  s->write = NULL;
}

static long lmdb_get_in(lm_session *s, MDB_txn *in, int table, const void *key, size_t key_len,
                        void *into, size_t room) {
  MDB_val k = {key_len, (void *)key}, v;
  if (mdb_get(in, s->of->tables[table], &k, &v) != 0) return -1;
  memcpy(into, v.mv_data, v.mv_size < room ? v.mv_size : room);
  return (long)v.mv_size;
}

long lmdb_get(peer_session *of, int table, const void *key, size_t key_len, void *into,
              size_t room) {
  lm_session *s = (lm_session *)of;
  if (s->write != NULL) return lmdb_get_in(s, s->write, table, key, key_len, into, room);
  if (mdb_txn_renew(s->read) != 0) return -1;
  long n = lmdb_get_in(s, s->read, table, key, key_len, into, room);
  mdb_txn_reset(s->read);
  return n;
}

/* Walks a table from a key; with `into`, gets the row of each entry. */
static long walk(lm_session *s, int table, const void *from, size_t from_len, long limit,
                 uint64_t *bytes, void *into, size_t room) {
  MDB_val k = {from_len, (void *)from}, v;
  MDB_cursor *c;
  long n = 0;
  if (mdb_txn_renew(s->read) != 0) return -1;
  if (mdb_cursor_open(s->read, s->of->tables[table], &c) == 0) {
    int e = mdb_cursor_get(c, &k, &v, from_len == 0 ? MDB_FIRST : MDB_SET_RANGE);
    for (; e == 0 && n < limit; n++, e = mdb_cursor_get(c, &k, &v, MDB_NEXT)) {
      const char *value = (const char *)v.mv_data;
      if (bytes != NULL)
        *bytes += k.mv_size + v.mv_size + (v.mv_size != 0 && value[v.mv_size - 1] == 1);
      if (into == NULL) continue;
      const char *row = (const char *)k.mv_data + ROW_AT;
      if (lmdb_get_in(s, s->read, 0, row, k.mv_size - ROW_AT, into, room) < 0) {
        n = -1;
        break;
      }
    }
    mdb_cursor_close(c);
  }
  mdb_txn_reset(s->read);
  return n;
}

long lmdb_scan(peer_session *of, int table, const void *from, size_t from_len, long limit,
               uint64_t *bytes) {
  return walk((lm_session *)of, table, from, from_len, limit, bytes, NULL, 0);
}

long lmdb_fetch(peer_session *of, const void *from, size_t from_len, long limit, void *into,
                size_t room) {
  return walk((lm_session *)of, 1, from, from_len, limit, NULL, into, room);
}
