#!/bin/sh
# certificates.sh DIR: two CAs, and certificates signed by them, for the tests of TLS.
set -e
cd "$1"
ca() { # ca NAME
  openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -days 2 -subj "/CN=$1" -keyout "$1.key" -out "$1.pem"
}
request() { # request NAME SAN
  openssl req -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -subj "/CN=$1" -keyout "$1.key" -out "$1.csr"
  echo "subjectAltName=$2" >"$1.ext"
}
leaf() { # leaf NAME CA SAN
  request "$1" "$3"
  openssl x509 -req -in "$1.csr" -CA "$2.pem" -CAkey "$2.key" -CAcreateserial -extfile "$1.ext" -days 2 -out "$1.pem"
}
# Valid for one day of 2020. `openssl x509` cannot set the first day before OpenSSL 3.4, and `-days -1` fails since 3.5.
expired_leaf() { # expired_leaf NAME CA SAN
  request "$1" "$3"
  printf '[ca]\ndefault_ca=x\n[x]\ndatabase=issued\nnew_certs_dir=.\nrand_serial=yes\ndefault_md=sha256\npolicy=p\n[p]\n%s\n' \
    commonName=supplied >ca.conf
  : >issued
  openssl ca -batch -config ca.conf -in "$1.csr" -cert "$2.pem" -keyfile "$2.key" -extfile "$1.ext" -notext \
    -startdate 20200101000000Z -enddate 20200102000000Z -out "$1.pem"
}
ca good
ca other
leaf server good DNS:localhost,IP:127.0.0.1
leaf elsewhere good DNS:elsewhere.example
leaf executor-7 good URI:trainyard://executor/7,DNS:executor-7.example
leaf other-server other DNS:localhost,IP:127.0.0.1
leaf stranger other DNS:stranger.example
expired_leaf expired good DNS:expired.example
