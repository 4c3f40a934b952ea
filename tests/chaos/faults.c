/* Counts, kills at, or spoils the file operations of a process below one folder; loaded with LD_PRELOAD.

   A process arms it for itself with chaos_arm(); until then, and after an exec, every call goes through. It sees the
   writes of Python, pyarrow, safetensors, torch and SQLite alike, because all of them call the C library. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <signal.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/sendfile.h>
#include <sys/stat.h>
#include <sys/types.h>
#include <sys/uio.h>
#include <unistd.h>

enum { OFF, COUNT, KILL, FULL, SHORT };

static int mode = OFF;
static long limit = 0;
static int error_number = ENOSPC;
static char prefix[PATH_MAX];
static size_t prefix_length = 0;
static int log_handle = -1;
static atomic_long operations;
static atomic_long writes;

/* mode: COUNT logs every operation to log_fd; KILL ends the process before operation `at`; FULL lets write `at` (counted
   among writes only) write half and fails all later ones with `number`; SHORT halves every write. */
void chaos_arm(int new_mode, long at, const char *folder, int number, int log_fd)
{
    snprintf(prefix, sizeof prefix, "%s", folder);
    prefix_length = strlen(prefix);
    limit = at;
    error_number = number;
    log_handle = log_fd;
    operations = 0;
    writes = 0;
    mode = new_mode;
}

long chaos_operations(void) { return operations; }
long chaos_writes(void) { return writes; }

