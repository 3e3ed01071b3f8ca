# cmake -DIN=file -DOUT=name.c -DHEADER=name.h -DNAME=symbol -P embed.cmake: a file's bytes as a C array.
file(READ ${IN} hex HEX)
string(LENGTH "${hex}" digits)
math(EXPR bytes "${digits} / 2")
string(REGEX REPLACE "(................................)" "\\1\n" hex "${hex}")
string(REGEX REPLACE "([0-9a-f][0-9a-f])" "0x\\1," hex "${hex}")
file(WRITE ${OUT} "#include \"${HEADER}\"\n\nconst unsigned char ${NAME}[] = {\n${hex}\n};\nconst unsigned long ${NAME}_len = ${bytes};\n")
file(WRITE ${HEADER_FILE} "/* Generated: a serialised google.protobuf.FileDescriptorSet, imports included. */\n#pragma once\n\nextern const unsigned char ${NAME}[];\nextern const unsigned long ${NAME}_len;\n")
