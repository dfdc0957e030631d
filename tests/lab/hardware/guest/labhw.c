/* Copyright (c) 2026 gpu.fleet contributors
 * GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
 * SPDX-License-Identifier: GPL-3.0-or-later
 *
 * Preloaded into every program of a lab host, this library stands where the host's own kernel would answer differently:
 *   - uname() gives the kernel release that the host reports;
 *   - /proc/modules and a module's refcnt are made at the moment they are opened, from the loaded modules and from who
 *     holds /dev/nvidia* open;
 *   - the system calls that load and unload modules, and the one that reads the kernel's log, go to the lab's kernel.
 * So kmod, dmesg, systemd-modules-load and everything else run unmodified.
 */
#define _GNU_SOURCE
#include <ctype.h>
#include <dirent.h>
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <spawn.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/utsname.h>
#include <sys/wait.h>
#include <unistd.h>

#define STATE "/run/lab/hw"
#define KERNEL "/usr/local/lib/lab/lab-kernel"
#define REAL(type, name, ...) static type (*real)(__VA_ARGS__); if (!real) *(void **)&real = dlsym(RTLD_NEXT, #name)

extern char **environ;

/* Open without passing through the functions that this library replaces. */
static int plain_open(const char *path, int flags, mode_t mode) { return (int)syscall(SYS_openat, AT_FDCWD, path, flags, mode); }

static ssize_t slurp(const char *path, char *buffer, size_t size) {
    int fd = plain_open(path, O_RDONLY | O_CLOEXEC, 0);
    if (fd < 0) return -1;
    ssize_t total = 0, got;
    while ((size_t)total < size - 1 && (got = read(fd, buffer + total, size - 1 - (size_t)total)) > 0) total += got;
    close(fd);
    buffer[total] = 0;
    return total;
}

int uname(struct utsname *name) {
    int result = (int)syscall(SYS_uname, name);
    char text[sizeof name->release];
    if (result == 0 && (slurp(STATE "/kernel-release", text, sizeof text) > 0 || slurp("/etc/lab/kernel-release", text, sizeof text) > 0)) {
        text[strcspn(text, "\n")] = 0;
        strcpy(name->release, text);
    }
    return result;
}

/* ---- who uses a module ------------------------------------------------------------------------------------------ */

/* The module whose code an open device file keeps in use, or NULL. */
static const char *module_of(const char *device) {
    if (strncmp(device, "/dev/nvidia", 11)) return NULL;
    if (!strncmp(device + 11, "-uvm", 4)) return "nvidia_uvm";
    if (!strncmp(device + 11, "-modeset", 8)) return "nvidia_modeset";
    return "nvidia";
}

struct uses { int nvidia, uvm, modeset; };

static int *use_of(struct uses *uses, const char *module) {
    if (!strcmp(module, "nvidia")) return &uses->nvidia;
    if (!strcmp(module, "nvidia_uvm")) return &uses->uvm;
    if (!strcmp(module, "nvidia_modeset")) return &uses->modeset;
    return NULL;
}

static struct uses count_uses(void) {
    struct uses uses = {0, 0, 0};
    char folder[64], link[384], target[64];
    DIR *processes = opendir("/proc");
    if (!processes) return uses;
    for (struct dirent *process; (process = readdir(processes));) {
        if (!isdigit((unsigned char)process->d_name[0])) continue;
        snprintf(folder, sizeof folder, "/proc/%.20s/fd", process->d_name);
        DIR *files = opendir(folder);
        if (!files) continue;
        for (struct dirent *file; (file = readdir(files));) {
            snprintf(link, sizeof link, "%s/%s", folder, file->d_name);
            ssize_t length = readlink(link, target, sizeof target - 1);
            if (length <= 0) continue;
            target[length] = 0;
            const char *module = module_of(target);
            if (module) ++*use_of(&uses, module);
        }
        closedir(files);
    }
    closedir(processes);
    return uses;
}

