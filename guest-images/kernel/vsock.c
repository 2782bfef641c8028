/* A program for a guest with a vsock (scripts/kernel-boot.sh): `vsock echo PORT` sends back to one program of the host what it sends,
 * `vsock ask PORT TEXT` sends TEXT to one and prints its answer. Each says how it ended.
 */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#define FAMILY 40
#define ANY 0xffffffffu
#define HOST 2u

struct address {
    uint16_t family, reserved;
    uint32_t port, cid;
    uint8_t zero[4];
};

static void fail(const char *what)
{
    perror(what);
    exit(1);
}

static size_t copy(int from, int to)
{
    static char piece[65536];
    size_t total = 0;
    ssize_t n;
    while ((n = read(from, piece, sizeof piece)) > 0) {
        for (ssize_t done = 0, m; done < n; done += m)
            if ((m = write(to, piece + done, n - done)) < 0)
                fail("vsock: write");
        total += n;
    }
    if (n < 0)
        fail("vsock: read");
    return total;
}

int main(int argc, char **argv)
{
    if (argc < 3)
        return 2;
    int it = socket(FAMILY, SOCK_STREAM, 0);
    struct address at = { .family = FAMILY, .port = strtoul(argv[2], NULL, 0), .cid = HOST };
    if (it < 0)
        fail("vsock: socket");
    if (strcmp(argv[1], "ask") == 0) {
        if (connect(it, (void *)&at, sizeof at) < 0)
            fail("vsock: connect");
        if (write(it, argv[3], strlen(argv[3])) < 0 || shutdown(it, SHUT_WR) < 0)
            fail("vsock: ask");
        copy(it, 1);
        return 0;
    }
    at.cid = ANY;
    if (bind(it, (void *)&at, sizeof at) < 0 || listen(it, 1) < 0)
        fail("vsock: listen");
    int other = accept(it, NULL, NULL);
    if (other < 0)
        fail("vsock: accept");
    printf("echo: %zu bytes\n", copy(other, other));
    return 0;
}
