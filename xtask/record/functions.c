/*
 * Runs a program and writes down which of its functions run, in the order of their first calls.
 *
 * It takes the place of the program: arguments are passed on. RECORD_PROGRAM names the program,
 * RECORD_ADDRESSES a file with the addresses of its functions (hexadecimal, one per line, relative to
 * where the program is loaded), RECORD_OUTPUT the file for those that ran.
 *
 * Each function starts with a breakpoint, which is removed when it is hit. Linux on x86-64 only.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/ptrace.h>
#include <sys/user.h>
#include <sys/wait.h>
#include <unistd.h>

enum { MOST = 1 << 20 };
static const unsigned char BREAKPOINT = 0xcc;

static uint64_t address[MOST];
static unsigned char original[MOST];
static unsigned char has_run[MOST];
static long count;
static pid_t child;

static void fail(const char *what) {
    perror(what);
    exit(3);
}

static const char *variable(const char *name) {
    const char *value = getenv(name);
    if (value == NULL) {
        fprintf(stderr, "%s is not set\n", name);
        exit(3);
    }
    return value;
}

static FILE *file(const char *path, const char *mode) {
    FILE *opened = fopen(path, mode);
    if (opened == NULL) fail(path);
    return opened;
}

static int compare(const void *one, const void *other) {
    uint64_t a = *(const uint64_t *)one, b = *(const uint64_t *)other;
    return (a > b) - (a < b);
}

static void pass_on(int signal_number) {
    kill(child, signal_number);
}

/* A thread stopped at a breakpoint: notes the function, and lets it run. */
static int resume_function(pid_t thread, uint64_t base, int memory, FILE *output) {
    struct user_regs_struct registers;
    if (ptrace(PTRACE_GETREGS, thread, NULL, &registers) != 0) return 0;
    uint64_t at = registers.rip - 1 - base;
    uint64_t *found = bsearch(&at, address, count, sizeof at, compare);
    if (found == NULL) return 0;
    long index = found - address;
    /* Another thread may have been here in between. */
    if (!has_run[index]) {
        has_run[index] = 1;
        pwrite(memory, &original[index], 1, base + at);
        fprintf(output, "%" PRIx64 "\n", at);
    }
    registers.rip -= 1;
    return ptrace(PTRACE_SETREGS, thread, NULL, &registers) == 0;
}

int main(int argc, char **argv) {
    (void)argc;
    FILE *addresses = file(variable("RECORD_ADDRESSES"), "r");
    while (count < MOST && fscanf(addresses, "%" SCNx64, &address[count]) == 1) count++;
    fclose(addresses);
    qsort(address, count, sizeof address[0], compare);
    FILE *output = file(variable("RECORD_OUTPUT"), "w");
    setvbuf(output, NULL, _IOLBF, 0);

    child = fork();
    if (child < 0) fail("fork");
    if (child == 0) {
        ptrace(PTRACE_TRACEME, 0, NULL, NULL);
        execv(variable("RECORD_PROGRAM"), argv);
        _exit(127);
    }
    int status;
    waitpid(child, &status, 0);
    signal(SIGTERM, pass_on);
    signal(SIGINT, pass_on);
    ptrace(PTRACE_SETOPTIONS, child, NULL, PTRACE_O_TRACECLONE | PTRACE_O_EXITKILL);

    char path[64];
    uint64_t base = 0;
    snprintf(path, sizeof path, "/proc/%d/maps", child);
    FILE *maps = file(path, "r");
    if (fscanf(maps, "%" SCNx64, &base) != 1) fail(path);
    fclose(maps);
    snprintf(path, sizeof path, "/proc/%d/mem", child);
    int memory = open(path, O_RDWR);
    if (memory < 0) fail(path);
    for (long index = 0; index < count; index++) {
        pread(memory, &original[index], 1, base + address[index]);
        pwrite(memory, &BREAKPOINT, 1, base + address[index]);
    }
    ptrace(PTRACE_CONT, child, NULL, NULL);

    for (;;) {
        pid_t thread = waitpid(-1, &status, __WALL);
        if (thread < 0 && errno == EINTR) continue;
        if (thread < 0) break;
        if (!WIFSTOPPED(status)) {
            if (thread == child) break;
            continue;
        }
        int stopped_by = WSTOPSIG(status);
        /* The start of a thread, and its event, are no signals of the program. */
        int is_ours = stopped_by == SIGSTOP || status >> 16 != 0;
        if (!is_ours && stopped_by == SIGTRAP) is_ours = resume_function(thread, base, memory, output);
        ptrace(PTRACE_CONT, thread, NULL, is_ours ? 0 : stopped_by);
    }
    fclose(output);
    return WIFEXITED(status) ? WEXITSTATUS(status) : 128;
}