static int made_file(const char *text, size_t length) {
    int fd = (int)syscall(SYS_memfd_create, "lab", MFD_CLOEXEC);
    if (fd < 0 || write(fd, text, length) != (ssize_t)length) return fd;
    lseek(fd, 0, SEEK_SET);
    return fd;
}

/* STATE/modules holds /proc/modules as it is when nobody has a device open; add the present users. */
static int open_modules(void) {
    static const size_t room = 65536;
    char *text = malloc(2 * room), *out = text ? text + room : NULL;
    if (!text) return -1;
    if (slurp(STATE "/modules", text, room) < 0) { free(text); errno = ENOENT; return -1; }
    struct uses uses = count_uses();
    size_t used = 0;
    for (char *save, *line = strtok_r(text, "\n", &save); line; line = strtok_r(NULL, "\n", &save)) {
        char name[64], rest[1024]; long size; int count;
        if (sscanf(line, "%63s %ld %d %1023[^\n]", name, &size, &count, rest) != 4) continue;
        int *more = use_of(&uses, name);
        int wrote = snprintf(out + used, room - used, "%s %ld %d %s\n", name, size, count + (more ? *more : 0), rest);
        if (wrote < 0 || (size_t)wrote >= room - used) break;
        used += (size_t)wrote;
    }
    int fd = made_file(out, used);
    free(text);
    return fd;
}

static int open_refcnt(const char *path, const char *module) {
    char text[32];
    if (slurp(path, text, sizeof text) < 0) { errno = ENOENT; return -1; }
    struct uses uses = count_uses();
    int *more = use_of(&uses, module);
    int length = snprintf(text, sizeof text, "%d\n", atoi(text) + (more ? *more : 0));
    return made_file(text, (size_t)length);
}

/* Open a file that is made on the spot. Returns -2 for every other path. */
static int special_open(const char *path, int flags) {
    if (!path || path[0] != '/' || (flags & O_ACCMODE) != O_RDONLY) return -2;
    if (!strcmp(path, "/proc/modules")) return access(STATE "/modules", R_OK) ? -2 : open_modules();
    if (!strncmp(path, "/sys/module/nvidia", 18)) {
        char module[64];
        if (sscanf(path, "/sys/module/%63[^/]/refcnt", module) == 1 && !strcmp(path + 12 + strlen(module), "/refcnt")) {
            struct uses none = {0, 0, 0};
            if (use_of(&none, module)) return open_refcnt(path, module);
        }
    }
    return -2;
}

/* The path that stands for a path which this kernel may lack. */
static const char *stand_in(const char *path) {
    return path && !strcmp(path, "/proc/modules") && !faccessat(AT_FDCWD, STATE "/modules", F_OK, 0) ? STATE "/modules" : path;
}

#define MODE_OF(flags) mode_t mode = 0; if ((flags) & (O_CREAT | __O_TMPFILE)) { va_list list; va_start(list, flags); mode = va_arg(list, mode_t); va_end(list); }
#define OPEN(name) int name(const char *path, int flags, ...) { MODE_OF(flags) REAL(int, name, const char *, int, ...); \
    int made = special_open(path, flags); return made == -2 ? real(path, flags, mode) : made; }
OPEN(open)
OPEN(open64)
#define OPENAT(name) int name(int folder, const char *path, int flags, ...) { MODE_OF(flags) REAL(int, name, int, const char *, int, ...); \
    int made = special_open(path, flags); return made == -2 ? real(folder, path, flags, mode) : made; }
OPENAT(openat)
OPENAT(openat64)
#define FOPEN(name) FILE *name(const char *path, const char *mode) { REAL(FILE *, name, const char *, const char *); \
    int made = mode && mode[0] == 'r' && !strchr(mode, '+') ? special_open(path, O_RDONLY) : -2; \
    return made == -2 ? real(path, mode) : made < 0 ? NULL : fdopen(made, "r"); }
