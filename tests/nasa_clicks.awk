#!/usr/bin/awk -f
# Turns tests/data/nasa_19950801.tsv into clicks, one a line: page, time and visitor, and no id.

BEGIN { FS = "\t" }

NR == 1 {
    for (i = 1; i <= NF; i++) column[$i] = i
    next
}

{
    url = $column["url"]
    gsub(/["\\]/, "\\\\&", url)
    printf "{\"page\":\"%s\",\"at\":%s000,\"visitor\":\"%s\"}\n", url, $column["time"], $column["host"]
}
