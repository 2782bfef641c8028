//! Shared memory, semaphores and messages of System V, and message queues of POSIX: as the host does it, and the same at replay.

use crate::sharing::passes;

/// What is sent, received and waited for has a union of its own in each program.
const SYSTEM_V: &str = r#"
    union semun { int val; struct semid_ds *buf; unsigned short *array; struct seminfo *info; };
    struct text { long type; char text[64]; };
    static void nothing(int signal) { }
    static void pause_a_bit(void) { struct timespec bit = { 0, 5000000 }; nanosleep(&bit, 0); }"#;

#[test]
fn system_v_shared_memory() {
    passes(
        "shm",
        SYSTEM_V,
        r#"
        key_t key = 0x5eed0000 + getpid() % 0x10000;
        int id = shmget(key, 5 * PAGE - 100, IPC_CREAT | IPC_EXCL | 0640);
        CHECK(id >= 0 && shmget(key, PAGE, 0) == id);
        FAILS(shmget(key, PAGE, IPC_CREAT | IPC_EXCL), EEXIST);
        FAILS(shmget(key, 6 * PAGE, 0), EINVAL);
        FAILS(shmget(key + 1, PAGE, 0), ENOENT);
        FAILS(shmget(IPC_PRIVATE, 0, 0600), EINVAL);
        char *a = shmat(id, 0, 0), *b = shmat(id, 0, SHM_RDONLY);
        CHECK(a != (char *)-1 && b != (char *)-1 && a != b && a[0] == 0 && a[5 * PAGE - 1] == 0);
        strcpy(a + PAGE, "both");
        CHECK(!strcmp(b + PAGE, "both") && signal_of(b, 1) == SIGSEGV);
        FAILS(mprotect(b, PAGE, rw), EACCES);
        struct shmid_ds ds;
        CHECK(shmctl(id, IPC_STAT, &ds) == 0 && ds.shm_segsz == 5 * PAGE - 100 && ds.shm_nattch == 2);
        CHECK(ds.shm_perm.mode == 0640 && ds.shm_perm.uid == getuid() && ds.shm_perm.cuid == getuid() && ds.shm_cpid == getpid());
        CHECK(ds.shm_atime >= ds.shm_ctime && ds.shm_dtime == 0 && ds.shm_lpid == getpid());
        pid_t child = fork();
        if (child == 0) {
            CHECK(shmctl(id, IPC_STAT, &ds) == 0 && ds.shm_nattch == 4 && !strcmp(a + PAGE, "both"));
            strcpy(a + 3 * PAGE, "from the child");
            CHECK(shmdt(b) == 0);
            FAILS(shmdt(b), EINVAL);
            _exit(failed);
        }
        CHECK(ended(child) == 0 && !strcmp(b + 3 * PAGE, "from the child"));
        CHECK(shmctl(id, IPC_STAT, &ds) == 0 && ds.shm_nattch == 2);
        FAILS(shmat(id, a, 0), EINVAL);
        FAILS(shmat(id, a + 1, 0), EINVAL);
        CHECK(shmat(id, a + 1, SHM_RND | SHM_REMAP) == a && !strcmp(a + PAGE, "both"));
        FAILS(shmat(-1, 0, 0), EINVAL);
        FAILS(shmdt(a + PAGE), EINVAL);
        ds.shm_perm.mode = 0600;
        CHECK(shmctl(id, IPC_SET, &ds) == 0 && shmctl(id, IPC_STAT, &ds) == 0 && ds.shm_perm.mode == 0600);
        struct shminfo limits; struct shm_info used;
        CHECK(shmctl(0, IPC_INFO, (void *)&limits) >= 0 && limits.shmmin == 1 && limits.shmmni >= 4096);
        CHECK(shmctl(0, SHM_INFO, (void *)&used) >= 0 && used.used_ids >= 1 && used.shm_tot >= 5);
        FAILS(shmctl(id, 99, 0), EINVAL);
        CHECK(shmctl(id, IPC_RMID, 0) == 0 && shmctl(id, IPC_STAT, &ds) == 0 && ds.shm_perm.mode & 01000);
        FAILS(shmget(key, PAGE, 0), ENOENT);
        CHECK(shmdt(b) == 0 && a[PAGE] == 'b' && shmdt(a) == 0 && signal_of(a, 0) == SIGSEGV);
        FAILS(shmctl(id, IPC_STAT, &ds), EINVAL);
        int again = shmget(key, PAGE, IPC_CREAT | 0600);
        CHECK(again != id && shmctl(again, IPC_RMID, 0) == 0);
        FAILS(shmctl(again, IPC_RMID, 0), EINVAL);
        int private = shmget(IPC_PRIVATE, PAGE, 0600);
        char *p = shmat(private, 0, 0);
        child = fork();
        if (child == 0) { p[0] = 1; shmdt(p); execl("/bin/true", "true", (char *)0); _exit(9); }
        CHECK(ended(child) == 0 && p[0] == 1);
        CHECK(shmctl(private, IPC_STAT, &ds) == 0 && ds.shm_nattch == 1 && shmctl(private, IPC_RMID, 0) == 0);
    "#,
        |_| {},
    );
}

