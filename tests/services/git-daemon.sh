# git's daemon: a child for each clone.
packages="git"
prepare() {
    git init -q repo && cd repo
    for n in $(seq 20); do seq "$n" >"f$n" && git add . && git -c user.name=a -c user.email=a@b commit -qm "$n"; done
    touch .git/git-daemon-export-ok
}
service=(/usr/bin/git daemon --reuseaddr --base-path="$place" --listen=127.0.0.1 --port="$port")
expected=143
load() { for n in 1 2 3; do git clone -q "git://127.0.0.1:$port/repo" "c$n" && git -C "c$n" log --oneline | wc -l; done; }
