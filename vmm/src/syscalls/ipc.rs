//! Memory, semaphores and queues that processes share: System V and POSIX.

use super::commands::{IPC_CONTROL, MSG_BUFFER, MSG_CONTROL, SEM_BUFFER, SEM_CONTROL, SHM_BUFFER};
use super::constants::{IPC, MSG_RECEIVE, OPEN, SHM_AT};
use super::rows;
use super::shape::Beyond::Mappings;
use super::shape::Extent::{Arg, ArgTimes, Result, Struct, Unknown};
use super::shape::Kind::{Address, By, Enum, Fd, Flags, Hex, In, Int, Long, Mode, Out, Path, Size, Unsigned};
use super::shape::Mapping::{Attach, Unmap};
use super::shape::Served::Ours;
use super::structs::{MQ_ATTR, SEMBUF, SIGEVENT, TIMESPEC, UNSIGNED};

rows! {
    29 shmget(key: Hex, size: Size, shmflg: Flags(&IPC)) -> Int, Ours;
    30 shmat(shmid: Int, shmaddr: Address, shmflg: Flags(&SHM_AT)) -> Address, Ours, Mappings(Attach);
    31 shmctl(shmid: Int, cmd: Enum(IPC_CONTROL), buf: By(&SHM_BUFFER)) -> Int, Ours;
    64 semget(key: Hex, nsems: Int, semflg: Flags(&IPC)) -> Int, Ours;
    65 semop(semid: Int, sops: In(ArgTimes(2, &SEMBUF)), nsops: Size) -> Int, Ours;
    66 semctl(semid: Int, semnum: Int, cmd: Enum(SEM_CONTROL), arg: By(&SEM_BUFFER)) -> Int, Ours;
    67 shmdt(shmaddr: Address) -> Int, Ours, Mappings(Unmap);
    68 msgget(key: Hex, msgflg: Flags(&IPC)) -> Int, Ours;
    69 msgsnd(msqid: Int, msgp: Address, msgsz: Size, msgflg: Flags(&IPC)) -> Int, Ours;
    70 msgrcv(msqid: Int, msgp: Out(Unknown), msgsz: Size, msgtyp: Long,
        msgflg: Flags(&MSG_RECEIVE)) -> Size, Ours;
    71 msgctl(msqid: Int, cmd: Enum(MSG_CONTROL), buf: By(&MSG_BUFFER)) -> Int, Ours;
    220 semtimedop(semid: Int, sops: In(ArgTimes(2, &SEMBUF)), nsops: Size,
        timeout: In(Struct(&TIMESPEC))) -> Int, Ours;
    240 mq_open(name: Path, oflag: Flags(&OPEN), mode: Mode, attr: In(Struct(&MQ_ATTR))) -> Fd, Ours;
    241 mq_unlink(name: Path) -> Int, Ours;
    242 mq_timedsend(mqdes: Fd, msg_ptr: In(Arg(2)), msg_len: Size, msg_prio: Unsigned,
        abs_timeout: In(Struct(&TIMESPEC))) -> Int, Ours;
    243 mq_timedreceive(mqdes: Fd, msg_ptr: Out(Result(2)), msg_len: Size, msg_prio: Out(Struct(&UNSIGNED)),
        abs_timeout: In(Struct(&TIMESPEC))) -> Size, Ours;
    244 mq_notify(mqdes: Fd, sevp: In(Struct(&SIGEVENT))) -> Int, Ours;
    245 mq_getsetattr(mqdes: Fd, newattr: In(Struct(&MQ_ATTR)), oldattr: Out(Struct(&MQ_ATTR))) -> Int,
        Ours;
}
