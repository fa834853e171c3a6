/* SPDX-License-Identifier: Apache-2.0
 *
 * Attack by looking around for a secret of the caller: in every process's environment and
 * arguments, in what the kernel put on our own stack, in all memory we have, and in the kernel's
 * lists of keys. The secret is given backwards, so that finding it forwards never means finding our
 * own copy.
 */
#include "probe.h"

#include <ctype.h>
#include <dirent.h>
#include <fcntl.h>

static char
    buffer[1 << 20]; /* only ever holds what is being searched; left out of the search itself */

static int matches(const char *text, const char *backwards, size_t length)
{
    for (size_t i = 0; i < length; i++) {
        if (text[i] != backwards[length - 1 - i])
            return 0;
    }
    return 1;
}

static void search(const char *where, const char *text, size_t size, const char *backwards)
{
    size_t length = strlen(backwards);

    for (size_t i = 0; i + length <= size; i++) {
        if (matches(text + i, backwards, length)) {
            escaped("the secret is in %s", where);
            return;
        }
    }
}

static void search_file(const char *path, const char *backwards)
{
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    ssize_t size;

    if (fd < 0)
        return;
    size = read(fd, buffer, sizeof(buffer));
    if (size > 0)
        search(path, buffer, (size_t)size, backwards);
    memset(buffer, 0, sizeof(buffer));
    close(fd);
}

static void search_processes(const char *backwards)
{
    static const char *const files[] = {"environ", "cmdline", "comm", "auxv", "status"};
    DIR *proc = opendir("/proc");
    struct dirent *entry;

    if (proc == NULL)
        unclear("/proc");
    while ((entry = readdir(proc)) != NULL) {
        for (size_t i = 0; isdigit(entry->d_name[0]) && i < sizeof(files) / sizeof(files[0]); i++) {
            char path[300];
            snprintf(path, sizeof(path), "/proc/%s/%s", entry->d_name, files[i]);
            search_file(path, backwards);
        }
    }
    closedir(proc);
}

static void search_own_memory(const char *backwards)
{
    FILE *maps = fopen("/proc/self/maps", "re");
    char line[512];

    if (maps == NULL)
        unclear("/proc/self/maps");
    while (fgets(line, sizeof(line), maps) != NULL) {
        unsigned long from;
        unsigned long to;
        char mode[8];
        if (sscanf(line, "%lx-%lx %7s", &from, &to, mode) != 3 || mode[0] != 'r' ||
            strstr(line, "[v") != NULL)
            continue;
        line[strcspn(line, "\n")] = '\0';
        search(line, (const char *)from, to - from, backwards);
    }
    fclose(maps);
}

int main(int argc, char **argv)
{
    if (argc != 2 || strlen(argv[1]) < 8)
        unclear("usage: secrets SECRET-BACKWARDS");
    search_processes(argv[1]);
    search_own_memory(argv[1]);
    search_file("/proc/keys", argv[1]);
    search_file("/proc/key-users", argv[1]);
    search_file("/proc/cmdline", argv[1]);
    return verdict();
}
