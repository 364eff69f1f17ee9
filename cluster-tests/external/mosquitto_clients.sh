#!/usr/bin/env bash
# mosquitto_pub and mosquitto_sub as clients of the broker: MQTT 3.1, 3.1.1 and 5.0, QoS 0 to 2, retained messages, Wills,
# sessions, shared subscriptions, properties, and TLS with a CA of our own. `run` starts the broker and sets EXT_*.
set -uo pipefail

SECS=15 # how long a client may wait for its messages
host=$EXT_HOST
cd "$EXT_WORK" || exit 1

pub() { timeout "$SECS" mosquitto_pub -h "$host" -p "$EXT_TCP" "$@"; }

# subscriber NAME ARGS...: starts mosquitto_sub in the background and returns once the broker has acknowledged the
# subscription. What it prints is in NAME.out; $! is its process.
subscriber() {
  local name=$1 deadline=$((SECONDS + SECS))
  shift
  : >"$name.out" # before the process is there, so that an older test's SUBACK is not taken for this one's
  stdbuf -oL mosquitto_sub -h "$host" -p "$EXT_TCP" -d -W "$SECS" -F 'MSG %t|%q|%r|%p' "$@" >"$name.out" 2>&1 </dev/null &
  sub_pid=$!
  until grep -q '^Subscribed' "$name.out"; do
    kill -0 "$sub_pid" 2>/dev/null || fail "mosquitto_sub ended: $(tail -1 "$name.out")"
    [ "$SECONDS" -lt "$deadline" ] || fail "no SUBACK within $SECS s"
    sleep 0.02
  done
}

fail() { echo "$*" >why; exit 1; }
received() { sed -n 's/^MSG //p' "$1.out"; }
ended() { wait "$1" || fail "mosquitto_sub ended with $? after: $(grep -c '^MSG' "$2.out") messages"; }
same() { [ "$1" = "$2" ] || fail "expected «$1», got «$2»"; }

