#!/bin/sh
# The cost of each part of one message: the statements that idem sends to PostgreSQL for one message, run by pgbench,
# and variants with one change each. All variants run in turn, so that the ratios hold on a busy machine. Prints medians
# of the rounds, and of their ratios.
#
#   eval "$(cargo xtask services up)"; sh benches/one_message.sh [clients] [rounds] [seconds] [variant ..]
set -eu
clients=${1:-16} rounds=${2:-5} seconds=${3:-2}
if [ $# -gt 3 ]; then shift 3; chosen="$*"; else chosen=""; fi
PATH=$PATH:$(ls -d /usr/lib/postgresql/*/bin 2>/dev/null | tail -1)
dir=$(mktemp -d)
trap 'psql -qX "$DATABASE_URL" -c "DROP SCHEMA IF EXISTS one_message CASCADE" 2>/dev/null; rm -r "$dir"' EXIT

checked="CHECK (octet_length(key) BETWEEN 1 AND 255), CHECK (octet_length(fingerprint) <= 255),"
table() { # name, constraints
    echo "CREATE TABLE $1 (processed_at timestamptz, handler_id int NOT NULL, key bytea NOT NULL,
          fingerprint bytea NOT NULL, batch_xid xid8, $2 PRIMARY KEY (handler_id, key));"
}
trigger() { # table
    echo "CREATE CONSTRAINT TRIGGER refuse_commit AFTER INSERT OR UPDATE OF batch_xid ON $1 DEFERRABLE INITIALLY DEFERRED
          FOR EACH ROW WHEN (NEW.batch_xid = pg_catalog.pg_current_xact_id()) EXECUTE FUNCTION refuse_commit();"
}
{
    echo "SET client_min_messages = error; DROP SCHEMA IF EXISTS one_message CASCADE; CREATE SCHEMA one_message;"
    echo "SET search_path = one_message; CREATE TABLE effects (id text NOT NULL);"
    echo "CREATE TABLE handlers (id int GENERATED ALWAYS AS IDENTITY PRIMARY KEY, consumer text NOT NULL, name text NOT NULL,
          pruned_through timestamptz, UNIQUE (consumer, name)); INSERT INTO handlers (consumer, name) VALUES ('a', 'b');"
    echo "CREATE FUNCTION refuse_commit() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN RETURN NULL; END';"
    table claims "$checked"; trigger claims
    table unchecked ""; trigger unchecked
    table untriggered "$checked"
    table dated "$checked"; trigger dated
    table by_hand "$checked"
    echo "CREATE INDEX ON dated (processed_at) WHERE processed_at IS NOT NULL;
          CREATE INDEX ON by_hand (processed_at) WHERE processed_at IS NOT NULL;"
} | psql -qX "$DATABASE_URL"

# The parts of a message. The values are a key of 16 bytes and a fingerprint of 16 bytes.
first="BEGIN ISOLATION LEVEL READ COMMITTED, READ WRITE\\;"
settings="SET LOCAL lock_timeout = '1000'\\; SET LOCAL statement_timeout = 30000\\; SET LOCAL idle_in_transaction_session_timeout = 40000\\;"
begin="$first DISCARD SEQUENCES\\; $settings"
values="1, '\\x:a:b', '\\x:b:a', true, '0'"
types="(int, bytea, bytea, bool, text)"
effect="INSERT INTO one_message.effects VALUES (':a:b');"
pruned=", (SELECT (extract(epoch FROM pruned_through) * 1000000)::bigint FROM one_message.handlers WHERE id = \$1)"
clean="RESET ALL\\; CLOSE ALL\\; UNLISTEN *\\; EXECUTE clean;"
guard="EXECUTE guard(':xid')\\;"
rows() { # table, what finds no claim, ON CONFLICT, how far claims were pruned
    echo "INSERT INTO one_message.$1 AS claim (handler_id, key, fingerprint, processed_at)
        SELECT \$1, \$2, \$3, CASE WHEN \$4 THEN now() END WHERE NOT EXISTS ($2) $3
        RETURNING CASE WHEN set_config('lock_timeout', coalesce(\$5, current_setting('lock_timeout')), true) IS NOT NULL
            THEN pg_current_xact_id()::text END AS xid $4"
}
claim() { # table, ON CONFLICT, how far claims were pruned
    echo "WITH existing AS MATERIALIZED (
            SELECT fingerprint, (extract(epoch FROM clock_timestamp() - processed_at) * 1000000)::bigint AS age
            FROM one_message.$1 WHERE handler_id = \$1 AND key = \$2
        ), inserted AS ($(rows "$1" "SELECT FROM existing" "$2" "$3"))
        SELECT inserted.*, NULL::bytea AS fingerprint, NULL::bigint AS age FROM inserted
        UNION ALL SELECT NULL, ${3:+NULL,} fingerprint, age FROM existing"
}
alone() { # table: an existing claim is not in the answer
    rows "$1" "SELECT FROM one_message.$1 WHERE handler_id = \$1 AND key = \$2" "" "$pruned"
}
ended="CASE WHEN pg_current_xact_id_if_assigned() IS DISTINCT FROM \$1 THEN concat('ended')::int"
number="SELECT pg_current_xact_id()::text AS xid"
run="encode(timestamptz_send(pg_postmaster_start_time()) || timestamptz_send(pg_stat_get_bgwriter_stat_reset_time()), 'hex')"
prepare() { # the claim
    printf '\\set a random(1000000000000000, 9999999999999999)\n\\set b random(1000000000000000, 9999999999999999)\n'
    printf '\\if :new = 1\n'
    echo "PREPARE claim $types AS $1;" | tr '\n' ' '
    echo
    echo "PREPARE by_hand (int, bytea, bytea) AS INSERT INTO one_message.by_hand (handler_id, key, fingerprint, processed_at) VALUES (\$1, \$2, \$3, now()) ON CONFLICT DO NOTHING RETURNING pg_current_xact_id()::text AS xid;"
    echo "PREPARE guard (xid8) AS SELECT $ended WHEN current_setting('synchronous_commit') <> 'on' THEN length(set_config('synchronous_commit', 'on', true)) ELSE 1 END;"
    echo "PREPARE guard_sets (xid8) AS SELECT $ended ELSE 1 END, set_config('synchronous_commit', 'on', true);"
    echo "PREPARE natural (text, text) AS $number, $run AS run WHERE set_config('statement_timeout', \$1, true) IS NOT NULL AND set_config('idle_in_transaction_session_timeout', \$2, true) IS NOT NULL;"
    echo "PREPARE natural_before (text, text, text) AS $number, extract(epoch FROM pg_postmaster_start_time())::text || ' ' || extract(epoch FROM pg_stat_get_bgwriter_stat_reset_time())::text AS run WHERE concat(set_config('lock_timeout', \$1, true), set_config('statement_timeout', \$2, true), set_config('idle_in_transaction_session_timeout', \$3, true)) IS NOT NULL;"
    echo "PREPARE natural_no_limits AS $number, $run AS run; PREPARE natural_no_run AS $number;"
    echo "PREPARE limits (text, text, text) AS SELECT WHERE set_config('lock_timeout', \$1, true) IS NOT NULL AND set_config('statement_timeout', \$2, true) IS NOT NULL AND set_config('idle_in_transaction_session_timeout', \$3, true) IS NOT NULL;"
    echo "PREPARE clean AS SELECT pg_advisory_unlock_all()::text = '' AND current_user <> 'a' AND session_user <> 'a' AND pg_my_temp_schema() = 0;"
    echo "PREPARE clean_looks AS SELECT pg_advisory_unlock_all()::text = '', current_user <> 'a' AND session_user <> 'a' AND pg_my_temp_schema() = 0 AND NOT EXISTS (SELECT FROM pg_listening_channels()) AND NOT EXISTS (SELECT FROM pg_cursor());"
    printf '\\set new 0\n\\endif\n'
}
message() { # name, claim, what is sent before the handler, after it
    { prepare "$2"; printf '%s\n%s\n%s\n' "$3" "$effect" "$4"; } > "$dir/$1"
}
ours=$(claim claims "" "$pruned")
execute="EXECUTE claim($values) \\gset"
message idem "$ours" "$begin $execute" "$guard COMMIT\\; $clean"
conflict="ON CONFLICT (handler_id, key) DO NOTHING"
message before "$(claim claims "$conflict" "$pruned")" "$begin $execute" \
    "EXECUTE guard_sets(':xid')\\; COMMIT\\; RESET ALL\\; EXECUTE clean_looks;"
message on-conflict "$(claim claims "$conflict" "$pruned")" "$begin $execute" "$guard COMMIT\\; $clean"
message guard-sets-the-level "$ours" "$begin $execute" "EXECUTE guard_sets(':xid')\\; COMMIT\\; $clean"
message clean-by-looks "$ours" "$begin $execute" "$guard COMMIT\\; RESET ALL\\; EXECUTE clean_looks;"
message no-reset-all "$ours" "$begin $execute" "$guard COMMIT\\; CLOSE ALL\\; UNLISTEN *\\; EXECUTE clean;"
message no-close-and-unlisten "$ours" "$begin $execute" "$guard COMMIT\\; RESET ALL\\; EXECUTE clean;"
message no-clean "$ours" "$begin $execute" "$guard COMMIT;"
message no-discard-sequences "$ours" "$first $settings $execute" "$guard COMMIT\\; $clean"
message no-limits "$ours" "$first DISCARD SEQUENCES\\; $execute" "$guard COMMIT\\; $clean"
message no-guard "$ours" "$begin $execute" "COMMIT\\; $clean"
message no-existing-claim "$(alone claims)" "$begin $execute" "$guard COMMIT\\; $clean"
message no-pruning-cutoff "$(claim claims "" "")" "$begin $execute" "$guard COMMIT\\; $clean"
message no-checks "$(claim unchecked "" "$pruned")" "$begin $execute" "$guard COMMIT\\; $clean"
message no-trigger "$(claim untriggered "" "$pruned")" "$begin $execute" "$guard COMMIT\\; $clean"
message date-index "$(claim dated "" "$pruned")" "$begin $execute" "$guard COMMIT\\; $clean"
message no-fingerprint "$ours" "$begin EXECUTE claim(1, '\\x:a:b', '', true, '0') \\gset" "$guard COMMIT\\; $clean"
message four-round-trips "$ours" "BEGIN;
$execute" "EXECUTE guard(':xid');
COMMIT;"
# A natural message, and the same with one change each. The limits at login are in force when a transaction begins.
natural="EXECUTE natural('30000', '40000')"
message natural "$ours" "$first DISCARD SEQUENCES\\; $natural \\gset" "$guard COMMIT\\; $clean"
message natural-before "$ours" "$first DISCARD SEQUENCES\\; EXECUTE natural_before('0', '30000', '40000') \\gset" "$guard COMMIT\\; $clean"
message natural-limits-at-login "$ours" "$first DISCARD SEQUENCES\\; EXECUTE natural_no_limits \\gset" "$guard COMMIT\\; $clean"
message natural-no-run "$ours" "$first DISCARD SEQUENCES\\; EXECUTE natural_no_run \\gset" "$guard COMMIT\\; $clean"
message natural-no-level "$ours" "BEGIN\\; DISCARD SEQUENCES\\; $natural \\gset" "$guard COMMIT\\; $clean"
message natural-no-discard "$ours" "$first $natural \\gset" "$guard COMMIT\\; $clean"
message natural-no-clean "$ours" "$first DISCARD SEQUENCES\\; $natural \\gset" "$guard COMMIT;"
message natural-bare "$ours" "BEGIN\\; EXECUTE natural_no_run \\gset" "COMMIT;"
# As if the beginning were sent with the handler's statement: what two round trips instead of three could save.
one_effect=$effect effect=""
message natural-two-trips "$ours" "$first DISCARD SEQUENCES\\; $natural\\; ${one_effect%;} RETURNING pg_current_xact_id()::text AS xid \\gset" "$guard COMMIT\\; $clean"
message natural-two-trips-bare "$ours" "BEGIN\\; $one_effect" "COMMIT;"
effect=$one_effect
# A claim whose other limits are set at login, or with its own by one prepared statement.
message limits-at-login "$ours" "$first DISCARD SEQUENCES\\; SET LOCAL lock_timeout = '1000'\\; $execute" "$guard COMMIT\\; $clean"
message limits-by-execute "$ours" "$first DISCARD SEQUENCES\\; EXECUTE limits('1000', '30000', '40000')\\; $execute" "$guard COMMIT\\; $clean"
message by-hand "$ours" "BEGIN\\; SET LOCAL lock_timeout = 1000\\; SET LOCAL statement_timeout = 30000\\; SET LOCAL idle_in_transaction_session_timeout = 40000\\; SET LOCAL synchronous_commit = on;
EXECUTE by_hand(1, '\\x:a:b', '\\x:b:a') \\gset" "SELECT pg_current_xact_id_if_assigned()::text;
COMMIT;"
message no-claim "$ours" "BEGIN;" "COMMIT;"
message no-claim-autocommit "$ours" "" ""

one() {
    case $1 in *-at-login) limits="-c statement_timeout=30000 -c idle_in_transaction_session_timeout=40000" ;; *) limits="" ;; esac
    PGOPTIONS=$limits pgbench -n -M simple -D new=1 -c "$clients" -j 2 -T "$seconds" -f "$1" "$DATABASE_URL" >out 2>log && awk '/^tps/ {print $3}' out
}
cd "$dir"
sides="idem before on-conflict guard-sets-the-level clean-by-looks no-reset-all no-close-and-unlisten no-clean
    no-discard-sequences no-limits no-guard no-existing-claim no-pruning-cutoff no-checks no-trigger date-index no-fingerprint
    limits-at-login limits-by-execute four-round-trips natural natural-before natural-limits-at-login natural-no-run natural-no-level
    natural-no-discard natural-no-clean natural-bare natural-two-trips natural-two-trips-bare by-hand no-claim no-claim-autocommit"
[ -z "$chosen" ] || sides="idem $chosen"
for round in $(seq "$rounds"); do
    for side in $sides; do one "$side" >> "$side.tps" || { cat log >&2; exit 1; }; done
done
echo "sh benches/one_message.sh $clients $rounds $seconds: $(nproc) cores, load $(cut -d' ' -f1 /proc/loadavg), $(date -u +%Y-%m-%d)"
median() { sort -n | awk '{v[NR]=$1} END {print v[int((NR+1)/2)]}'; }
for side in $sides; do
    ratio=$(paste idem.tps "$side.tps" | awk '{print $2/$1}' | median)
    printf '%-23s %6.0f messages a second  %.2f of idem\n' "$side" "$(median < "$side.tps")" "$ratio"
done