FOPEN(fopen)
FOPEN(fopen64)
int access(const char *path, int mode) { REAL(int, access, const char *, int); return real(stand_in(path), mode); }
int stat(const char *restrict path, struct stat *restrict to) { REAL(int, stat, const char *, struct stat *); return real(stand_in(path), to); }
int stat64(const char *restrict path, struct stat64 *restrict to) { REAL(int, stat64, const char *, struct stat64 *); return real(stand_in(path), to); }
int lstat(const char *restrict path, struct stat *restrict to) { REAL(int, lstat, const char *, struct stat *); return real(stand_in(path), to); }
int statx(int folder, const char *restrict path, int flags, unsigned mask, struct statx *restrict to) {
    REAL(int, statx, int, const char *, int, unsigned, struct statx *);
    return real(folder, stand_in(path), flags, mask, to);
}
int fstatat(int folder, const char *restrict path, struct stat *restrict to, int flags) {
    REAL(int, fstatat, int, const char *, struct stat *, int);
    return real(folder, stand_in(path), to, flags);
}

/* ---- loading and unloading --------------------------------------------------------------------------------------- */

/* Hand a request to the lab's kernel, which answers with an errno as its exit status. */
static int ask_kernel(const char *verb, const char *subject, const char *more) {
    char *const words[] = {(char *)KERNEL, (char *)verb, (char *)subject, (char *)more, NULL};
    pid_t child;
    int status;
    if (access(STATE "/modules", R_OK) || posix_spawn(&child, KERNEL, NULL, NULL, words, environ)) { errno = EPERM; return -1; }
    while (waitpid(child, &status, 0) < 0) if (errno != EINTR) { errno = EPERM; return -1; }
    errno = WIFEXITED(status) ? WEXITSTATUS(status) : EIO;
    return errno ? -1 : 0;
}

static int load_file(int fd, const char *options) {
    char link[64], path[4096];
    snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
    ssize_t length = readlink(link, path, sizeof path - 1);
    if (length < 0) return -1;
    path[length] = 0;
    return ask_kernel("load", path, options ? options : "");
}

/* kmod unpacks compressed modules itself and hands over their bytes. */
int init_module(void *image, unsigned long size, const char *options) {
    char path[] = STATE "/XXXXXX.ko";
    int fd = mkostemps(path, 3, O_CLOEXEC);
    if (fd < 0 || write(fd, image, size) != (ssize_t)size) { if (fd >= 0) close(fd); errno = EPERM; return -1; }
    close(fd);
    int result = ask_kernel("load", path, options ? options : ""), kept = errno;
    unlink(path);
    errno = kept;
    return result;
}

int delete_module(const char *name, unsigned flags) { (void)flags; return ask_kernel("unload", name, ""); }

long syscall(long number, ...) {
    long word[6];
    va_list list;
    va_start(list, number);
    for (int i = 0; i < 6; i++) word[i] = va_arg(list, long);
    va_end(list);
    if (number == SYS_finit_module) return load_file((int)word[0], (const char *)word[1]);
    if (number == SYS_init_module) return init_module((void *)word[0], (unsigned long)word[1], (const char *)word[2]);
    if (number == SYS_delete_module) return delete_module((const char *)word[0], (unsigned)word[1]);
    REAL(long, syscall, long, ...);
    return real(number, word[0], word[1], word[2], word[3], word[4], word[5]);
}

/* ---- the kernel's log -------------------------------------------------------------------------------------------- */

int klogctl(int type, char *buffer, int size) {
    enum { READ_ALL = 3, READ_CLEAR = 4, SIZE_UNREAD = 9, SIZE_BUFFER = 10, ROOM = 1 << 18 };
    if (type == SIZE_BUFFER || type == SIZE_UNREAD) return ROOM;
    if (type != READ_ALL && type != READ_CLEAR) return 0;
    ssize_t got = size > 0 ? slurp(STATE "/dmesg", buffer, (size_t)size) : 0;
    return got < 0 ? 0 : (int)got;
}