# check NAME COMMAND...: one test, in a subshell that ends at its first failing command.
check() {
  local name=$1 status
  shift
  rm -f why ./*.out
  (set -e; "$@") >check.log 2>&1 </dev/null
  status=$?
  if [ "$status" = 0 ]; then
    echo "test external::mosquitto_clients::$name ... ok"
  else
    echo "test external::mosquitto_clients::$name ... FAILED: $(cat why 2>/dev/null || tail -1 check.log)"
    tail -n 20 check.log ./*.out | sed 's/^/  /'
  fi
}

# --- the tests ----------------------------------------------------------------------------------------------------------

delivers() { # delivers VERSION QOS: ten messages, in order
  local t="deliver/$1/$2" i expected=""
  subscriber d -V "$1" -t "$t" -q "$2" -C 10
  for i in 1 2 3 4 5 6 7 8 9 10; do expected+="message $i"$'\n'; done
  printf '%s' "$expected" | pub -V "$1" -t "$t" -q "$2" -l
  ended "$sub_pid" d
  same "$(printf '%s' "$expected" | sed "s:^:$t|$2|0|:")" "$(received d)"
}

crosses_versions() { # crosses_versions PUBLISHER SUBSCRIBER
  subscriber x -V "$2" -t "cross/+/$2" -q 2 -C 1
  pub -V "$1" -t "cross/$1/$2" -q 1 -m 'äöü ☕'
  ended "$sub_pid" x
  same "cross/$1/$2|1|0|äöü ☕" "$(received x)"
}

carries_a_megabyte() { # a retained payload of binary bytes that fits max_packet_size
  head -c 1000000 /dev/urandom >big
  pub -t big/binary -q 1 -r -f big
  timeout "$SECS" mosquitto_sub -h "$host" -p "$EXT_TCP" -t big/binary -q 1 -C 1 -N >big.out
  cmp big big.out || fail "the payload changed"
  pub -t big/binary -r -n
}

retains() { # retains VERSION: kept for a later subscriber, replaced, deleted by an empty payload
  local t="retain/$1"
  pub -V "$1" -t "$t/a" -q 1 -r -m old
  pub -V "$1" -t "$t/a" -q 1 -r -m new
  subscriber r -V "$1" -t "$t/+" -q 1 -C 1
  ended "$sub_pid" r
  same "$t/a|1|1|new" "$(received r)"
  pub -V "$1" -t "$t/a" -q 1 -r -n
  subscriber r -V "$1" -t "$t/#" -q 1 -C 1
  pub -V "$1" -t "$t/marker" -q 1 -m 'nothing before this'
  ended "$sub_pid" r
  same "$t/marker|1|0|nothing before this" "$(received r)"
}

publishes_the_will() { # publishes_the_will VERSION: of a killed client, and not of one that says goodbye
  local watcher doomed polite
  subscriber w -V "$1" -t "will/$1/#" -q 1 -C 2
  watcher=$sub_pid
  subscriber p -V "$1" -t "polite/$1" --will-topic "will/$1/polite" --will-payload never --will-qos 1 -C 1
  polite=$sub_pid
  pub -V "$1" -t "polite/$1" -m bye -q 1
  wait "$polite"
  subscriber k -V "$1" -t "doomed/$1" --will-topic "will/$1/killed" --will-payload gone --will-qos 1
  doomed=$sub_pid
  kill -KILL "$doomed"
  wait "$doomed" 2>/dev/null || true
  until [ "$(received w | wc -l)" -ge 1 ] || ! kill -0 "$watcher" 2>/dev/null; do sleep 0.02; done
  pub -V "$1" -t "will/$1/marker" -q 1 -m end
  ended "$watcher" w
  same "will/$1/killed|1|0|gone"$'\n'"will/$1/marker|1|0|end" "$(received w)"
}

keeps_the_session() { # keeps_the_session VERSION: what is published while the client is away arrives, in order
  local id="keeper-$1" i q
  for q in 1 2; do
    timeout "$SECS" mosquitto_sub -h "$host" -p "$EXT_TCP" -V "$1" -c -i "$id" -t "away/$1/$q" -q "$q" -E
    for i in 1 2 3 4 5; do pub -V "$1" -t "away/$1/$q" -q "$q" -m "$i"; done
    timeout "$SECS" mosquitto_sub -h "$host" -p "$EXT_TCP" -V "$1" -c -i "$id" -t "away/$1/$q" -q "$q" -C 5 >k.out
    same "1 2 3 4 5" "$(tr '\n' ' ' <k.out | sed 's/ $//')"
  done
  # The session is gone after a clean start.
  timeout "$SECS" mosquitto_sub -h "$host" -p "$EXT_TCP" -V "$1" -i "$id" -t "other/$1" -q 2 -E
  pub -V "$1" -t "away/$1/1" -q 1 -m late
  subscriber k -V "$1" -c -i "$id" -t "other/$1" -q 1 -C 1
  pub -V "$1" -t "other/$1" -q 1 -m marker
  ended "$sub_pid" k
  same "other/$1|1|0|marker" "$(received k)"
  timeout "$SECS" mosquitto_sub -h "$host" -p "$EXT_TCP" -V "$1" -i "$id" -t "other/$1" -E
}

lowers_the_qos() { # the lower of publish and subscription counts
  subscriber l -t lower -q 1 -C 2
  pub -t lower -q 2 -m two
  pub -t lower -q 0 -m zero
  ended "$sub_pid" l
  same "lower|1|0|two"$'\n'"lower|0|0|zero" "$(received l)"
}

matches_wildcards() {
  subscriber m -t 'sport/+/player/#' -C 3
  for t in sport/tennis/player sport/tennis/score sport/golf/player/1 sport/a/b/player sport/golf/player/1/rank; do
    pub -t "$t" -m x
  done
  ended "$sub_pid" m
  same "sport/tennis/player sport/golf/player/1 sport/golf/player/1/rank" "$(received m | cut -d'|' -f1 | tr '\n' ' ' | sed 's/ $//')"
}

hides_dollar_topics() { # '#' does not match $SYS or any other topic that begins with '$'
  subscriber h -t '#' -t '+/x' -C 1
  pub -t '$other/x' -m hidden || true
  pub -t dollar/x/marker -m seen
  ended "$sub_pid" h
  received h | grep -q '^\$' && fail "$(received h)"
  same "dollar/x/marker|0|0|seen" "$(received h)"
}

shares() { # two members of one group get every message once between them, a plain subscriber gets all
  local one two all i
  subscriber s1 -V mqttv5 -t '$share/g/shared/t' -q 1
  one=$sub_pid
  subscriber s2 -V mqttv5 -t '$share/g/shared/t' -q 1
  two=$sub_pid
  subscriber s3 -V mqttv5 -t 'shared/t' -q 1 -C 20
  all=$sub_pid
  for i in $(seq 20); do echo "$i"; done | pub -V mqttv5 -t shared/t -q 1 -l
  ended "$all" s3
  until [ $(($(received s1 | wc -l) + $(received s2 | wc -l))) -ge 20 ] || ! kill -0 "$one" 2>/dev/null; do sleep 0.02; done
  kill "$one" "$two"
  wait "$one" "$two" || true
  same "$(seq 20)" "$(cat s1.out s2.out | sed -n 's/^MSG .*|//p' | sort -n)"
  [ "$(received s1 | wc -l)" -gt 0 ] && [ "$(received s2 | wc -l)" -gt 0 ] || fail "one member got everything"
}

forwards_properties() {
  subscriber f -V mqttv5 -t props -q 1 -C 1 -F 'MSG %C|%D|%F|%R|%P|%p'
  pub -V mqttv5 -t props -q 1 -m body -D publish content-type text/plain -D publish correlation-data c-7 \
    -D publish payload-format-indicator 1 -D publish response-topic answers/here \
    -D publish user-property k1 v1 -D publish user-property k2 v2 -D publish user-property k1 v3
  ended "$sub_pid" f
  same "text/plain|c-7|1|answers/here|k1:v1 k2:v2 k1:v3|body" "$(received f)"
}

counts_the_expiry_down() { # a retained message tells how long it still lives, and is not given out after that
  local left
  pub -V mqttv5 -t expiry/long -q 1 -r -m long -D publish message-expiry-interval 1000
  pub -V mqttv5 -t expiry/short -q 1 -r -m short -D publish message-expiry-interval 1
  sleep 2.1
  subscriber e -V mqttv5 -t 'expiry/#' -q 1 -C 2 -F 'MSG %t|%E|%p'
  pub -V mqttv5 -t expiry/marker -q 1 -m marker
  ended "$sub_pid" e
  left=$(received e | sed -n 's/^expiry.long|\([0-9]*\)|.*/\1/p')
  [ -n "$left" ] && [ "$left" -lt 1000 ] && [ "$left" -gt 900 ] || fail "expiry «$left» of: $(received e)"
  received e | grep -q short && fail "an expired message was delivered"
  pub -V mqttv5 -t expiry/long -r -n
}

