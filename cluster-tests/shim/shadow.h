/* What the disk of power_loss.c holds: which files and names there are, what of them is dirty, what is durable.
 *
 * One mutex guards all tables; it is held while a file or name is changed and while bytes are copied, not during the pauses. */
#pragma once
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <time.h>
#include <unistd.h>

#define FDS_MAX 65536
#define FILES_MAX 65536
#define RANGES_MAX 1024

/* Eight bytes each, in the byte order of the machine. */
struct control {
    uint64_t full;    /* test: what needs room fails with ENOSPC */
    uint64_t failing; /* test: fsync and fdatasync fail with EIO */
    uint64_t syncs;   /* shim: syncs of files that succeeded */
    uint64_t refused; /* shim: calls that failed with ENOSPC */
    uint64_t failed;  /* shim: syncs that failed with EIO */
    uint64_t started; /* shim: 1 when it is at work */
};

struct range { off_t from, to; };

struct file {
    char *path; /* below the root; NULL when the name is gone */
    int shadow; /* -1: not open yet */
    off_t least; /* the smallest size since the last sync, -1: it has not shrunk */
    struct range *ranges;
    size_t count;
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static char root[PATH_MAX], shadow[PATH_MAX];
static size_t root_len;
static int names = -1;
static unsigned pause_us;
static volatile struct control *control;
static struct file files[FILES_MAX];
static int file_count = 1;
static int file_of[FDS_MAX]; /* 0: not ours */

static void die(const char *what) {
    dprintf(2, "power_loss: %s: %s\n", what, strerror(errno));
    abort();
}

static int raw_open(const char *path, int flags, int mode) { return (int)syscall(SYS_openat, AT_FDCWD, path, flags | O_CLOEXEC, mode); }
static void raw_close(int fd) { syscall(SYS_close, fd); }

static int new_file(const char *path) {
    if (file_count == FILES_MAX) die("too many files");
    struct file *file = &files[file_count];
    file->path = strdup(path);
    file->shadow = -1;
    file->least = -1;
    return file_count++;
}

static int find(const char *path) {
    for (int id = 1; id < file_count; id++)
        if (files[id].path && strcmp(files[id].path, path) == 0) return id;
    return 0;
}

static void load_names(char *text) {
    char *rest_of_lines, *rest;
    for (char *line = strtok_r(text, "\n", &rest_of_lines); line; line = strtok_r(NULL, "\n", &rest_of_lines)) {
        const char *kind = strtok_r(line, "\t", &rest);
        if (strcmp(kind, "file") == 0) new_file(strtok_r(NULL, "\t", &rest));
        else if (strcmp(kind, "folder")) die("names that are not of the beginning");
    }
}

__attribute__((constructor)) static void start(void) {
    const char *given_root = getenv("POWER_ROOT"), *given_shadow = getenv("POWER_SHADOW"), *given_pause = getenv("POWER_PAUSE_US");
    if (!given_root || !given_shadow) return;
    if (!realpath(given_root, root) || !realpath(given_shadow, shadow)) die("POWER_ROOT and POWER_SHADOW");
    root_len = strlen(root);
    pause_us = given_pause ? (unsigned)atoi(given_pause) : 0;
    char path[PATH_MAX + 16];
    snprintf(path, sizeof path, "%s/control", shadow);
    int fd = raw_open(path, O_RDWR, 0);
    if (fd < 0) die("control");
    void *page = mmap(NULL, sizeof(struct control), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    if (page == MAP_FAILED) die("control");
    raw_close(fd);
    snprintf(path, sizeof path, "%s/names", shadow);
    names = raw_open(path, O_RDWR | O_APPEND | O_CREAT, 0600);
    if (names < 0) die("names");
    struct stat stat;
    fstat(names, &stat);
    char *text = calloc(1, (size_t)stat.st_size + 1);
    if (syscall(SYS_pread64, names, text, stat.st_size, 0) != stat.st_size) die("names");
    load_names(text);
    free(text);
    control = page;
    control->started = 1;
}

static void note(const char *format, ...) {
    char line[2 * PATH_MAX + 64];
    va_list args;
    va_start(args, format);
    int length = vsnprintf(line, sizeof line, format, args);
    va_end(args);
    if (syscall(SYS_write, names, line, length) != length) die("names");
}

/* The path below the root that a call means; 0 when it is elsewhere. */
static int inside(int dir, const char *path, char out[PATH_MAX]) {
    if (!control || !path || !*path) return 0;
    char whole[2 * PATH_MAX], real[PATH_MAX], link[64];
    if (*path == '/' || dir == AT_FDCWD) {
        snprintf(whole, sizeof whole, "%s", path);
    } else {
        snprintf(link, sizeof link, "/proc/self/fd/%d", dir);
        ssize_t length = readlink(link, real, sizeof real - 1);
        if (length < 0) return 0;
        real[length] = 0;
        snprintf(whole, sizeof whole, "%s/%s", real, path);
    }
    char *slash = strrchr(whole, '/'), *base = slash ? slash + 1 : whole;
    if (slash) *slash = 0;
    int saved = errno;
    int found = realpath(!slash ? "." : slash == whole ? "/" : whole, real) != NULL;
    errno = saved;
    if (!found || !*base || strncmp(real, root, root_len) || (real[root_len] && real[root_len] != '/')) return 0;
    int length = snprintf(out, PATH_MAX, "%s%s%s", real[root_len] ? real + root_len + 1 : "", real[root_len] ? "/" : "", base);
    return length < PATH_MAX;
}

static int tracked(int fd) { return control && fd >= 0 && fd < FDS_MAX ? file_of[fd] : 0; }

static off_t size_of(int fd) {
    struct stat stat;
    return fstat(fd, &stat) ? 0 : stat.st_size;
}

static void dirty(int id, off_t from, off_t to) {
    struct file *file = &files[id];
    if (from >= to) return;
    if (!file->ranges && !(file->ranges = malloc(RANGES_MAX * sizeof(struct range)))) die("memory");
    struct range *last = file->count ? &file->ranges[file->count - 1] : NULL;
    if (last && from <= last->to && to >= last->from) {
        last->from = from < last->from ? from : last->from;
        last->to = to > last->to ? to : last->to;
        return;
    }
    if (file->count == RANGES_MAX) {
        for (size_t index = 1; index < file->count; index++) {
            struct range *range = &file->ranges[index], *first = &file->ranges[0];
            first->from = range->from < first->from ? range->from : first->from;
            first->to = range->to > first->to ? range->to : first->to;
        }
        file->count = 1;
    }
    file->ranges[file->count++] = (struct range){from, to};
}

static void shrunk(int id, off_t size) {
    if (files[id].least < 0 || size < files[id].least) files[id].least = size;
}

/* Refuses what would grow a file on a full disk. */
static int refuses(int fd, off_t end) {
    if (!control->full || end <= size_of(fd)) return 0;
    control->refused++;
    errno = ENOSPC;
    return 1;
}

static void copy_range(int from, int to, struct range range) {
    static char buffer[1 << 16];
    while (range.from < range.to) {
        size_t want = (size_t)(range.to - range.from);
        ssize_t got = syscall(SYS_pread64, from, buffer, want < sizeof buffer ? want : sizeof buffer, range.from);
        if (got < 0) die("read back");
        if (got == 0) return;
        if (syscall(SYS_pwrite64, to, buffer, got, range.from) != got) die("shadow");
        range.from += got;
    }
}

/* What is dirty becomes durable. */
static void keep(int fd, int id) {
    struct file *file = &files[id];
    char path[PATH_MAX + 16];
    if (file->shadow < 0) {
        snprintf(path, sizeof path, "%s/%d", shadow, id);
        file->shadow = raw_open(path, O_WRONLY | O_CREAT, 0600);
        if (file->shadow < 0) die("shadow");
    }
    snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
    int from = raw_open(path, O_RDONLY, 0);
    if (from < 0) die("read back");
    if (file->least >= 0 && syscall(SYS_ftruncate, file->shadow, file->least)) die("shadow");
    if (syscall(SYS_ftruncate, file->shadow, size_of(fd))) die("shadow");
    for (size_t index = 0; index < file->count; index++) copy_range(from, file->shadow, file->ranges[index]);
    file->count = 0;
    file->least = -1;
    raw_close(from);
}

static void rest(void) {
    static __thread unsigned seed;
    if (!pause_us) return;
    if (!seed) seed = (unsigned)(uintptr_t)&seed;
    struct timespec time = {0, (long)(rand_r(&seed) % pause_us) * 1000};
    nanosleep(&time, NULL);
}

/* The name of an open folder below the root ("" for the root), or 0. */
static int folder(int fd, char out[PATH_MAX]) {
    char link[64], real[PATH_MAX];
    struct stat stat;
    if (!control || fstat(fd, &stat) || !S_ISDIR(stat.st_mode)) return 0;
    snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
    ssize_t length = readlink(link, real, sizeof real - 1);
    if (length < (ssize_t)root_len || strncmp(real, root, root_len)) return 0;
    real[length] = 0;
    if (real[root_len] && real[root_len] != '/') return 0;
    strcpy(out, real[root_len] ? real + root_len + 1 : "");
    return 1;
}

static int is_below(const char *path, const char *of) {
    size_t length = strlen(of);
    return strncmp(path, of, length) == 0 && (!path[length] || path[length] == '/');
}

/* The name moves, with all below it; `to` NULL: it is gone. */
static void moved(const char *from, const char *to) {
    for (int id = 1; to && id < file_count; id++)
        if (files[id].path && is_below(files[id].path, to)) files[id].path = NULL;
    for (int id = 1; id < file_count; id++) {
        char *path = files[id].path, out[2 * PATH_MAX];
        if (!path || !is_below(path, from)) continue;
        snprintf(out, sizeof out, "%s%s", to ? to : "", path + strlen(from));
        files[id].path = to ? strdup(out) : NULL;
    }
}