#define REAL(name) \
    static __typeof__(name) *real; \
    if (!real) real = (__typeof__(name) *)dlsym(RTLD_NEXT, #name)

static ssize_t plain_write(int handle, const void *data, size_t size)
{
    REAL(write);
    return real(handle, data, size);
}

static int below(const char *path)
{
    return strncmp(path, prefix, prefix_length) == 0 && (path[prefix_length] == '/' || !path[prefix_length]);
}

static int resolve(int folder, const char *path, char *out)
{
    char place[64], start[PATH_MAX];
    ssize_t length;
    if (!path) return 0;
    if (path[0] == '/') {
        snprintf(out, PATH_MAX, "%s", path);
        return below(out);
    }
    if (folder == AT_FDCWD) {
        if (!getcwd(start, sizeof start)) return 0;
    } else {
        snprintf(place, sizeof place, "/proc/self/fd/%d", folder);
        length = readlink(place, start, sizeof start - 1);
        if (length < 0) return 0;
        start[length] = 0;
    }
    if (snprintf(out, PATH_MAX, "%s/%s", start, path) >= PATH_MAX) return 0;
    return below(out);
}

static int of_handle(int handle, char *out)
{
    char place[64];
    ssize_t length;
    snprintf(place, sizeof place, "/proc/self/fd/%d", handle);
    length = readlink(place, out, PATH_MAX - 1);
    if (length < 0) return 0;
    out[length] = 0;
    return below(out);
}

static void note(const char *name, const char *path, const char *other)
{
    long number = atomic_fetch_add(&operations, 1) + 1;
    if (mode == KILL && number == limit) kill(getpid(), SIGKILL);
    if (log_handle >= 0) {
        char line[2 * PATH_MAX + 64];
        int size = snprintf(line, sizeof line, "%s\t%s\t%s\n", name, path, other ? other : "");
        if (plain_write(log_handle, line, (size_t)size) < 0) return;
    }
}

/* How many bytes of a write go through; -1: it fails. */
static ssize_t allowed(int handle, size_t size)
{
    char path[PATH_MAX];
    long number;
    if (mode == OFF || !of_handle(handle, path)) return (ssize_t)size;
    note("write", path, NULL);
    number = atomic_fetch_add(&writes, 1) + 1;
    if (mode == SHORT) return size > 1 ? (ssize_t)(size / 2) : (ssize_t)size;
    if (mode == FULL && number >= limit) {
        if (number == limit && size > 1) return (ssize_t)(size / 2);
        errno = error_number;
        return -1;
    }
    return (ssize_t)size;
}

ssize_t write(int handle, const void *data, size_t size)
{
    ssize_t most = allowed(handle, size);
    return most < 0 ? -1 : plain_write(handle, data, (size_t)most);
}

ssize_t pwrite(int handle, const void *data, size_t size, off_t at)
{
    REAL(pwrite);
    ssize_t most = allowed(handle, size);
    return most < 0 ? -1 : real(handle, data, (size_t)most, at);
}

ssize_t pwrite64(int handle, const void *data, size_t size, off64_t at)
{
    REAL(pwrite64);
    ssize_t most = allowed(handle, size);
    return most < 0 ? -1 : real(handle, data, (size_t)most, at);
}

ssize_t writev(int handle, const struct iovec *parts, int count)
{
    REAL(writev);
    size_t size = 0;
    ssize_t most;
    int i;
    for (i = 0; i < count; i++) size += parts[i].iov_len;
    most = allowed(handle, size);
    if (most < 0) return -1;
    if ((size_t)most == size) return real(handle, parts, count);
    for (i = 0; i < count && parts[i].iov_len == 0; i++) {}
    return plain_write(handle, parts[i].iov_base, parts[i].iov_len < (size_t)most ? parts[i].iov_len : (size_t)most);
}

ssize_t sendfile(int out, int in, off_t *at, size_t size)
{
    REAL(sendfile);
    ssize_t most = allowed(out, size);
    return most < 0 ? -1 : real(out, in, at, (size_t)most);
}

ssize_t sendfile64(int out, int in, off64_t *at, size_t size)
{
    REAL(sendfile64);
    ssize_t most = allowed(out, size);
    return most < 0 ? -1 : real(out, in, at, (size_t)most);
}

ssize_t copy_file_range(int in, off64_t *from, int out, off64_t *to, size_t size, unsigned int flags)
{
    REAL(copy_file_range);
    ssize_t most = allowed(out, size);
    return most < 0 ? -1 : real(in, from, out, to, (size_t)most, flags);
}

#define ON_HANDLE(name, word) \
    int name(int handle) \
    { \
        char path[PATH_MAX]; \
        REAL(name); \
        if (mode != OFF && of_handle(handle, path)) note(word, path, NULL); \
        return real(handle); \
    }
ON_HANDLE(fsync, "sync")
ON_HANDLE(fdatasync, "sync")

#define ON_LENGTH(name, type) \
    int name(int handle, type length) \
    { \
        char path[PATH_MAX]; \
        REAL(name); \
        if (mode != OFF && of_handle(handle, path)) note("truncate", path, NULL); \
        return real(handle, length); \
    }
ON_LENGTH(ftruncate, off_t)
ON_LENGTH(ftruncate64, off64_t)

#define ON_PATH(name, word) \
    int name(const char *path) \
    { \
        char full[PATH_MAX]; \
        REAL(name); \
        if (mode != OFF && resolve(AT_FDCWD, path, full)) note(word, full, NULL); \
        return real(path); \
    }
ON_PATH(unlink, "remove")
ON_PATH(rmdir, "remove")
ON_PATH(remove, "remove")

int unlinkat(int folder, const char *path, int flags)
{
    char full[PATH_MAX];
    REAL(unlinkat);
    if (mode != OFF && resolve(folder, path, full)) note("remove", full, NULL);
    return real(folder, path, flags);
}

int mkdir(const char *path, mode_t rights)
{
    char full[PATH_MAX];
    REAL(mkdir);
    if (mode != OFF && resolve(AT_FDCWD, path, full)) note("mkdir", full, NULL);
    return real(path, rights);
}

static void note_names(int one, const char *from, int two, const char *to)
{
    char source[PATH_MAX], target[PATH_MAX];
    int inside = resolve(one, from, source);
    if (resolve(two, to, target) || inside) note("name", source, target);
}

int rename(const char *from, const char *to)
{
    REAL(rename);
    if (mode != OFF) note_names(AT_FDCWD, from, AT_FDCWD, to);
    return real(from, to);
}

int renameat(int one, const char *from, int two, const char *to)
{
    REAL(renameat);
    if (mode != OFF) note_names(one, from, two, to);
    return real(one, from, two, to);
}

int renameat2(int one, const char *from, int two, const char *to, unsigned int flags)
{
    REAL(renameat2);
    if (mode != OFF) note_names(one, from, two, to);
    return real(one, from, two, to, flags);
}

static void note_open(int folder, const char *path, int flags)
{
    char full[PATH_MAX];
    if (mode != OFF && flags & (O_CREAT | O_TRUNC) && resolve(folder, path, full)) note("open", full, NULL);
}

#define RIGHTS \
    mode_t rights = 0; \
    if (flags & O_CREAT || (flags & O_TMPFILE) == O_TMPFILE) { \
        va_list more; \
        va_start(more, flags); \
        rights = va_arg(more, mode_t); \
        va_end(more); \
    }

#define OPEN(name) \
    int name(const char *path, int flags, ...) \
    { \
        RIGHTS REAL(name); \
        note_open(AT_FDCWD, path, flags); \
        return real(path, flags, rights); \
    }
OPEN(open)
OPEN(open64)

#define OPENAT(name) \
    int name(int folder, const char *path, int flags, ...) \
    { \
        RIGHTS REAL(name); \
        note_open(folder, path, flags); \
        return real(folder, path, flags, rights); \
    }
OPENAT(openat)
OPENAT(openat64)

#define FOPEN(name) \
    FILE *name(const char *path, const char *how) \
    { \
        REAL(name); \
        note_open(AT_FDCWD, path, strpbrk(how, "wa+") ? O_CREAT : 0); \
        return real(path, how); \
    }
FOPEN(fopen)
FOPEN(fopen64)
