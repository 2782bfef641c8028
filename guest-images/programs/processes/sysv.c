// System V: shared memory, semaphores with undo, message queues, between processes; what is removed while one waits.
#include "processes.h"
#include <sys/ipc.h>
#include <sys/msg.h>
#include <sys/sem.h>
#include <sys/shm.h>

union semun { int val; struct semid_ds *buf; unsigned short *array; };
struct message { long type; char text[100]; };

static int change(int set, unsigned short which, short by, short flags) {
    return semop(set, &(struct sembuf){which, by, flags}, 1);
}

static void memory(void) {
    int id = shmget(IPC_PRIVATE, 20000, IPC_CREAT | 0600);
    CHECK(id >= 0);
    int *at = shmat(id, NULL, 0);
    CHECK(at != (void *)-1);
    at[3] = 33;
    pid_t pid = split();
    if (pid == 0) {
        // A mapping by inheritance, and another of its own.
        int *again = shmat(id, NULL, 0);
        again[4] = at[3] + 1;
        at[5] = again != at;
        CHECK(shmdt(again) == 0);
        _exit(0);
    }
    printf("%s\n", ended(finish(pid)));
    struct shmid_ds data;
    CHECK(shmctl(id, IPC_STAT, &data) == 0);
    printf("%d %d %d, size %d, attached %d, by this process %d, last by the child %d\n", at[3], at[4], at[5],
           (int)data.shm_segsz, (int)data.shm_nattch, data.shm_cpid == getpid(), data.shm_lpid == pid);
    CHECK(shmctl(id, IPC_RMID, NULL) == 0);
    at[6] = 66;
    printf("removed, still there: %d\n", at[6]);
    const int *reader = shmat(id, NULL, SHM_RDONLY);
    printf("attached again while it is: %d\n", reader != (void *)-1 && reader[6] == 66);
    CHECK(shmdt(at) == 0 && shmdt(reader) == 0);
    CHECK(shmat(id, NULL, 0) == (void *)-1);
    printf("then: %s\n", error(errno));
    CHECK(shmdt(at) == -1);
    printf("detached twice: %s\n", error(errno));
}

static void semaphores(void) {
    int set = semget(IPC_PRIVATE, 3, IPC_CREAT | 0600);
    CHECK(set >= 0 && semctl(set, 0, SETALL, (union semun){.array = (unsigned short[]){0, 1, 5}}) == 0);
    long *sum = shared(sizeof *sum);
    pid_t pids[3];
    for (int n = 0; n < 3; n++) {
        pids[n] = split();
        if (pids[n] == 0) {
            CHECK(change(set, 0, -1, 0) == 0);
            for (int round = 0; round < 100; round++) {
                CHECK(change(set, 1, -1, SEM_UNDO) == 0);
                *sum += n + 1;
                CHECK(change(set, 1, 1, SEM_UNDO) == 0);
            }
            // It ends with one that it took: the kernel gives it back.
            CHECK(change(set, 2, -1, SEM_UNDO) == 0);
            _exit(n);
        }
    }
    CHECK(change(set, 0, 3, 0) == 0);
    for (int n = 0; n < 3; n++) printf("%s, ", ended(finish(pids[n])));
    unsigned short values[3];
    CHECK(semctl(set, 0, GETALL, (union semun){.array = values}) == 0);
    printf("sum %ld, values %d %d %d\n", *sum, values[0], values[1], values[2]);
    CHECK(change(set, 0, -1, IPC_NOWAIT) == -1);
    printf("none: %s\n", error(errno));
    struct timespec some = {0, 5000000};
    CHECK(semtimedop(set, &(struct sembuf){0, -1, 0}, 1, &some) == -1);
    printf("for a while: %s\n", error(errno));
    // Two at once, or none of them.
    struct sembuf both[] = {{2, -5, IPC_NOWAIT}, {0, -1, IPC_NOWAIT}};
    CHECK(semop(set, both, 2) == -1);
    printf("both: %s, left %d\n", error(errno), semctl(set, 2, GETVAL));
    pid_t pid = split();
    if (pid == 0) {
        CHECK(change(set, 1, 0, 0) == -1);
        _exit(errno == EIDRM ? 44 : 45);
    }
    while (semctl(set, 1, GETZCNT) == 0) usleep(500);
    CHECK(semctl(set, 0, IPC_RMID) == 0);
    printf("removed while one waits: %s\n", ended(finish(pid)));
}

static void messages(void) {
    int queue = msgget(IPC_PRIVATE, IPC_CREAT | 0600);
    CHECK(queue >= 0);
    struct message message;
    CHECK(msgrcv(queue, &message, sizeof message.text, 0, IPC_NOWAIT) == -1);
    printf("nothing: %s\n", error(errno));
    pid_t pid = split();
    if (pid == 0) {
        for (int n = 0; n < 6; n++) {
            message.type = 1 + n % 3;
            int length = snprintf(message.text, sizeof message.text, "message %d", n);
            CHECK(msgsnd(queue, &message, (size_t)length, 0) == 0);
        }
        _exit(0);
    }
    finish(pid);
    static const long types[] = {2, 0, -2, 3, -9, 0};
    for (size_t n = 0; n < sizeof types / sizeof *types; n++) {
        memset(&message, 0, sizeof message);
        ssize_t got = msgrcv(queue, &message, sizeof message.text, types[n], 0);
        printf("asked for %ld: %zd bytes, type %ld, %s\n", types[n], got, message.type, message.text);
    }
    message.type = 1;
    CHECK(msgsnd(queue, &message, 50, 0) == 0 && msgrcv(queue, &message, 10, 0, 0) == -1);
    printf("no room: %s, cut %zd\n", error(errno), msgrcv(queue, &message, 10, 0, MSG_NOERROR));
    // Back and forth between two that wait for each other.
    pid = split();
    if (pid == 0) {
        int sum = 0;
        for (int n = 0; n < 50; n++) {
            CHECK(msgrcv(queue, &message, sizeof message.text, 7, 0) > 0);
            sum += message.text[0];
            message.type = 8;
            CHECK(msgsnd(queue, &message, 5, 0) == 0);
        }
        _exit(sum % 200);
    }
    for (int n = 0; n < 50; n++) {
        message.type = 7, message.text[0] = (char)n;
        CHECK(msgsnd(queue, &message, 3, 0) == 0 && msgrcv(queue, &message, sizeof message.text, 8, 0) == 5);
    }
    printf("back and forth: %s\n", ended(finish(pid)));
    pid = split();
    if (pid == 0) _exit(msgrcv(queue, &message, sizeof message.text, 0, 0) == -1 && errno == EIDRM ? 44 : 45);
    usleep(2000);
    CHECK(msgctl(queue, IPC_RMID, NULL) == 0);
    int status = finish(pid);
    // EINVAL when it came too late to wait.
    printf("removed: %d\n", WIFEXITED(status));
}

int main(void) {
    memory();
    semaphores();
    messages();
    const char *folder = enter_folder();
    key_t key = ftok(folder, 'g');
    int id = shmget(key, 4096, IPC_CREAT | IPC_EXCL | 0600);
    CHECK(id >= 0);
    CHECK(shmget(key, 4096, IPC_CREAT | IPC_EXCL | 0600) == -1);
    printf("by key: %s, the same %d\n", error(errno), shmget(key, 0, 0) == id);
    CHECK(shmget(key, 8192, 0) == -1);
    printf("too large: %s\n", error(errno));
    CHECK(shmctl(id, IPC_RMID, NULL) == 0 && shmget(key, 0, 0) == -1);
    printf("removed: %s\n", error(errno));
    leave_folder(folder);
    return 0;
}
