# PHP's own server.
packages="php-cli curl"
prepare() { mkdir -p www && echo '<?php echo md5($_SERVER["REQUEST_URI"]), "\n"; for ($s = 0, $i = 0; $i < 10000; $i++) $s += $i * $i; echo $s, "\n";' >www/index.php; }
service=(php -S "127.0.0.1:$port" -t "$place/www")
expected=143
load() { for n in $(seq 10); do get "/index.php?$n"; done; }
