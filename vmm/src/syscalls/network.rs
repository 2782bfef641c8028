//! Calls on sockets.

use super::rows;
use super::shape::Extent::{Arg, Message, Messages, PointedBy, Result, Sized, Struct};
use super::shape::Kind::{By, Enum, Fd, Flags, In, InOut, Int, Out, Size, Unsigned};
use super::shape::Served::Mixed;
use super::sockets::{ACCEPT, FAMILY, HOW, LEVEL, MESSAGE, OPTION_NAME, PROTOCOL, TYPE};
use super::structs::{INT, OPTION, SOCKADDR, TIMESPEC, TWO_FDS};

rows! {
    41 socket(domain: Enum(FAMILY), kind: Flags(&TYPE), protocol: By(&PROTOCOL)) -> Fd, Mixed;
    42 connect(sockfd: Fd, addr: In(Sized(&SOCKADDR, 2)), addrlen: Int) -> Int, Mixed;
    43 accept(sockfd: Fd, addr: Out(PointedBy(2, &SOCKADDR)), addrlen: InOut(Struct(&INT))) -> Fd, Mixed;
    44 sendto(sockfd: Fd, buf: In(Arg(2)), len: Size, flags: Flags(&MESSAGE),
        dest_addr: In(Sized(&SOCKADDR, 5)), addrlen: Int) -> Size, Mixed;
    45 recvfrom(sockfd: Fd, buf: Out(Result(2)), len: Size, flags: Flags(&MESSAGE),
        src_addr: Out(PointedBy(5, &SOCKADDR)), addrlen: InOut(Struct(&INT))) -> Size, Mixed;
    46 sendmsg(sockfd: Fd, msg: In(Message), flags: Flags(&MESSAGE)) -> Size, Mixed;
    47 recvmsg(sockfd: Fd, msg: Out(Message), flags: Flags(&MESSAGE)) -> Size, Mixed;
    48 shutdown(sockfd: Fd, how: Enum(HOW)) -> Int, Mixed;
    49 bind(sockfd: Fd, addr: In(Sized(&SOCKADDR, 2)), addrlen: Int) -> Int, Mixed;
    50 listen(sockfd: Fd, backlog: Int) -> Int, Mixed;
    51 getsockname(sockfd: Fd, addr: Out(PointedBy(2, &SOCKADDR)), addrlen: InOut(Struct(&INT))) -> Int,
        Mixed;
    52 getpeername(sockfd: Fd, addr: Out(PointedBy(2, &SOCKADDR)), addrlen: InOut(Struct(&INT))) -> Int,
        Mixed;
    53 socketpair(domain: Enum(FAMILY), kind: Flags(&TYPE), protocol: By(&PROTOCOL),
        sv: Out(Struct(&TWO_FDS))) -> Int, Mixed;
    54 setsockopt(sockfd: Fd, level: Enum(LEVEL), optname: By(&OPTION_NAME), optval: In(Sized(&OPTION, 4)),
        optlen: Int) -> Int, Mixed;
    55 getsockopt(sockfd: Fd, level: Enum(LEVEL), optname: By(&OPTION_NAME),
        optval: Out(PointedBy(4, &OPTION)), optlen: InOut(Struct(&INT))) -> Int, Mixed;
    288 accept4(sockfd: Fd, addr: Out(PointedBy(2, &SOCKADDR)), addrlen: InOut(Struct(&INT)),
        flags: Flags(&ACCEPT)) -> Fd, Mixed;
    299 recvmmsg(sockfd: Fd, msgvec: Out(Messages(2)), vlen: Unsigned, flags: Flags(&MESSAGE),
        timeout: InOut(Struct(&TIMESPEC))) -> Size, Mixed;
    307 sendmmsg(sockfd: Fd, msgvec: InOut(Messages(2)), vlen: Unsigned, flags: Flags(&MESSAGE)) -> Size,
        Mixed;
}
