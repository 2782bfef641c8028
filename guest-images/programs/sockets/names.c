/* Names: what getaddrinfo and getifaddrs find by netlink, and interfaces by ioctl. */
#include "sockets.h"
#include <ifaddrs.h>
#include <net/if.h>
#include <netdb.h>

int main(void) {
    struct addrinfo hints = {.ai_family = AF_INET, .ai_socktype = SOCK_STREAM}, *found;
    CHECK(getaddrinfo("localhost", "80", &hints, &found) == 0);
    char text[INET6_ADDRSTRLEN];
    struct sockaddr_in *address = (struct sockaddr_in *)found->ai_addr;
    printf("localhost: %s:%d\n", inet_ntop(AF_INET, &address->sin_addr, text, sizeof text), ntohs(address->sin_port));
    freeaddrinfo(found);
    hints = (struct addrinfo){.ai_flags = AI_NUMERICHOST | AI_ADDRCONFIG, .ai_socktype = SOCK_DGRAM};
    CHECK(getaddrinfo("10.1.2.3", "domain", &hints, &found) == 0 || getaddrinfo("10.1.2.3", "53", &hints, &found) == 0);
    address = (struct sockaddr_in *)found->ai_addr;
    printf("numeric: %s:%d\n", inet_ntop(AF_INET, &address->sin_addr, text, sizeof text), ntohs(address->sin_port));
    freeaddrinfo(found);

    struct ifaddrs *all;
    int loopbacks = 0;
    CHECK(getifaddrs(&all) == 0);
    for (struct ifaddrs *one = all; one; one = one->ifa_next)
        if (one->ifa_addr && one->ifa_addr->sa_family == AF_INET && (one->ifa_flags & IFF_LOOPBACK)) {
            struct sockaddr_in *in = (struct sockaddr_in *)one->ifa_addr;
            loopbacks += in->sin_addr.s_addr == htonl(INADDR_LOOPBACK);
        }
    freeifaddrs(all);
    printf("loopback addresses: %d\n", loopbacks);
    unsigned index = if_nametoindex("lo");
    char name[IF_NAMESIZE];
    printf("lo is %s again\n", if_indextoname(index, name));
    SHOW(if_nametoindex("no-such-one"));

    struct ifreq list[16];
    struct ifconf asked = {.ifc_len = sizeof list, .ifc_req = list};
    int file = socket(AF_INET, SOCK_DGRAM, 0), has = 0;
    CHECK(ioctl(file, SIOCGIFCONF, &asked) == 0);
    for (int n = 0; n < asked.ifc_len / (int)sizeof *list; n++) has += strcmp(list[n].ifr_name, "lo") == 0;
    printf("listed: %d\n", has);
    struct ifreq request = {.ifr_name = "lo"};
    CHECK(ioctl(file, SIOCGIFFLAGS, &request) == 0);
    printf("flags: %d\n", (request.ifr_flags & (IFF_LOOPBACK | IFF_UP)) == (IFF_LOOPBACK | IFF_UP));
    return 0;
}