#[test]
fn system_v_semaphores() {
    passes(
        "sem",
        SYSTEM_V,
        r#"
        union semun arg;
        int id = semget(IPC_PRIVATE, 3, 0600);
        CHECK(id >= 0);
        FAILS(semget(IPC_PRIVATE, 0, 0600), EINVAL);
        FAILS(semget(IPC_PRIVATE, 40000, 0600), EINVAL);
        unsigned short values[3] = { 1, 2, 0 };
        arg.array = values;
        CHECK(semctl(id, 0, SETALL, arg) == 0 && semctl(id, 1, GETVAL) == 2);
        struct sembuf take = { 0, -1, 0 }, give = { 0, 1, 0 }, zero = { 0, 0, 0 }, both[2] = { { 0, -1, 0 }, { 2, -1, IPC_NOWAIT } };
        FAILS(semop(id, both, 2), EAGAIN);
        CHECK(semctl(id, 0, GETVAL) == 1);
        CHECK(semop(id, &take, 1) == 0 && semctl(id, 0, GETVAL) == 0 && semctl(id, 0, GETPID) == getpid());
        CHECK(semop(id, &zero, 1) == 0);
        take.sem_flg = IPC_NOWAIT;
        FAILS(semop(id, &take, 1), EAGAIN);
        take.sem_flg = 0;
        struct timespec soon = { 0, 3000000 }, wrong = { 0, -1 };
        FAILS(semtimedop(id, &take, 1, &soon), EAGAIN);
        FAILS(semtimedop(id, &take, 1, &wrong), EINVAL);
        struct sembuf far = { 3, 1, 0 };
        FAILS(semop(id, &far, 1), EFBIG);
        FAILS(semop(id, &take, 0), EINVAL);
        FAILS(semop(id, &take, 501), E2BIG);
        FAILS(semop(9999999, &take, 1), EINVAL);
        far.sem_num = 1; far.sem_op = 32767;
        FAILS(semop(id, &far, 1), ERANGE);
        arg.val = 40000;
        FAILS(semctl(id, 0, SETVAL, arg), ERANGE);
        FAILS(semctl(id, 3, GETVAL), EINVAL);
        pid_t child = fork();
        if (child == 0) { CHECK(semop(id, &take, 1) == 0); _exit(failed); }
        while (semctl(id, 0, GETNCNT) != 1) pause_a_bit();
        CHECK(semop(id, &give, 1) == 0 && ended(child) == 0 && semctl(id, 0, GETVAL) == 0 && semctl(id, 0, GETNCNT) == 0);
        CHECK(semop(id, &give, 1) == 0);
        child = fork();
        if (child == 0) { CHECK(semop(id, &zero, 1) == 0); _exit(failed); }
        while (semctl(id, 0, GETZCNT) != 1) pause_a_bit();
        CHECK(semop(id, &take, 1) == 0 && ended(child) == 0);
        child = fork();
        if (child == 0) {
            struct sembuf undone[2] = { { 0, 3, SEM_UNDO }, { 1, -2, SEM_UNDO } };
            CHECK(semop(id, undone, 2) == 0 && semctl(id, 0, GETVAL) == 3 && semctl(id, 1, GETVAL) == 0);
            struct sembuf part = { 0, -1, 0 };
            CHECK(semop(id, &part, 1) == 0);
            _exit(failed);
        }
        CHECK(ended(child) == 0 && semctl(id, 0, GETVAL) == 0 && semctl(id, 1, GETVAL) == 2);
        child = fork();
        if (child == 0) {
            struct sembuf hold = { 2, 5, SEM_UNDO };
            CHECK(semop(id, &hold, 1) == 0);
            kill(getpid(), SIGKILL);
        }
        CHECK(ended(child) == SIGKILL && semctl(id, 2, GETVAL) == 0);
        struct sigaction action = { 0 };
        action.sa_handler = nothing; action.sa_flags = SA_RESTART;
        sigaction(SIGUSR1, &action, 0);
        child = fork();
        if (child == 0) { FAILS(semop(id, &take, 1), EINTR); _exit(failed); }
        while (semctl(id, 0, GETNCNT) != 1) pause_a_bit();
        kill(child, SIGUSR1);
        CHECK(ended(child) == 0);
        child = fork();
        if (child == 0) { FAILS(semop(id, &take, 1), EIDRM); _exit(failed); }
        while (semctl(id, 0, GETNCNT) != 1) pause_a_bit();
        struct semid_ds ds;
        arg.buf = &ds;
        CHECK(semctl(id, 0, IPC_STAT, arg) == 0 && ds.sem_nsems == 3 && ds.sem_perm.mode == 0600 && ds.sem_otime >= ds.sem_ctime);
        ds.sem_perm.mode = 0400;
        CHECK(semctl(id, 0, IPC_SET, arg) == 0);
        struct seminfo info;
        arg.info = &info;
        CHECK(semctl(0, 0, IPC_INFO, arg) >= 0 && info.semvmx == 32767 && info.semopm == 500);
        CHECK(semctl(id, 0, IPC_RMID) == 0 && ended(child) == 0);
        FAILS(semctl(id, 0, GETVAL), EINVAL);
    "#,
        |_| {},
    );
}

