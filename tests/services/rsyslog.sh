# rsyslogd: lines by TCP and UDP, through queues between threads.
packages="rsyslog bsdutils"
prepare() {
    cat >conf <<CONF
global(workDirectory="$place")
module(load="imtcp")
module(load="imudp")
input(type="imtcp" port="$port" address="127.0.0.1")
input(type="imudp" port="$port" address="127.0.0.1")
template(name="t" type="string" string="%msg%\n")
*.* action(type="omfile" file="$place/all.log" template="t")
CONF
}
service=(rsyslogd -n -f "$place/conf" -i "$place/pid")
load() {
    for n in $(seq 20); do
        logger -T -n 127.0.0.1 -P "$port" --rfc3164 "tcp $n"
        logger -d -n 127.0.0.1 -P "$port" --rfc3164 "udp $n"
    done
    for n in $(seq 100); do [ "$(grep -c -e tcp -e udp all.log)" -lt 40 ] || break; sleep 0.1; done
    grep -e tcp -e udp all.log | sort
}