answers_requests() { # mosquitto_rr: request, response topic, correlation data
  subscriber q -V mqttv5 -t ask/me -q 1 -C 1 -F 'MSG %R|%D|%p'
  local responder=$sub_pid answer asker
  timeout "$SECS" mosquitto_rr -h "$host" -p "$EXT_TCP" -V mqttv5 -t ask/me -e answer/me -q 1 -m ping \
    -D publish correlation-data 42 -W "$SECS" >rr.out 2>&1 &
  asker=$!
  ended "$responder" q
  same "answer/me|42|ping" "$(received q)"
  pub -V mqttv5 -t answer/me -q 1 -m pong -D publish correlation-data 42
  wait "$asker" || fail "mosquitto_rr: $(cat rr.out)"
  same pong "$(cat rr.out)"
}

refuses_bad_topics() { # a client that checks nothing is not at hand; the broker must still live after these
  pub -t 'a/+/b' -m x && fail "a wildcard in a topic name was accepted"
  pub -t ok -m x
}

# tls PORT ARGS...: one round trip over TLS
tls_round_trip() {
  local listener=$1
  shift
  timeout "$SECS" mosquitto_pub -h localhost -p "$listener" "$@" -t "tls/$listener" -q 1 -r -m 'over tls'
  timeout "$SECS" mosquitto_sub -h localhost -p "$listener" "$@" -t "tls/$listener" -q 1 -C 1 >tls.out
  same 'over tls' "$(cat tls.out)"
  timeout "$SECS" mosquitto_pub -h localhost -p "$listener" "$@" -t "tls/$listener" -q 1 -r -n
}

