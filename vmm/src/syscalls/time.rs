//! Calls on clocks and timers.

use super::constants::{ITIMER, TIMER};
use super::rows;
use super::shape::Extent::Struct;
use super::shape::Kind::{Clock, Enum, Flags, In, InOut, Int, Left, Out, Unsigned};
use super::shape::Served::{Mixed, Ours};
use super::structs::{INT, ITIMERSPEC, ITIMERVAL, LONG, SIGEVENT, TIMESPEC, TIMEVAL, TIMEX, TIMEZONE, TMS};

rows! {
    35 nanosleep(req: In(Struct(&TIMESPEC)), rem: Left(Struct(&TIMESPEC))) -> Int, Mixed;
    36 getitimer(which: Enum(ITIMER), curr_value: Out(Struct(&ITIMERVAL))) -> Int, Ours;
    37 alarm(seconds: Unsigned) -> Int, Ours;
    38 setitimer(which: Enum(ITIMER), new_value: In(Struct(&ITIMERVAL)),
        old_value: Out(Struct(&ITIMERVAL))) -> Int, Ours;
    96 gettimeofday(tv: Out(Struct(&TIMEVAL)), tz: Out(Struct(&TIMEZONE))) -> Int, Mixed;
    100 times(buf: Out(Struct(&TMS))) -> Int, Ours;
    159 adjtimex(buf: InOut(Struct(&TIMEX))) -> Int, Ours;
    164 settimeofday(tv: In(Struct(&TIMEVAL)), tz: In(Struct(&TIMEZONE))) -> Int, Ours;
    201 time(tloc: Out(Struct(&LONG))) -> Int, Mixed;
    222 timer_create(clockid: Clock, sevp: In(Struct(&SIGEVENT)), timerid: Out(Struct(&INT))) -> Int, Ours;
    223 timer_settime(timerid: Int, flags: Flags(&TIMER), new_value: In(Struct(&ITIMERSPEC)),
        old_value: Out(Struct(&ITIMERSPEC))) -> Int, Ours;
    224 timer_gettime(timerid: Int, curr_value: Out(Struct(&ITIMERSPEC))) -> Int, Ours;
    225 timer_getoverrun(timerid: Int) -> Int, Ours;
    226 timer_delete(timerid: Int) -> Int, Ours;
    227 clock_settime(clockid: Clock, tp: In(Struct(&TIMESPEC))) -> Int, Ours;
    228 clock_gettime(clockid: Clock, tp: Out(Struct(&TIMESPEC))) -> Int, Mixed;
    229 clock_getres(clockid: Clock, res: Out(Struct(&TIMESPEC))) -> Int, Ours;
    230 clock_nanosleep(clockid: Clock, flags: Flags(&TIMER), request: In(Struct(&TIMESPEC)),
        remain: Left(Struct(&TIMESPEC))) -> Int, Mixed;
    305 clock_adjtime(clockid: Clock, buf: InOut(Struct(&TIMEX))) -> Int, Ours;
}
