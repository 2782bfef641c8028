# starman: a Perl server that forks before it serves, and forks anew at SIGHUP.
packages="starman curl"
prepare() { echo 'sub { my $e = shift; [200, ["Content-Type" => "text/plain"], ["hello $e->{PATH_INFO} " . length(join ",", 1..2000) . "\n"]] }' >app.psgi; }
service=(starman --workers 3 --listen "127.0.0.1:$port" "$place/app.psgi")
load() {
    for n in $(seq 20); do get "/$n"; done
    for n in $(seq 12); do get / & done | sort | uniq -c
    kill -HUP "$pid"
    sleep 1.5
    get /again
}