#[test]
fn system_v_messages() {
    passes(
        "msg",
        SYSTEM_V,
        r#"
        int id = msgget(IPC_PRIVATE, 0600);
        CHECK(id >= 0);
        struct text m = { 5, "five" }, got;
        CHECK(msgsnd(id, &m, 5, 0) == 0);
        m.type = 3; strcpy(m.text, "three"); CHECK(msgsnd(id, &m, 6, 0) == 0);
        m.type = 4; strcpy(m.text, "four"); CHECK(msgsnd(id, &m, 5, 0) == 0);
        m.type = 3; strcpy(m.text, "third"); CHECK(msgsnd(id, &m, 6, 0) == 0);
        struct msqid_ds ds;
        CHECK(msgctl(id, IPC_STAT, &ds) == 0 && ds.msg_qnum == 4 && ds.msg_cbytes == 22 && ds.msg_qbytes == 16384 && ds.msg_lspid == getpid());
        CHECK(msgrcv(id, &got, 64, -4, 0) == 6 && got.type == 3 && !strcmp(got.text, "three"));
        CHECK(msgrcv(id, &got, 64, 5, MSG_EXCEPT) == 5 && got.type == 4);
        FAILS(msgrcv(id, &got, 64, 9, IPC_NOWAIT), ENOMSG);
        FAILS(msgrcv(id, &got, 2, 0, 0), E2BIG);
        CHECK(msgrcv(id, &got, 2, 0, MSG_NOERROR) == 2 && got.type == 5 && !memcmp(got.text, "fi", 2));
        CHECK(msgrcv(id, &got, 64, 3, 0) == 6 && !strcmp(got.text, "third"));
        m.type = 0;
        FAILS(msgsnd(id, &m, 1, 0), EINVAL);
        m.type = 1;
        FAILS(msgsnd(id, &m, 9000, 0), EINVAL);
        FAILS(msgrcv(id, &got, -1, 0, 0), EINVAL);
        FAILS(msgrcv(id + 77777, &got, 1, 0, 0), EINVAL);
        pid_t child = fork();
        if (child == 0) {
            CHECK(msgrcv(id, &got, 64, 7, 0) == 6 && !strcmp(got.text, "seven"));
            m.type = 8; strcpy(m.text, "eight"); CHECK(msgsnd(id, &m, 6, 0) == 0);
            _exit(failed);
        }
        m.type = 6; CHECK(msgsnd(id, &m, 1, 0) == 0);
        pause_a_bit();
        m.type = 7; strcpy(m.text, "seven"); CHECK(msgsnd(id, &m, 6, 0) == 0);
        CHECK(msgrcv(id, &got, 64, 8, 0) == 6 && !strcmp(got.text, "eight") && ended(child) == 0);
        CHECK(msgrcv(id, &got, 64, 0, 0) == 1 && got.type == 6);
        static struct { long type; char text[8192]; } large = { 1 };
        CHECK(msgsnd(id, &large, 8192, 0) == 0 && msgsnd(id, &large, 8192, IPC_NOWAIT) == 0);
        FAILS(msgsnd(id, &large, 1, IPC_NOWAIT), EAGAIN);
        child = fork();
        if (child == 0) { CHECK(msgsnd(id, &large, 100, 0) == 0); _exit(failed); }
        pause_a_bit();
        CHECK(msgrcv(id, &large, 8192, 0, 0) == 8192 && ended(child) == 0);
        CHECK(msgrcv(id, &large, 8192, 0, 0) == 8192 && msgrcv(id, &large, 8192, 0, 0) == 100);
        struct sigaction action = { 0 };
        action.sa_handler = nothing; action.sa_flags = SA_RESTART;
        sigaction(SIGUSR1, &action, 0);
        int tell[2];
        pipe(tell);
        child = fork();
        if (child == 0) { write(tell[1], "x", 1); FAILS(msgrcv(id, &got, 64, 0, 0), EINTR); write(tell[1], "x", 1); FAILS(msgrcv(id, &got, 64, 0, 0), EIDRM); _exit(failed); }
        char c;
        read(tell[0], &c, 1); pause_a_bit(); kill(child, SIGUSR1);
        read(tell[0], &c, 1); pause_a_bit();
        ds.msg_qbytes = 100;
        CHECK(msgctl(id, IPC_SET, &ds) == 0 && msgctl(id, IPC_STAT, &ds) == 0 && ds.msg_qbytes == 100);
        struct msginfo info;
        CHECK(msgctl(0, IPC_INFO, (void *)&info) >= 0 && info.msgmax == 8192 && info.msgmnb == 16384);
        CHECK(msgctl(id, IPC_RMID, 0) == 0 && ended(child) == 0);
        FAILS(msgsnd(id, &m, 1, 0), EINVAL);
    "#,
        |_| {},
    );
}

