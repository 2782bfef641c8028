# beanstalkd: a queue of jobs, kept in a file.
packages="beanstalkd"
prepare() { mkdir b; }
service=(beanstalkd -l 127.0.0.1 -p "$port" -b "$place/b")
expected=143
load() {
    exec 3<>"/dev/tcp/127.0.0.1/$port"
    for n in $(seq 20); do printf 'put 1 0 60 %d\r\njob-%d\r\n' $((4 + ${#n})) "$n" >&3; head -n 1 <&3; done
    printf 'reserve\r\nstats-tube default\r\nquit\r\n' >&3
    timeout 5 cat <&3 | grep -a -e job- -e current-jobs-ready
    exec 3>&-
}
