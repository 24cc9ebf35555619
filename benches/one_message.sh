#!/bin/sh
# The cost of each part of one message: the statements that idem sends to PostgreSQL for one message, run by pgbench,
# and variants with one change each. All variants run in turn, so that the ratios hold on a busy machine. Prints medians
# of the rounds, and of their ratios.
#
#   eval "$(cargo xtask services up)"; sh benches/one_message.sh [clients] [rounds] [seconds]
set -eu
clients=${1:-16} rounds=${2:-5} seconds=${3:-2}
PATH=$PATH:$(ls -d /usr/lib/postgresql/*/bin 2>/dev/null | tail -1)
dir=$(mktemp -d)
trap 'psql -qX "$DATABASE_URL" -c "DROP SCHEMA IF EXISTS one_message CASCADE" 2>/dev/null; rm -r "$dir"' EXIT

table() { # name, index statement
    echo "CREATE TABLE $1 (processed_at timestamptz, handler_id int NOT NULL, key bytea NOT NULL,
          fingerprint bytea, PRIMARY KEY (handler_id, key)); $2"
}
{
    echo "SET client_min_messages = error; DROP SCHEMA IF EXISTS one_message CASCADE; CREATE SCHEMA one_message;"
    echo "SET search_path = one_message; CREATE TABLE effects (id text NOT NULL);"
    table btree "CREATE INDEX ON btree (processed_at) WHERE processed_at IS NOT NULL;"
    table brin "CREATE INDEX ON brin USING brin (processed_at);"
    table none ""
} | psql -qX "$DATABASE_URL"

begin="BEGIN ISOLATION LEVEL READ COMMITTED"
settings="SET LOCAL lock_timeout = 1000\\; SET LOCAL statement_timeout = 30000\\; SET LOCAL idle_in_transaction_session_timeout = 40000\\; SET LOCAL synchronous_commit = on"
# The values of a claim: a key of 16 bytes with a fingerprint of 16 bytes.
values="1, '\\x:a:b', '\\x:b:a', true, '0'"
effect="INSERT INTO one_message.effects VALUES (':a:b');"
claim() { # table, the five values
    echo "INSERT INTO one_message.$1 AS claim (handler_id, key, fingerprint, processed_at)
        SELECT $2, $3, $4, CASE WHEN $5 THEN now() END
        WHERE NOT EXISTS (SELECT FROM one_message.$1 WHERE handler_id = $2 AND key = $3)
        ON CONFLICT (handler_id, key) DO NOTHING RETURNING pg_current_xact_id()::text AS xid,
        set_config('lock_timeout', coalesce($6, current_setting('lock_timeout')), true)" | tr '\n' ' '
}
guard() { echo "SELECT CASE WHEN pg_current_xact_id_if_assigned() IS NOT DISTINCT FROM $1 THEN 1 ELSE concat('ended')::int END"; }
prepare() { # table
    printf '\\set a random(1000000000000000, 9999999999999999)\n\\set b random(1000000000000000, 9999999999999999)\n'
    printf '\\if :new = 1\n'
    echo "PREPARE claim (int, bytea, bytea, bool, text) AS $(claim "$1" '$1' '$2' '$3' '$4' '$5');"
    echo "PREPARE guard (xid8) AS $(guard '$1');"
    printf '\\set new 0\n\\endif\n'
}
whole() { # table, values: the statements of idem
    prepare "$1"
    printf '%s\n%s\n%s\n' "$begin\\; $settings\\; EXECUTE claim($2) \\gset" "$effect" "EXECUTE guard(':xid')\\; COMMIT;"
}
text="'\\x:a:b'::bytea"
whole btree "$values" > "$dir/idem"
{ prepare btree; printf '%s\n' "$begin\\; $settings;" "EXECUTE claim($values) \\gset" "$effect" "EXECUTE guard(':xid');" "COMMIT;"; } > "$dir/four-round-trips"
{ prepare btree; printf '%s\n' "$begin\\; $settings\\; $(claim btree 1 "$text" "'\\x:b:a'::bytea" true "'0'") \\gset" "$effect" "$(guard "':xid'::xid8")\\; COMMIT;"; } > "$dir/parsed-each-time"
{ prepare btree; printf '%s\n' "$begin\\; EXECUTE claim($values) \\gset" "$effect" "EXECUTE guard(':xid')\\; COMMIT;"; } > "$dir/no-settings"
{ prepare btree; printf '%s\n' "$begin\\; $settings\\; EXECUTE claim($values) \\gset" "$effect" "COMMIT;"; } > "$dir/no-guard"
whole btree "1, '\\x:a:b', '', true, '0'" > "$dir/no-fingerprint"
whole brin "$values" > "$dir/date-index-brin"
whole none "$values" > "$dir/date-index-none"
{ prepare btree; printf '%s\n' "BEGIN;" "$effect" "COMMIT;"; } > "$dir/no-claim"
{ prepare btree; echo "$effect"; } > "$dir/no-claim-autocommit"

one() { pgbench -n -M simple -D new=1 -c "$clients" -j 2 -T "$seconds" -f "$1" "$DATABASE_URL" >out 2>log && awk '/^tps/ {print $3}' out; }
cd "$dir"
sides="idem four-round-trips parsed-each-time no-settings no-guard no-fingerprint date-index-brin date-index-none no-claim no-claim-autocommit"
for round in $(seq "$rounds"); do
    for side in $sides; do one "$side" >> "$side.tps" || { cat log >&2; exit 1; }; done
done
echo "sh benches/one_message.sh $clients $rounds $seconds: $(nproc) cores, load $(cut -d' ' -f1 /proc/loadavg), $(date -u +%Y-%m-%d)"
median() { sort -n | awk '{v[NR]=$1} END {print v[int((NR+1)/2)]}'; }
for side in $sides; do
    ratio=$(paste idem.tps "$side.tps" | awk '{print $2/$1}' | median)
    printf '%-20s %6.0f messages a second  %.2f of idem\n' "$side" "$(median < "$side.tps")" "$ratio"
done
