# prometheus, watching itself.
packages="prometheus curl"
prepare() { printf 'global:\n  scrape_interval: 1s\nscrape_configs:\n- job_name: self\n  static_configs:\n  - targets: ["127.0.0.1:%s"]\n' "$port" >conf.yml; }
service=(prometheus --config.file="$place/conf.yml" --storage.tsdb.path="$place/data" --web.listen-address="127.0.0.1:$port" --log.level=error)
ready() { get /-/ready | grep -q Ready; }
load() { sleep 3; get '/api/v1/query?query=up' | grep -o '"status":"success"'; get '/api/v1/query?query=sum(up)' | grep -o '"1"'; }
