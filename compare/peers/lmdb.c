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

int lmdb_commit(peer_session *of) { return mdb_txn_commit(((lm_session *)of)->write); }

long lmdb_get(peer_session *of, int table, const void *key, size_t key_len, void *into,
              size_t room) {
  lm_session *s = (lm_session *)of;
  MDB_val k = {key_len, (void *)key}, v;
  long n = -1;
  if (mdb_txn_renew(s->read) != 0) return -1;
  if (mdb_get(s->read, s->of->tables[table], &k, &v) == 0) {
    memcpy(into, v.mv_data, v.mv_size < room ? v.mv_size : room);
    n = (long)v.mv_size;
  }
  mdb_txn_reset(s->read);
  return n;
}

long lmdb_scan(peer_session *of, int table, const void *from, size_t from_len, long limit,
               void *last_key, size_t *last_key_len, uint64_t *bytes) {
  lm_session *s = (lm_session *)of;
  MDB_val k = {from_len, (void *)from}, v;
  MDB_cursor *c;
  long n = 0;
  if (mdb_txn_renew(s->read) != 0) return -1;
  if (mdb_cursor_open(s->read, s->of->tables[table], &c) == 0) {
    for (int e = mdb_cursor_get(c, &k, &v, MDB_SET_RANGE); e == 0 && n < limit;
         n++, e = mdb_cursor_get(c, &k, &v, MDB_NEXT)) {
      *bytes += k.mv_size + v.mv_size;
      *last_key_len = k.mv_size;
      memcpy(last_key, k.mv_data, k.mv_size);
    }
    mdb_cursor_close(c);
  }
  mdb_txn_reset(s->read);
  return n;
}
