#!/bin/sh
# certificates.sh DIR: two CAs, and certificates signed by them, for the tests of TLS.
set -e
cd "$1"
ca() { # ca NAME
  openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -days 2 -subj "/CN=$1" -keyout "$1.key" -out "$1.pem"
}
leaf() { # leaf NAME CA SAN [openssl x509 arguments]
  name=$1 ca=$2 san=$3
  shift 3
  openssl req -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -subj "/CN=$name" -keyout "$name.key" -out "$name.csr"
  echo "subjectAltName=$san" >"$name.ext"
  openssl x509 -req -in "$name.csr" -CA "$ca.pem" -CAkey "$ca.key" -CAcreateserial -extfile "$name.ext" -out "$name.pem" "$@"
}
ca good
ca other
leaf server good DNS:localhost,IP:127.0.0.1 -days 2
leaf elsewhere good DNS:elsewhere.example -days 2
leaf executor-7 good URI:trainyard://executor/7,DNS:executor-7.example -days 2
leaf stranger other DNS:stranger.example -days 2
leaf expired good DNS:expired.example -days -1
