/* A disk that is slow, or whose quota is used up, for what lies below FOLDER: to be preloaded.
   The file CONTROL says how: milliseconds that a write takes, and 1 if there is no quota left.
   Compiled by slow_disk.py; both are absolute paths. */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

static int is_below(int fd)
{
    char link[64], path[4096];
    snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
    ssize_t size = readlink(link, path, sizeof path - 1);
    if (size < 0) return 0;
    path[size] = 0;
    return strncmp(path, FOLDER "/", sizeof FOLDER) == 0;
}

/* Waits as long as a write takes; whether it fails. */
static int hinder(int fd, int takes_room)
{
    int kept = errno, milliseconds = 0, is_used_up = 0;
    if (is_below(fd)) {
        char text[64] = "";
        int control = syscall(SYS_openat, AT_FDCWD, CONTROL, O_RDONLY | O_CLOEXEC);
        if (control >= 0) {
            if (syscall(SYS_read, control, text, sizeof text - 1) > 0)
                sscanf(text, "%d %d", &milliseconds, &is_used_up);
            syscall(SYS_close, control);
        }
        struct timespec pause = {milliseconds / 1000, milliseconds % 1000 * 1000000L};
        if (milliseconds) nanosleep(&pause, NULL);
    }
    errno = kept;
    return is_used_up && takes_room;
}

ssize_t write(int fd, const void *data, size_t size)
{
    if (size && hinder(fd, 1)) { errno = EDQUOT; return -1; }
    return syscall(SYS_write, fd, data, size);
}

int fsync(int fd) { hinder(fd, 0); return syscall(SYS_fsync, fd); }

int fdatasync(int fd) { hinder(fd, 0); return syscall(SYS_fdatasync, fd); }
