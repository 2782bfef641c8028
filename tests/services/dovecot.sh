# Dovecot: IMAP by a dozen processes that pass descriptors on, over a folder of files.
packages="dovecot-imapd curl"
prepare() {
    mkdir -p run
    mkdir -m 777 mail
    chmod a+rx "$place" "$place/.." "$place/../.."
    echo "bob:{PLAIN}secret:65534:65534::$place/mail::" >passwd
    cat >conf <<CONF
base_dir = $place/run
log_path = /dev/stderr
protocols = imap
listen = 127.0.0.1
ssl = no
disable_plaintext_auth = no
first_valid_uid = 1
first_valid_gid = 1
mail_location = maildir:$place/mail/%u
default_internal_user = nobody
default_login_user = nobody
default_internal_group = nogroup
passdb {
 driver = passwd-file
 args = $place/passwd
}
userdb {
 driver = passwd-file
 args = $place/passwd
}
service imap-login {
 inet_listener imap {
  port = $port
 }
 inet_listener imaps {
  port = 0
 }
 chroot =
}
service anvil {
 chroot =
}
CONF
}
service=(dovecot -F -c "$place/conf")
mail() { curl -s --max-time 20 "imap://bob:secret@127.0.0.1:$port/$1" "${@:2}"; }
load() {
    for n in 1 2 3 4; do
        printf 'From: a\r\nTo: b\r\nSubject: s%s\r\n\r\nbody %s\r\n' "$n" "$n" >"m$n"
        mail INBOX -T "m$n"
        echo "$?"
    done
    mail '' -X 'STATUS INBOX (MESSAGES)'
    mail 'INBOX;MAILINDEX=2'
    mail '' -X 'LIST "" *'
    mail INBOX -X 'SEARCH SUBJECT s3'
    curl -s --max-time 20 "imap://bob:wrong@127.0.0.1:$port/"
    echo "$?"
}
