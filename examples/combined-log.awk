#!/usr/bin/awk -f
# Turns an access log in Apache's or nginx's combined format into clicks, one a line:
#
#   awk -f examples/combined-log.awk access.log | split -l 500 --filter='curl -sS \
#     "$PAGETIDE/v1/books/my-book/clicks" -H "authorization: Bearer $TOKEN" \
#     -H "content-type: application/x-ndjson" --data-binary @-'
#
# Every request becomes a click, in file order. Its id is the name of the file and the number of
# the line, so that a log which is sent again counts once.

BEGIN {
    split("Jan Feb Mar Apr May Jun Jul Aug Sep Oct Nov Dec", names, " ")
    for (i in names) month[names[i]] = sprintf("%02d", i)
}

function json(text,    i, c, out) {
    if (text !~ /[\\"]/) return "\"" text "\""
    out = ""
    for (i = 1; i <= length(text); i++) {
        c = substr(text, i, 1)
        out = out (c == "\\" || c == "\"" ? "\\" c : c)
    }
    return "\"" out "\""
}

# 10.0.0.1 - - [17/May/2015:10:05:03 +0000] "GET /page HTTP/1.1" 200 203023 "referrer" "agent"
{
    file = FILENAME
    sub(/.*\//, "", file)
    if (!match($0, /\[[0-9]+\/[A-Z][a-z][a-z]\/[0-9:]+ [-+][0-9]+\] "/)) {
        print file ":" FNR ": no request: " $0 > "/dev/stderr"
        next
    }
    # 17/May/2015:10:05:03 +0000
    stamp = substr($0, RSTART + 1, RLENGTH - 4)
    rest = substr($0, RSTART + RLENGTH)
    split(stamp, part, /[\/: ]/)
    zone = substr(part[7], 1, 3) ":" substr(part[7], 4, 2)
    at = part[3] "-" month[part[2]] "-" part[1] "T" part[4] ":" part[5] ":" part[6] zone
    split(rest, request, " ")
    line = "{\"id\":" json(file ":" FNR) ",\"at\":\"" at "\",\"page\":" json(request[2])
    line = line ",\"visitor\":" json($1)
    # status, bytes, then the referrer in quotes
    if (match(rest, /" [0-9]+ [-0-9]+ "[^"]*"/)) {
        split(substr(rest, RSTART, RLENGTH), field, "\"")
        if (field[3] != "-" && field[3] != "") line = line ",\"referrer\":" json(field[3])
    }
    print line "}"
}
