# Redis with threads for input and output, which wait for each other in loops.
requests=500
# shellcheck source=redis.sh
source "$sources/redis.sh"
is_quick=''
service+=(--io-threads 2)
