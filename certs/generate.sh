#!/usr/bin/env bash
# Makes a development CA and, signed by it, a server certificate for this machine and a client certificate.
#
#   certs/generate.sh [DIRECTORY] [HOST...]
#
# DIRECTORY is where the files go (this directory if none is given); every HOST, a name or an address, is added to those that the server
# certificate is good for. A CA that is there already is used again, so that clients that trust it go on; the rest is made anew.
set -euo pipefail
umask 077

here=$(cd "$(dirname "$0")" && pwd)
out=${1:-$here}
shift || true
days_ca=3650
days_leaf=825   # the longest that browsers accept

mkdir -p "$out"
out=$(cd "$out" && pwd)   # whole paths in what is printed: paths in a configuration file count from that file
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

names="DNS:localhost,IP:127.0.0.1,IP:::1"
for host in "$@"; do
  case $host in
    *:* | *[0-9].[0-9]*.[0-9]*.[0-9]*) names+=",IP:$host" ;;
    *) names+=",DNS:$host" ;;
  esac
done

new_key() { openssl ecparam -name prime256v1 -genkey -noout | openssl pkcs8 -topk8 -nocrypt -out "$1"; }

# leaf NAME SUBJECT EXTENSIONS: a key and a certificate signed by the CA, moved into place together at the end.
leaf() {
  local name=$1 subject=$2 extensions=$3
  new_key "$work/$name.key"
  openssl req -new -sha256 -key "$work/$name.key" -subj "$subject" -out "$work/$name.csr"
  printf '%s\n' "basicConstraints=critical,CA:FALSE" "keyUsage=critical,digitalSignature" \
    "subjectKeyIdentifier=hash" "authorityKeyIdentifier=keyid" "$extensions" >"$work/$name.ext"
  openssl x509 -req -sha256 -days "$days_leaf" -in "$work/$name.csr" -extfile "$work/$name.ext" \
    -CA "$out/ca.crt" -CAkey "$out/ca.key" -set_serial "0x$(openssl rand -hex 15)" -out "$work/$name.crt" 2>/dev/null
  chmod 644 "$work/$name.crt"
  mv "$work/$name.key" "$out/$name.key"
  mv "$work/$name.crt" "$out/$name.crt"
}

if [[ ! -f $out/ca.key || ! -f $out/ca.crt ]]; then
  new_key "$work/ca.key"
  openssl req -x509 -new -sha256 -days "$days_ca" -key "$work/ca.key" -subj "/CN=Holdfast development CA" \
    -addext "basicConstraints=critical,CA:TRUE,pathlen:0" -addext "keyUsage=critical,keyCertSign,cRLSign" \
    -out "$work/ca.crt"
  chmod 644 "$work/ca.crt"
  mv "$work/ca.key" "$out/ca.key"
  mv "$work/ca.crt" "$out/ca.crt"
fi

leaf server "/CN=localhost" "$(printf 'extendedKeyUsage=serverAuth\nsubjectAltName=%s' "$names")"
leaf client "/CN=client" "$(printf 'extendedKeyUsage=clientAuth\nsubjectAltName=DNS:client')"

openssl verify -CAfile "$out/ca.crt" -purpose sslserver "$out/server.crt" >/dev/null
openssl verify -CAfile "$out/ca.crt" -purpose sslclient "$out/client.crt" >/dev/null

cat <<END
$out/ca.crt       give this to clients
$out/server.crt   good for $names; in a listener:
  tls = { cert = "$out/server.crt", key = "$out/server.key" }
$out/client.crt   for clients of listeners with also  ca = "$out/ca.crt", verify = "optional" or "require"
END
