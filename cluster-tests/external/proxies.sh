#!/usr/bin/env bash
# nginx and haproxy in front of a broker: MQTT over TCP with a PROXY header of version 1 (nginx) and 2 (haproxy), MQTT over WebSocket with X-Forwarded-For. The configurations are
# those of configs/proxies, with ports of this test. `run` sets EXT_*; the broker is one of this suite's own, as its listeners trust proxies.
set -uo pipefail

SECS=15
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
configs=$here/../../configs/proxies
cd "$EXT_WORK" || exit 1
pids=()
stop() { for pid in "${pids[@]}"; do kill "$pid" 2>/dev/null; done; wait 2>/dev/null; }
trap stop EXIT

free_port() {
  local port
  while :; do
    port=$((32100 + RANDOM % 600))
    case " ${given:-} " in *" $port "*) continue ;; esac
    if ! (exec 3<>"/dev/tcp/127.0.0.1/$port") 2>/dev/null; then
      given="${given:-} $port"
      free=$port
      return
    fi
  done
}

wait_for() { # wait_for WHAT COMMAND...
  local what=$1 deadline=$((SECONDS + SECS))
  shift
  until "$@" 2>/dev/null; do
    if [ "$SECONDS" -ge "$deadline" ]; then echo "no $what within $SECS s"; exit 1; fi
    sleep 0.05
  done
}

port_of() { sed -n "s/.*\"listener\":\"$1\".*\"address\":\"[^\"]*:\([0-9]*\)\".*/\1/p;s/.*\"address\":\"[^\"]*:\([0-9]*\)\".*\"listener\":\"$1\".*/\1/p" broker.log | head -1; }
listens() { (exec 3<>"/dev/tcp/127.0.0.1/$1"); }
is_ready() { grep -q '"event":"ready"' broker.log; }

cat >broker.toml <<TOML
[node]
data_dir = "data"
[log]
format = "json"
[admin]
bind = "off"
[[listener]]
name = "tcp"
bind = "127.0.0.1:0"
allow_anonymous = true
proxy_protocol = "auto"
trusted_proxies = ["127.0.0.1"]
[[listener]]
name = "ws"
protocol = "ws"
bind = "127.0.0.1:0"
allow_anonymous = true
trusted_proxies = ["127.0.0.1"]
TOML
"$EXT_HOLDFAST" serve --config broker.toml >broker.log 2>&1 </dev/null &
pids+=($!)
wait_for "broker" is_ready
BROKER_TCP=$(port_of tcp)
BROKER_WS=$(port_of ws)
for name in NGINX_TCP NGINX_WS HAPROXY_TCP HAPROXY_WS; do
  free_port
  declare "$name=$free"
done

# The ports and paths of the samples become those of this test.
with_ports() { # with_ports PROXY
  local tcp="${1}_TCP" ws="${1}_WS"
  sed -e "s/10\.0\.0\.11:1883/127.0.0.1:$BROKER_TCP/;s/10\.0\.0\.11:8083/127.0.0.1:$BROKER_WS/" -e '/10\.0\.0\.1[23]/d' \
    -e "s/\*:1883/127.0.0.1:${!tcp}/;s/\*:80$/127.0.0.1:${!ws}/;s/listen 1883/listen 127.0.0.1:${!tcp}/;s/listen 80;/listen 127.0.0.1:${!ws};/"
}
module=$(find /usr/lib/nginx/modules -name ngx_stream_module.so 2>/dev/null | head -1)
{
  [ -n "$module" ] && echo "load_module $module;"
  printf 'daemon off;\npid %s/nginx.pid;\nerror_log %s/nginx.log;\n' "$PWD" "$PWD"
  with_ports NGINX <"$configs/nginx.conf" | sed "s#http {#http { access_log off; client_body_temp_path $PWD/t1; proxy_temp_path $PWD/t2; fastcgi_temp_path $PWD/t3; uwsgi_temp_path $PWD/t4; scgi_temp_path $PWD/t5;#"
} >nginx.conf
with_ports HAPROXY <"$configs/haproxy.cfg" >haproxy.cfg
nginx -p "$PWD" -c "$PWD/nginx.conf" >nginx.out 2>&1 </dev/null &
pids+=($!)
haproxy -db -f haproxy.cfg >haproxy.out 2>&1 </dev/null &
pids+=($!)

# A message goes there and back, and the broker knows the client by the address that the proxy has seen.
round_trip() { # round_trip URL ADDRESS
  local id="c$RANDOM"
  timeout "$SECS" "$EXT_HOLDFAST" pub -L "$1/mqtt" -t "t/$id" -i "$id" -q 1 -m hello || { echo "pub by $1 failed"; exit 1; }
  grep "\"$id\"" broker.log | grep -q "\"peer\":\"$2" || { echo "no line of $id has a peer $2"; grep "\"$id\"" broker.log; exit 1; }
}

over_tcp() { # over_tcp PORT: from an address that is no proxy's
  local id="c$RANDOM"
  wait_for "proxy" listens "$1"
  timeout "$SECS" mosquitto_pub -A 127.0.0.2 -h 127.0.0.1 -p "$1" -t "t/$id" -i "$id" -q 1 -m hello || { echo "mosquitto_pub failed"; exit 1; }
  grep "\"$id\"" broker.log | grep -q '"peer":"127\.0\.0\.2:' || { echo "no line of $id has the address of the client"; grep "\"$id\"" broker.log; exit 1; }
}

over_websocket() { # over_websocket PORT: an address from a header field has no port
  wait_for "proxy" listens "$1"
  round_trip "ws://127.0.0.1:$1" '127\.0\.0\.1:0"'
}

check() {
  local name=$1
  shift
  if (set -e; "$@") >"$name.log" 2>&1; then
    echo "test external::proxies::$name ... ok"
  else
    echo "test external::proxies::$name ... FAILED: $(tail -1 "$name.log")"
    tail -5 nginx.log nginx.out haproxy.out "$name.log" 2>/dev/null
  fi
}

check nginx_tcp_proxy_v1 over_tcp "$NGINX_TCP"
check nginx_websocket over_websocket "$NGINX_WS"
check haproxy_tcp_proxy_v2 over_tcp "$HAPROXY_TCP"
check haproxy_websocket over_websocket "$HAPROXY_WS"
echo "suite done"
