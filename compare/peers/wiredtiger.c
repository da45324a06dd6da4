/* WiredTiger behind peer.h, as MongoDB sets it (32 KB leaves with snappy for the rows, 16 KB and
 * prefix compression for the indexes), with the eviction settings that suit it better than its own. */
#include "peer.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <wiredtiger.h>

typedef struct {
  WT_CONNECTION *connection;
  WT_SESSION *log, *settle; /* one thread each */
} wt_peer;

typedef struct {
  WT_SESSION *session;
  WT_CURSOR *tables[4];
} wt_session;

static const char *const NAMES[4] = {"table:rows", "table:one", "table:two", "table:three"};

peer *wired_open(const char *dir, uint64_t cache_bytes, int direct) {
  char config[1024];
  snprintf(config, sizeof config,
           "create,cache_size=%lluMB,eviction=(threads_min=4,threads_max=4),%s"
           "log=(enabled=true,compressor=snappy),transaction_sync=(enabled=false),"
           "checkpoint=(wait=60),session_max=200,"
           "eviction_dirty_target=50,eviction_dirty_trigger=80,"
           "eviction_updates_target=40,eviction_updates_trigger=70",
           (unsigned long long)(cache_bytes >> 20), direct ? "direct_io=[data]," : "");
  wt_peer *p = calloc(1, sizeof *p);
  int e = wiredtiger_open(dir, NULL, config, &p->connection);
  if (e == 0) e = p->connection->open_session(p->connection, NULL, NULL, &p->log);
  if (e == 0) e = p->connection->open_session(p->connection, NULL, NULL, &p->settle);
  for (int i = 0; e == 0 && i < 4; i++) {
    e = p->log->create(p->log, NAMES[i],
                       i == 0 ? "key_format=u,value_format=u,leaf_page_max=32KB,"
                                "memory_page_max=10MB,split_pct=90,block_compressor=snappy"
                              : "key_format=u,value_format=u,leaf_page_max=16KB,"
                                "internal_page_max=16KB,memory_page_max=5MB,"
                                "prefix_compression=true");
  }
  if (e != 0) {
    fprintf(stderr, "wiredtiger: %s\n", wiredtiger_strerror(e));
    free(p);
    return NULL;
  }
  return (peer *)p;
}

void wired_close(peer *of) {
  wt_peer *p = (wt_peer *)of;
  p->connection->close(p->connection, NULL);
  free(p);
}

int wired_flush_log(peer *of) {
  wt_peer *p = (wt_peer *)of;
  return p->log->log_flush(p->log, "sync=on");
}

int wired_settle(peer *of) {
  wt_peer *p = (wt_peer *)of;
  return p->settle->checkpoint(p->settle, NULL);
}

peer_session *wired_session(peer *of) {
  wt_peer *p = (wt_peer *)of;
  wt_session *s = calloc(1, sizeof *s);
  int e = p->connection->open_session(p->connection, NULL, "isolation=snapshot", &s->session);
  for (int i = 0; e == 0 && i < 4; i++)
    e = s->session->open_cursor(s->session, NAMES[i], NULL, "overwrite=true", &s->tables[i]);
  if (e != 0) {
    fprintf(stderr, "wiredtiger: %s\n", wiredtiger_strerror(e));
    free(s);
    return NULL;
  }
  return (peer_session *)s;
}

void wired_session_close(peer_session *of) {
  wt_session *s = (wt_session *)of;
  s->session->close(s->session, NULL);
  free(s);
}

static int outcome(int e) { return e == WT_ROLLBACK ? PEER_CONFLICT : e; }

int wired_begin(peer_session *of) {
  wt_session *s = (wt_session *)of;
  return s->session->begin_transaction(s->session, NULL);
}

int wired_put(peer_session *of, int table, const void *key, size_t key_len, const void *value,
              size_t value_len) {
  WT_CURSOR *c = ((wt_session *)of)->tables[table];
  WT_ITEM k = {.data = key, .size = key_len}, v = {.data = value, .size = value_len};
  c->set_key(c, &k);
  c->set_value(c, &v);
  return outcome(c->insert(c));
}

int wired_commit(peer_session *of) {
  wt_session *s = (wt_session *)of;
  for (int i = 0; i < 4; i++) s->tables[i]->reset(s->tables[i]);
  return outcome(s->session->commit_transaction(s->session, NULL));
}

void wired_abort(peer_session *of) {
  wt_session *s = (wt_session *)of;
  s->session->rollback_transaction(s->session, NULL);
}

long wired_get(peer_session *of, int table, const void *key, size_t key_len, void *into,
               size_t room) {
  WT_CURSOR *c = ((wt_session *)of)->tables[table];
  WT_ITEM k = {.data = key, .size = key_len}, v;
  c->set_key(c, &k);
  if (c->search(c) != 0) return -1;
  if (c->get_value(c, &v) != 0) return -1;
  memcpy(into, v.data, v.size < room ? v.size : room);
  long n = (long)v.size;
  c->reset(c);
  return n;
}

static int wired_seek(WT_CURSOR *c, const void *from, size_t from_len) {
  WT_ITEM k = {.data = from, .size = from_len};
  int exact, e;
  if (from_len == 0) { /* it refuses an empty key */
    c->reset(c);
    return c->next(c);
  }
  c->set_key(c, &k);
  e = c->search_near(c, &exact);
  return e == 0 && exact < 0 ? c->next(c) : e;
}

long wired_scan(peer_session *of, int table, const void *from, size_t from_len, long limit,
                uint64_t *bytes) {
  WT_CURSOR *c = ((wt_session *)of)->tables[table];
  WT_ITEM k, v;
  long n = 0;
  int e = wired_seek(c, from, from_len);
  for (; e == 0 && n < limit; n++, e = n < limit ? c->next(c) : 0) {
    if (c->get_key(c, &k) != 0 || c->get_value(c, &v) != 0) return -1;
    *bytes += k.size + v.size + (v.size != 0 && ((const char *)v.data)[v.size - 1] == 1);
  }
  c->reset(c);
  return e == 0 || e == WT_NOTFOUND ? n : -1;
}

long wired_fetch(peer_session *of, const void *from, size_t from_len, long limit, void *into,
                 size_t room) {
  wt_session *s = (wt_session *)of;
  WT_CURSOR *c = s->tables[1];
  WT_ITEM k;
  long n = 0;
  s->session->begin_transaction(s->session, NULL);
  int e = wired_seek(c, from, from_len);
  for (; e == 0 && n < limit; n++, e = n < limit ? c->next(c) : 0) {
    if (c->get_key(c, &k) != 0) break;
    if (wired_get(of, 0, (const char *)k.data + ROW_AT, k.size - ROW_AT, into, room) < 0) break;
  }
  c->reset(c);
  s->session->rollback_transaction(s->session, NULL);
  return e == 0 && n < limit ? -1 : n;
}
