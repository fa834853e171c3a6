# SPDX-License-Identifier: Apache-2.0
# A service of a template, beside which this waits: NAME PORT, and its line in a variable. What it prints is the log of the
# command that this is. It ends with its sandbox, and begins with the next.
name=$1 port=$2 line=$CARREL_SERVICE_LINE
unset CARREL_SERVICE CARREL_SERVICE_LINE
dir=/tmp/.carrel-services
ends=0 pause=1 child=

# For carrel ws services: a word, how often it has ended, its port.
say() {
    mkdir -p "$dir" && printf '%s %s %s\n' "$1" "$ends" "${port:--}" >"$dir/.$name" && mv -f "$dir/.$name" "$dir/$name"
}

answers() {
    (exec 3<>"/dev/tcp/127.0.0.1/$port") 2>/dev/null
}

trap '[ -z "$child" ] || kill "$child"; say stopped; exit 143' TERM INT HUP
while :; do
    say starting
    began=$SECONDS
    bash -c "$line" &
    child=$!
    if [ -n "$port" ]; then
        while kill -0 "$child" 2>/dev/null && ! answers; do sleep 0.2; done
    fi
    if kill -0 "$child" 2>/dev/null; then say ready; fi
    wait "$child"
    status=$?
    child=
    ends=$((ends + 1))
    [ $((SECONDS - began)) -lt 60 ] || pause=1
    say waiting
    echo "carrel: the service '$name' has ended ($status); it is started again in $pause s" >&2
    sleep "$pause" &
    wait $!
    pause=$((pause < 32 ? 2 * pause : 60))
done
