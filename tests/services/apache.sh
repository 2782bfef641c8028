# Apache with the event module.
packages="apache2-bin curl wrk"
prepare() {
    mkdir -p www logs && echo hello >www/index.html && head -c 300000 /dev/zero >www/zeros
    local modules=/usr/lib/apache2/modules
    printf 'ServerRoot %s\nPidFile %s/pid\nListen 127.0.0.1:%s\nServerName localhost\nErrorLog %s/logs/error\nLoadModule mpm_event_module %s/mod_mpm_event.so\nLoadModule authz_core_module %s/mod_authz_core.so\nLoadModule dir_module %s/mod_dir.so\nDirectoryIndex index.html\nDocumentRoot %s/www\nStartServers 2\nDefaultRuntimeDir %s\n' "$place" "$place" "$port" "$place" $modules $modules $modules "$place" "$place" >conf
}
service=(apache2 -f "$place/conf" -D FOREGROUND)
load() { get /; get /zeros | cksum; wrk -t 1 -c 8 -d 1 "http://127.0.0.1:$port/" | grep -c 'requests in'; get /missing -o /dev/null -w '%{http_code}\n'; }
