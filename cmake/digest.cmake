# cmake -DFOLDER=... -DNAME=... -DOUT=header -P digest.cmake: a header that defines NAME as 12 hexadecimal digits that
# change with any source below FOLDER.
file(GLOB_RECURSE sources RELATIVE ${FOLDER} ${FOLDER}/*.c ${FOLDER}/*.h ${FOLDER}/*.cu ${FOLDER}/*.cuh)
list(SORT sources)
foreach(source ${sources})
  file(SHA256 ${FOLDER}/${source} digest)
  string(APPEND all "${source} ${digest}\n")
endforeach()
string(SHA256 digest "${all}")
string(SUBSTRING ${digest} 0 12 digest)
file(WRITE ${OUT} "#define ${NAME} \"${digest}\"\n")
