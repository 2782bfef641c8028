# perl: fork and wait, pipes, open of commands both ways, kill, an alarm, exec, the exit status of an END block.
use strict;
use warnings;
$| = 1;
my $self = $$;

my %codes;
for my $code (0, 1, 42) {
    my $pid = fork // die "fork: $!";
    exit $code if $pid == 0;
    $codes{$pid} = $code;
}
while ((my $pid = wait) > 0) { delete $codes{$pid} if $? >> 8 == $codes{$pid} }
print "all came back: ", scalar(keys %codes) == 0 ? "yes" : "no", "\n";

pipe my $read, my $write or die;
if (fork == 0) {
    close $read;
    print $write "line $_\n" for 1 .. 500;
    exit 0;
}
close $write;
my @lines = <$read>;
print "read ", scalar(@lines), " lines, the last: $lines[-1]";
wait;

open my $from, "-|", "sort", "-r", $0 or die;
my $first = <$from>;
close $from;
print "sorted: ", length $first > 0 ? "yes" : "no", ", status $?\n";
open my $to, "|-", "tr a-z A-Z" or die;
print $to "written to a command\n";
close $to;
print `echo by backquotes`, "status ", system("exit 3;") >> 8, "\n";

my $sleeper = fork // die;
if ($sleeper == 0) { sleep 100; exit 0 }
kill "TERM", $sleeper;
waitpid $sleeper, 0;
print "killed by ", $? & 127, "\n";

eval {
    local $SIG{ALRM} = sub { die "alarm\n" };
    alarm 1;
    1 while 1;
};
print "ended by $@";
if (fork == 0) { exec "echo", "by exec" }
wait;
END { $? = 9 if $$ == $self }
