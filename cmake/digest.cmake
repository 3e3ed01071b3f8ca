# cmake -DROOT=... -DFILES=a;b;... -DNAME=... -DOUT=header -P digest.cmake: writes a header that defines NAME as 12
# hexadecimal digits of the digest of FILES, whose paths are relative to ROOT.
foreach(file ${FILES})
  file(SHA256 ${ROOT}/${file} digest)
  string(APPEND all "${file} ${digest}\n")
endforeach()
string(SHA256 digest "${all}")
string(SUBSTRING ${digest} 0 12 digest)
file(WRITE ${OUT} "#define ${NAME} \"${digest}\"\n")
