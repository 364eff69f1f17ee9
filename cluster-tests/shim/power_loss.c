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
 * After a failed fsync what was dirty counts as clean and not written, as in Linux. The tables are in shadow.h. */
#include "shadow.h"

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
