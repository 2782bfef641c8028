/* A server whose threads share an epoll set, and client processes of it on 127.0.0.1. */
#include "sockets.h"
#include <pthread.h>
#include <sys/epoll.h>

enum { THREADS = 3, CLIENTS = 4, ROUNDS = 12, LONGEST = 40000 };

static int set, listener;

static void watch(int file, int operation, uint32_t events) {
    struct epoll_event event = {.events = events, .data.fd = file};
    CHECK(epoll_ctl(set, operation, file, &event) == 0);
}

/* Gives back what there is; what does not fit is waited for. */
static int echo(int file) {
    char bytes[8192];
    for (;;) {
        ssize_t got = recv(file, bytes, sizeof bytes, 0);
        if (got < 0) {
            CHECK(errno == EAGAIN);
            return 1;
        }
        if (got == 0) return 0;
        for (ssize_t done = 0; done < got;) {
            ssize_t sent = send(file, bytes + done, (size_t)(got - done), MSG_NOSIGNAL);
            if (sent < 0) {
                CHECK(errno == EAGAIN);
                struct pollfd room = {.fd = file, .events = POLLOUT};
                CHECK(poll(&room, 1, -1) == 1);
                continue;
            }
            done += sent;
        }
    }
}

static void *serve(void *served) {
    for (;;) {
        struct epoll_event event;
        CHECK(epoll_wait(set, &event, 1, -1) == 1);
        int file = event.data.fd;
        if (file == listener) {
            int new = accept4(listener, NULL, NULL, SOCK_NONBLOCK | SOCK_CLOEXEC);
            if (new < 0) {
                CHECK(errno == EAGAIN);
                continue;
            }
            watch(new, EPOLL_CTL_ADD, EPOLLIN | EPOLLET | EPOLLONESHOT);
        } else if (file == -1) {
            return NULL;
        } else if (echo(file)) {
            watch(file, EPOLL_CTL_MOD, EPOLLIN | EPOLLET | EPOLLONESHOT);
        } else {
            CHECK(close(file) == 0);
            __atomic_add_fetch((int *)served, 1, __ATOMIC_SEQ_CST);
        }
    }
}

static struct sockaddr_in address;
static int number;

static int client(void) {
    static unsigned char out[LONGEST], in[LONGEST];
    int file = socket(AF_INET, SOCK_STREAM, 0);
    CHECK(file >= 0 && connect(file, (struct sockaddr *)&address, sizeof address) == 0);
    unsigned sum = 0;
    for (int round = 0; round < ROUNDS; round++) {
        size_t length = 1 + (size_t)(round * round * 271 + number * 17) % LONGEST;
        for (size_t n = 0; n < length; n++) out[n] = (unsigned char)(n * 31 + (size_t)round + (size_t)number);
        for (size_t done = 0; done < length; done += (size_t)send(file, out + done, length - done, 0)) continue;
        CHECK(recv(file, in, length, MSG_WAITALL) == (ssize_t)length && memcmp(in, out, length) == 0);
        sum += (unsigned)length;
    }
    CHECK(shutdown(file, SHUT_WR) == 0 && recv(file, in, 1, 0) == 0 && close(file) == 0);
    return (int)(sum % 97);
}

int main(void) {
    listener = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK, 0);
    address = loopback(0);
    CHECK(listener >= 0 && bind(listener, (struct sockaddr *)&address, sizeof address) == 0);
    CHECK(listen(listener, 16) == 0);
    socklen_t length = sizeof address;
    CHECK(getsockname(listener, (struct sockaddr *)&address, &length) == 0 && length == sizeof address);
    pid_t clients[CLIENTS];
    for (number = 0; number < CLIENTS; number++) clients[number] = start(client);

    CHECK((set = epoll_create1(EPOLL_CLOEXEC)) >= 0);
    watch(listener, EPOLL_CTL_ADD, EPOLLIN);
    static int served;
    pthread_t threads[THREADS];
    for (int n = 0; n < THREADS; n++) CHECK(pthread_create(&threads[n], NULL, serve, &served) == 0);
    for (int n = 0; n < CLIENTS; n++) printf("client %d: %s\n", n, ended(finish(clients[n])));

    /* The end: an event that is there for all threads. */
    int end[2];
    CHECK(pipe(end) == 0);
    while (__atomic_load_n(&served, __ATOMIC_SEQ_CST) < CLIENTS) usleep(1000);
    struct epoll_event event = {.events = EPOLLIN, .data.fd = -1};
    CHECK(epoll_ctl(set, EPOLL_CTL_ADD, end[0], &event) == 0);
    tell(end);
    for (int n = 0; n < THREADS; n++) CHECK(pthread_join(threads[n], NULL) == 0);
    printf("served %d\n", served);
    return 0;
}
