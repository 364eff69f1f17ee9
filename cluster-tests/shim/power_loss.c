/* A disk that can lose its power, for one process: LD_PRELOAD.
 *
 * Under the folder $POWER_ROOT the process works on its files as ever, and the kernel keeps what it writes even when it is killed.
 * Beside that, the folder $POWER_SHADOW holds what a power cut would leave for certain:
 *
 *   $POWER_SHADOW/<id>     the bytes of one file as fsync or fdatasync last made them durable
 *   $POWER_SHADOW/names    every change of a name, and every fsync of a folder, in order, one a line, fields parted by tabs:
 *                          folder <path> | file <path> <id> <inode>   there from the beginning (written by the test)
 *                          create <path> <id> <inode> | rename <path> <path> | remove <path> | mkdir <path> | sync <path of folder>
 *   $POWER_SHADOW/control  a page that is shared with the test, see struct control
 *
 * The test makes the image of the disk out of these and of the folder itself: what differs was never synced, and is lost or not.
 *
 * fsync does not reach the real disk: it copies what is dirty, and takes a random time up to $POWER_PAUSE_US before and after.
 * After a failed fsync what was dirty counts as clean and not written, as in Linux.
 *
 * One mutex guards all tables; it is held while a file or name is changed and while bytes are copied, not during the pauses. */
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

static int open_at(int dir, const char *path, int flags, mode_t mode) {
    char name[PATH_MAX];
    if (!inside(dir, path, name)) return (int)syscall(SYS_openat, dir, path, flags, mode);
    pthread_mutex_lock(&lock);
    int fd = (int)syscall(SYS_openat, dir, path, flags, mode);
    struct stat stat;
    if (fd >= 0 && fd < FDS_MAX && fstat(fd, &stat) == 0 && S_ISREG(stat.st_mode)) {
        int id = find(name);
        if (!id) {
            id = new_file(name);
            note("create\t%s\t%d\t%lu\n", name, id, (unsigned long)stat.st_ino);
        }
        if (flags & O_TRUNC) shrunk(id, 0);
        file_of[fd] = id;
    }
    pthread_mutex_unlock(&lock);
    return fd;
}

#define MODE(flags, last) ({ mode_t mode_ = 0; if ((flags) & (O_CREAT | __O_TMPFILE)) { va_list args_; va_start(args_, last); mode_ = va_arg(args_, mode_t); va_end(args_); } mode_; })

int open(const char *path, int flags, ...) { return open_at(AT_FDCWD, path, flags, MODE(flags, flags)); }
int open64(const char *path, int flags, ...) { return open_at(AT_FDCWD, path, flags, MODE(flags, flags)); }
int openat(int dir, const char *path, int flags, ...) { return open_at(dir, path, flags, MODE(flags, flags)); }
int openat64(int dir, const char *path, int flags, ...) { return open_at(dir, path, flags, MODE(flags, flags)); }
int creat(const char *path, mode_t mode) { return open_at(AT_FDCWD, path, O_CREAT | O_WRONLY | O_TRUNC, mode); }
int creat64(const char *path, mode_t mode) { return creat(path, mode); }

int close(int fd) {
    if (control && fd >= 0 && fd < FDS_MAX) file_of[fd] = 0;
    return (int)syscall(SYS_close, fd);
}

static int duplicated(int from, int to) {
    if (to >= 0 && to < FDS_MAX) file_of[to] = tracked(from);
    return to;
}

int dup(int fd) { return duplicated(fd, (int)syscall(SYS_dup, fd)); }
int dup3(int fd, int to, int flags) { return duplicated(fd, (int)syscall(SYS_dup3, fd, to, flags)); }
int dup2(int fd, int to) { return fd == to ? to : dup3(fd, to, 0); }

int fcntl(int fd, int command, ...) {
    va_list args;
    va_start(args, command);
    void *argument = va_arg(args, void *);
    va_end(args);
    int result = (int)syscall(SYS_fcntl, fd, command, argument);
    return command == F_DUPFD || command == F_DUPFD_CLOEXEC ? duplicated(fd, result) : result;
}
int fcntl64(int fd, int command, ...) {
    va_list args;
    va_start(args, command);
    void *argument = va_arg(args, void *);
    va_end(args);
    return fcntl(fd, command, argument);
}

static size_t total(const struct iovec *parts, int count) {
    size_t sum = 0;
    for (int index = 0; index < count; index++) sum += parts[index].iov_len;
    return sum;
}