tls_refused() { # tls_refused PORT ARGS...: no message gets through
  local listener=$1
  shift
  if timeout "$SECS" mosquitto_pub -h localhost -p "$listener" "$@" -t tls/refused -q 1 -m x; then
    fail "the connection was accepted"
  fi
}

holdfast_client() { # the program's own pub and sub beside mosquitto's
  subscriber c -t own/pub -q 1 -C 1
  timeout "$SECS" "$EXT_HOLDFAST" pub -h "$host" -p "$EXT_TCP" -t own/pub -q 1 -m 'from holdfast'
  ended "$sub_pid" c
  same "own/pub|1|0|from holdfast" "$(received c)"
  pub -t own/sub -q 1 -r -m 'from mosquitto'
  same 'from mosquitto' "$(timeout "$SECS" "$EXT_HOLDFAST" sub -h "$host" -p "$EXT_TCP" -t own/sub -q 1 -C 1)"
  pub -t own/sub -r -n
}

for v in mqttv31 mqttv311 mqttv5; do
  for q in 0 1 2; do check "${v}_qos${q}_delivers_in_order" delivers "$v" "$q"; done
  check "${v}_retained_is_kept_replaced_deleted" retains "$v"
  check "${v}_will_of_a_killed_client" publishes_the_will "$v"
  check "${v}_session_is_kept_and_cleaned" keeps_the_session "$v"
done
for pair in 'mqttv31 mqttv5' 'mqttv5 mqttv31' 'mqttv311 mqttv5' 'mqttv5 mqttv311' 'mqttv31 mqttv311'; do
  # shellcheck disable=SC2086
  check "from_${pair/ /_to_}" crosses_versions $pair
done
check payload_of_a_megabyte carries_a_megabyte
check qos_is_the_lower_of_the_two lowers_the_qos
check wildcards matches_wildcards
check dollar_topics_are_hidden hides_dollar_topics
check shared_subscription shares
check properties_are_forwarded_in_order forwards_properties
check message_expiry_counts_down counts_the_expiry_down
check request_and_response answers_requests
check topic_names_without_wildcards refuses_bad_topics
ca=$EXT_CERTS/ca.crt
for v in 1.2 1.3; do
  check "tls_$v" tls_round_trip "$EXT_TLS" --cafile "$ca" --tls-version "tlsv$v"
done
check tls_v5 tls_round_trip "$EXT_TLS" --cafile "$ca" -V mqttv5
check tls_stranger_ca_is_refused tls_refused "$EXT_TLS" --cafile "$EXT_CERTS/stranger.crt"
check tls_client_certificate tls_round_trip "$EXT_MTLS" --cafile "$ca" --cert "$EXT_CERTS/client.crt" --key "$EXT_CERTS/client.key"
check tls_without_client_certificate_is_refused tls_refused "$EXT_MTLS" --cafile "$ca"
if [ -n "${EXT_HOLDFAST:-}" ]; then check holdfast_pub_and_sub holdfast_client; fi
echo "suite done"
