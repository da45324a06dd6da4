/* A seek-limited disk: the calls every engine makes for its files, slowed to a device of so many seeks
 * and bytes a second. Off until `throttle` is called with rates.
 *
 * The device has one head. An operation that goes on where the last one ended costs its bytes; any
 * other one costs a seek more. What is written through the page cache costs nothing until it is
 * synced: then one seek and its bytes. The real operation is done first, at the real disk's speed,
 * which must be the faster one.
 *
 * These definitions stand before the C library's, also for the engines that are shared libraries
 * (build.rs exports the names), so none of them needs to know. */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdint.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/types.h>
#include <time.h>
#include <unistd.h>

#define FILES 4096
#define SECOND 1000000000ll

static struct {
  pthread_mutex_t lock;
  int64_t seek_ns; /* 0: off */
  int64_t bytes_per_second;
  int64_t free_at;
  int head_fd;
  off_t head_at;
  int64_t unsynced[FILES];
} disk = {.lock = PTHREAD_MUTEX_INITIALIZER, .head_fd = -1};

static int64_t now_ns(void) {
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return t.tv_sec * SECOND + t.tv_nsec;
}

void throttle(uint64_t seeks_per_second, uint64_t bytes_per_second) {
  pthread_mutex_lock(&disk.lock);
  disk.bytes_per_second = bytes_per_second ? (int64_t)bytes_per_second : SECOND;
  disk.free_at = 0;
  __atomic_store_n(&disk.seek_ns, seeks_per_second ? SECOND / (int64_t)seeks_per_second : 0,
                   __ATOMIC_RELEASE);
  pthread_mutex_unlock(&disk.lock);
}

static int is_on(void) { return __atomic_load_n(&disk.seek_ns, __ATOMIC_ACQUIRE) != 0; }

static int is_file(int fd) {
  struct stat s;
  return fd >= 0 && fd < FILES && fstat(fd, &s) == 0 && S_ISREG(s.st_mode);
}

/* Takes the device for an operation at `at` (-1: somewhere else) and waits until it is done. */
static void operate(int fd, off_t at, int64_t bytes) {
  pthread_mutex_lock(&disk.lock);
  int64_t now = now_ns(), cost = bytes * SECOND / disk.bytes_per_second;
  if (at < 0 || fd != disk.head_fd || at != disk.head_at) cost += disk.seek_ns;
  disk.head_fd = fd;
  disk.head_at = at < 0 ? -1 : at + bytes;
  if (disk.free_at < now) disk.free_at = now;
  disk.free_at += cost;
  int64_t until = disk.free_at;
  pthread_mutex_unlock(&disk.lock);
  struct timespec t = {until / SECOND, until % SECOND};
  while (clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &t, NULL) == EINTR) {
  }
}

static void wrote(int fd, off_t at, int64_t bytes) {
  if (bytes <= 0 || !is_on() || !is_file(fd)) return;
  int flags = fcntl(fd, F_GETFL);
  if (flags >= 0 && (flags & O_DIRECT))
    operate(fd, at, bytes);
  else
    __atomic_fetch_add(&disk.unsynced[fd], bytes, __ATOMIC_RELAXED);
}

static void synced(int fd) {
  if (!is_on() || !is_file(fd)) return;
  operate(fd, -1, __atomic_exchange_n(&disk.unsynced[fd], 0, __ATOMIC_RELAXED));
}

ssize_t pread64(int fd, void *into, size_t bytes, off64_t at) {
  ssize_t got = syscall(SYS_pread64, fd, into, bytes, at);
  if (got > 0 && is_on() && is_file(fd)) operate(fd, at, got);
  return got;
}

ssize_t pwrite64(int fd, const void *from, size_t bytes, off64_t at) {
  ssize_t put = syscall(SYS_pwrite64, fd, from, bytes, at);
  wrote(fd, at, put);
  return put;
}

ssize_t write(int fd, const void *from, size_t bytes) {
  ssize_t put = syscall(SYS_write, fd, from, bytes);
  wrote(fd, -1, put);
  return put;
}

int fdatasync(int fd) {
  int result = (int)syscall(SYS_fdatasync, fd);
  synced(fd);
  return result;
}

int fsync(int fd) {
  int result = (int)syscall(SYS_fsync, fd);
  synced(fd);
  return result;
}

ssize_t pread(int fd, void *into, size_t bytes, off_t at) { return pread64(fd, into, bytes, at); }

ssize_t pwrite(int fd, const void *from, size_t bytes, off_t at) {
  return pwrite64(fd, from, bytes, at);
}