/* All writes come here; `offset` -1: where the file stands. */
static ssize_t write_at(int fd, const struct iovec *parts, int count, off_t offset) {
    int id = tracked(fd);
    if (!id) return offset < 0 ? syscall(SYS_writev, fd, parts, count) : syscall(SYS_pwritev, fd, parts, count, offset, 0);
    pthread_mutex_lock(&lock);
    off_t from = offset;
    if (offset < 0) from = fcntl(fd, F_GETFL) & O_APPEND ? size_of(fd) : lseek(fd, 0, SEEK_CUR);
    ssize_t written = -1;
    if (!refuses(fd, from + (off_t)total(parts, count))) {
        written = offset < 0 ? syscall(SYS_writev, fd, parts, count) : syscall(SYS_pwritev, fd, parts, count, offset, 0);
        if (written > 0) dirty(id, from, from + written);
    }
    pthread_mutex_unlock(&lock);
    return written;
}

ssize_t write(int fd, const void *bytes, size_t length) {
    if (!tracked(fd)) return syscall(SYS_write, fd, bytes, length);
    struct iovec part = {(void *)bytes, length};
    return write_at(fd, &part, 1, -1);
}
ssize_t pwrite(int fd, const void *bytes, size_t length, off_t offset) {
    struct iovec part = {(void *)bytes, length};
    return write_at(fd, &part, 1, offset);
}
ssize_t pwrite64(int fd, const void *bytes, size_t length, off_t offset) { return pwrite(fd, bytes, length, offset); }
ssize_t writev(int fd, const struct iovec *parts, int count) { return write_at(fd, parts, count, -1); }
ssize_t pwritev(int fd, const struct iovec *parts, int count, off_t offset) { return write_at(fd, parts, count, offset); }
ssize_t pwritev64(int fd, const struct iovec *parts, int count, off_t offset) { return write_at(fd, parts, count, offset); }
ssize_t pwritev2(int fd, const struct iovec *parts, int count, off_t offset, int flags) { (void)flags; return write_at(fd, parts, count, offset); }
ssize_t pwritev64v2(int fd, const struct iovec *parts, int count, off_t offset, int flags) { (void)flags; return write_at(fd, parts, count, offset); }

/* Copies between files: rare, so all of the target counts as written. */
static ssize_t copied(int fd, ssize_t count) {
    int id = tracked(fd);
    if (!id || count <= 0) return count;
    pthread_mutex_lock(&lock);
    dirty(id, 0, size_of(fd));
    pthread_mutex_unlock(&lock);
    return count;
}
ssize_t copy_file_range(int from, off_t *from_offset, int to, off_t *to_offset, size_t length, unsigned flags) {
    if (tracked(to) && control->full) { control->refused++; errno = ENOSPC; return -1; }
    return copied(to, syscall(SYS_copy_file_range, from, from_offset, to, to_offset, length, flags));
}
ssize_t sendfile(int to, int from, off_t *offset, size_t length) {
    if (tracked(to) && control->full) { control->refused++; errno = ENOSPC; return -1; }
    return copied(to, syscall(SYS_sendfile, to, from, offset, length));
}
ssize_t sendfile64(int to, int from, off_t *offset, size_t length) { return sendfile(to, from, offset, length); }

int ftruncate(int fd, off_t size) {
    int id = tracked(fd);
    if (!id) return (int)syscall(SYS_ftruncate, fd, size);
    pthread_mutex_lock(&lock);
    int result = refuses(fd, size) ? -1 : (int)syscall(SYS_ftruncate, fd, size);
    if (result == 0) shrunk(id, size);
    pthread_mutex_unlock(&lock);
    return result;
}
int ftruncate64(int fd, off_t size) { return ftruncate(fd, size); }

int fallocate(int fd, int mode, off_t offset, off_t length) {
    int id = tracked(fd);
    if (!id) return (int)syscall(SYS_fallocate, fd, mode, offset, length);
    pthread_mutex_lock(&lock);
    int result = refuses(fd, offset + length) ? -1 : (int)syscall(SYS_fallocate, fd, mode, offset, length);
    if (result == 0) dirty(id, offset, offset + length);
    pthread_mutex_unlock(&lock);
    return result;
}
int fallocate64(int fd, int mode, off_t offset, off_t length) { return fallocate(fd, mode, offset, length); }
int posix_fallocate(int fd, off_t offset, off_t length) {
    int saved = errno, result = fallocate(fd, 0, offset, length) ? errno : 0;
    errno = saved;
    return result;
}
int posix_fallocate64(int fd, off_t offset, off_t length) { return posix_fallocate(fd, offset, length); }

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

