# svnserve with a repository: commits, a checkout.
packages="subversion"
prepare() { svnadmin create repo && printf '[general]\nanon-access = write\n' >repo/conf/svnserve.conf; }
service=(svnserve -d --foreground -r "$place" --listen-host 127.0.0.1 --listen-port "$port")
expected=143
load() {
    svn -q checkout "svn://127.0.0.1:$port/repo" work && cd work || return
    for n in $(seq 5); do echo "$n" >file && svn -q add --force file && svn -q commit -m "$n"; done
    svn -q update && svn log | grep -c '^r[0-9]'
    svn cat "svn://127.0.0.1:$port/repo/file@3"
}
