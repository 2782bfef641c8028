# vsftpd: a process for each session, with seccomp where it has it.
packages="vsftpd curl"
prepare() {
    mkdir -p empty srv && echo hello >srv/file && chmod 755 . empty srv
    printf 'listen=YES\nbackground=NO\nlisten_port=%s\nlisten_address=127.0.0.1\nanonymous_enable=YES\nanon_root=%s/srv\nno_anon_password=YES\nsecure_chroot_dir=%s/empty\nxferlog_enable=NO\nrun_as_launching_user=YES\n' "$port" "$place" "$place" >conf
}
service=(vsftpd "$place/conf")
expected=143
load() { for n in 1 2 3; do curl -sS "ftp://127.0.0.1:$port/file"; done; curl -sSl "ftp://127.0.0.1:$port/"; }
