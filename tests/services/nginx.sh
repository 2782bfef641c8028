# nginx with two workers under wrk and curl.
packages="nginx-light wrk curl"
is_quick=1
prepare() {
    mkdir -p www logs
    head -c 300000 /dev/zero | tr '\0' x >www/large
    echo hello >www/index.html
    cat >conf <<CONF
worker_processes 2;
daemon off;
pid $place/pid;
error_log $place/logs/error.log;
events { worker_connections 64; }
http {
    access_log $place/logs/access.log;
    client_body_temp_path $place/body; proxy_temp_path $place/proxy; fastcgi_temp_path $place/fastcgi;
    uwsgi_temp_path $place/uwsgi; scgi_temp_path $place/scgi;
    sendfile on; gzip on; gzip_types text/plain;
    server {
        listen 127.0.0.1:$port;
        root $place/www;
        location /status { return 200 "fine\n"; }
    }
}
CONF
}
service=(nginx -p "$place" -c "$place/conf" -e "$place/logs/error.log")
load() {
    wrk -t 1 -c 8 -d 1 "http://127.0.0.1:$port/" | grep -c 'requests in'
    get /index.html
    get /large | cksum
    get /large -H 'Accept-Encoding: gzip' | gunzip | cksum
    get /missing -o /dev/null -w '%{http_code}\n'
    get /status
    get /large -r 10-20 | cksum
}
stop() { kill -QUIT "$pid"; }