#[test]
fn posix_message_queues() {
    passes(
        "mqueue",
        r#"
        #include <mqueue.h>
        #include <sys/epoll.h>
        static volatile int told, code, value;
        static void tell(int signal, siginfo_t *info, void *unused) { told++; code = info->si_code; value = info->si_value.sival_int; }
        static void nothing(int signal) { }
        static struct timespec in(long ms) {
            struct timespec t; clock_gettime(CLOCK_REALTIME, &t);
            t.tv_nsec += ms * 1000000; t.tv_sec += t.tv_nsec / 1000000000; t.tv_nsec %= 1000000000;
            return t;
        }"#,
        r#"
        char name[32]; sprintf(name, "/gretel-%d", getpid());
        struct mq_attr want = { 0, 3, 16, 0 }, is;
        mqd_t q = mq_open(name, O_CREAT | O_EXCL | O_RDWR, 0600, &want);
        CHECK(q >= 0 && (fcntl(q, F_GETFD) & FD_CLOEXEC) && (fcntl(q, F_GETFL) & O_ACCMODE) == O_RDWR);
        FAILS(mq_open(name, O_CREAT | O_EXCL | O_RDWR, 0600, &want), EEXIST);
        FAILS(mq_open("/gretel-none", O_RDONLY), ENOENT);
        FAILS(mq_open("/gretel/none", O_RDONLY), EACCES);
        want.mq_maxmsg = 0;
        FAILS(mq_open("/gretel-other", O_CREAT | O_RDWR, 0600, &want), EINVAL);
        CHECK(mq_getattr(q, &is) == 0 && is.mq_maxmsg == 3 && is.mq_msgsize == 16 && is.mq_curmsgs == 0 && is.mq_flags == 0);
        struct pollfd p = { q, POLLIN | POLLOUT };
        CHECK(poll(&p, 1, 0) == 1 && p.revents == POLLOUT);
        CHECK(mq_send(q, "low", 4, 1) == 0 && mq_send(q, "high", 5, 9) == 0);
        CHECK(poll(&p, 1, 0) == 1 && p.revents == (POLLIN | POLLOUT));
        CHECK(mq_send(q, "lower", 6, 1) == 0 && poll(&p, 1, 0) == 1 && p.revents == POLLIN);
        struct timespec soon = in(3);
        FAILS(mq_timedsend(q, "full", 5, 1, &soon), ETIMEDOUT);
        FAILS(mq_send(q, "much too long for it", 20, 1), EMSGSIZE);
        FAILS(mq_send(q, "x", 1, 40000), EINVAL);
        char text[16]; unsigned priority;
        FAILS(mq_receive(q, text, 15, 0), EMSGSIZE);
        CHECK(mq_receive(q, text, 16, &priority) == 5 && priority == 9 && !strcmp(text, "high"));
        CHECK(mq_receive(q, text, 16, &priority) == 4 && priority == 1 && !strcmp(text, "low"));
        CHECK(mq_receive(q, text, 16, 0) == 6 && !strcmp(text, "lower"));
        mqd_t only = mq_open(name, O_RDONLY | O_NONBLOCK);
        FAILS(mq_receive(only, text, 16, 0), EAGAIN);
        FAILS(mq_send(only, "x", 1, 0), EBADF);
        CHECK(mq_getattr(only, &is) == 0 && is.mq_flags == O_NONBLOCK);
        want.mq_flags = 0;
        CHECK(mq_setattr(only, &want, &is) == 0 && is.mq_flags == O_NONBLOCK && mq_getattr(only, &is) == 0 && is.mq_flags == 0);
        soon = in(3);
        FAILS(mq_timedreceive(only, text, 16, 0, &soon), ETIMEDOUT);
        FAILS(mq_receive(0, text, 16, 0), EBADF);
        pid_t child = fork();
        if (child == 0) { CHECK(mq_receive(q, text, 16, 0) == 3 && !strcmp(text, "to")); CHECK(mq_send(q, "fro", 4, 0) == 0); _exit(failed); }
        usleep(3000);
        CHECK(mq_send(q, "to", 3, 0) == 0);
        CHECK(ended(child) == 0 && mq_receive(q, text, 16, 0) == 4 && !strcmp(text, "fro"));
        struct sigaction action = { 0 };
        action.sa_sigaction = tell; action.sa_flags = SA_SIGINFO;
        sigaction(SIGUSR1, &action, 0);
        struct sigevent event = { 0 };
        event.sigev_notify = SIGEV_SIGNAL; event.sigev_signo = SIGUSR1; event.sigev_value.sival_int = 77;
        CHECK(mq_notify(q, &event) == 0);
        FAILS(mq_notify(q, &event), EBUSY);
        CHECK(mq_send(q, "a", 2, 0) == 0 && told == 1 && code == SI_MESGQ && value == 77);
        CHECK(mq_send(q, "b", 2, 0) == 0 && told == 1);
        CHECK(mq_notify(q, &event) == 0 && mq_notify(q, 0) == 0);
        CHECK(mq_receive(q, text, 16, 0) == 2 && mq_receive(q, text, 16, 0) == 2);
        event.sigev_notify = SIGEV_NONE;
        CHECK(mq_notify(q, &event) == 0 && mq_send(q, "c", 2, 0) == 0 && told == 1 && mq_receive(q, text, 16, 0) == 2);
        int set = epoll_create1(0);
        struct epoll_event wanted = { EPOLLIN }, seen;
        CHECK(epoll_ctl(set, EPOLL_CTL_ADD, q, &wanted) == 0 && epoll_wait(set, &seen, 1, 0) == 0);
        child = fork();
        if (child == 0) { usleep(2000); _exit(mq_send(q, "d", 2, 0) != 0); }
        CHECK(epoll_wait(set, &seen, 1, -1) == 1 && seen.events == EPOLLIN && mq_receive(q, text, 16, 0) == 2 && ended(child) == 0);
        action.sa_handler = nothing; action.sa_flags = 0;
        sigaction(SIGUSR2, &action, 0);
        child = fork();
        if (child == 0) { FAILS(mq_receive(q, text, 16, 0), EINTR); _exit(failed); }
        usleep(20000); kill(child, SIGUSR2);
        CHECK(ended(child) == 0);
        CHECK(mq_unlink(name) == 0 && mq_send(q, "still", 6, 0) == 0 && mq_receive(only, text, 16, 0) == 6);
        FAILS(mq_unlink(name), ENOENT);
        FAILS(mq_open(name, O_RDONLY), ENOENT);
        CHECK(mq_close(only) == 0 && mq_close(q) == 0);
        FAILS(mq_close(q), EBADF);
    "#,
        |_| {},
    );
}