static int sync_file(int fd, long call) {
    int id = tracked(fd);
    char name[PATH_MAX];
    int is_folder = !id && folder(fd, name);
    if (!id && !is_folder) return (int)syscall(call, fd);
    rest();
    pthread_mutex_lock(&lock);
    int fails = control->failing != 0;
    if (fails) {
        if (id) files[id].count = 0;
        control->failed++;
    } else if (is_folder) {
        note("sync\t%s\n", name);
    } else {
        keep(fd, id);
        control->syncs++;
    }
    pthread_mutex_unlock(&lock);
    rest();
    if (fails) errno = EIO;
    return fails ? -1 : 0;
}

int fsync(int fd) { return sync_file(fd, SYS_fsync); }
int fdatasync(int fd) { return sync_file(fd, SYS_fdatasync); }

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

static int rename_at(int from_dir, const char *from, int to_dir, const char *to, unsigned flags) {
    char old[PATH_MAX], new[PATH_MAX];
    int ours = inside(from_dir, from, old) + 2 * inside(to_dir, to, new);
    if (!ours) return (int)syscall(SYS_renameat2, from_dir, from, to_dir, to, flags);
    if (ours != 3 || (flags & RENAME_EXCHANGE)) die("a rename into or out of the root");
    pthread_mutex_lock(&lock);
    int result = (int)syscall(SYS_renameat2, from_dir, from, to_dir, to, flags);
    if (result == 0) {
        moved(old, new);
        note("rename\t%s\t%s\n", old, new);
    }
    pthread_mutex_unlock(&lock);
    return result;
}
int rename(const char *from, const char *to) { return rename_at(AT_FDCWD, from, AT_FDCWD, to, 0); }
int renameat(int from_dir, const char *from, int to_dir, const char *to) { return rename_at(from_dir, from, to_dir, to, 0); }
int renameat2(int from_dir, const char *from, int to_dir, const char *to, unsigned flags) { return rename_at(from_dir, from, to_dir, to, flags); }

static int remove_at(int dir, const char *path, int flags) {
    char name[PATH_MAX];
    if (!inside(dir, path, name)) return (int)syscall(SYS_unlinkat, dir, path, flags);
    pthread_mutex_lock(&lock);
    int result = (int)syscall(SYS_unlinkat, dir, path, flags);
    if (result == 0) {
        moved(name, NULL);
        note("remove\t%s\n", name);
    }
    pthread_mutex_unlock(&lock);
    return result;
}
int unlink(const char *path) { return remove_at(AT_FDCWD, path, 0); }
int unlinkat(int dir, const char *path, int flags) { return remove_at(dir, path, flags); }
int rmdir(const char *path) { return remove_at(AT_FDCWD, path, AT_REMOVEDIR); }

int mkdirat(int dir, const char *path, mode_t mode) {
    char name[PATH_MAX];
    int ours = inside(dir, path, name);
    int result = (int)syscall(SYS_mkdirat, dir, path, mode);
    if (ours && result == 0) {
        pthread_mutex_lock(&lock);
        note("mkdir\t%s\n", name);
        pthread_mutex_unlock(&lock);
    }
    return result;
}
int mkdir(const char *path, mode_t mode) { return mkdirat(AT_FDCWD, path, mode); }

/* What this disk cannot follow must not go unseen. */
int linkat(int from_dir, const char *from, int to_dir, const char *to, int flags) {
    char name[PATH_MAX];
    if (inside(to_dir, to, name)) die("a hard link below the root");
    return (int)syscall(SYS_linkat, from_dir, from, to_dir, to, flags);
}
int link(const char *from, const char *to) { return linkat(AT_FDCWD, from, AT_FDCWD, to, 0); }
void *mmap(void *address, size_t length, int protection, int flags, int fd, off_t offset) {
    if (tracked(fd) && (flags & MAP_SHARED) && (protection & PROT_WRITE)) die("a file below the root is mapped for writing");
    return (void *)syscall(SYS_mmap, address, length, protection, flags, fd, offset);
}
void *mmap64(void *address, size_t length, int protection, int flags, int fd, off_t offset) { return mmap(address, length, protection, flags, fd, offset); }
