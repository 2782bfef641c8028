# Pipelines, command substitution, jobs, here-documents, traps, subshells: what scripts do all day.
seq 300 | awk '{ print $1 % 7, $1 }' | sort -k1,1n -k2,2nr | cut -d' ' -f2 | head -n 40 | paste -sd' '
yes line | head -n 2000 | sort -u | wc -l
for n in 1 2 3; do echo "$n is $(expr "$n" + "$(echo "$n" | sed 's/$/0/')")"; done | tee copy | tr a-z A-Z
diff copy - <<END && echo the same
$(cat copy)
END
( exit 5 ); echo "status $?"
sleep 0.05 & first=$!
(sleep 0.02; exit 3) & second=$!
wait "$first"; echo "first $?"
wait "$second"; echo "second $?"
trap 'echo "caught"' USR1
(kill -USR1 $$)
mkfifo fifo
cat fifo & echo "through a fifo" >fifo; wait
find . -type f | xargs -n 1 basename | sort
timeout 0.1 sleep 100; echo "timed out $?"
trap 'echo "the end"' EXIT
exit 4
