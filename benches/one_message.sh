#!/bin/sh
# The cost of each part of one message: the statements that idem sends to PostgreSQL for one message, run by pgbench,
# and variants with one change each. All variants run in turn, so that the ratios hold on a busy machine. Prints medians
# of the rounds, and of their ratios; and the processor time of the server for a message, with the login of its session, if
# the server is on this machine.
#
# The handler's statement, and those of the loop by hand, are prepared, as sqlx prepares them. But pgbench sends them as
# EXECUTE with their values as text, which the server has to parse: bound values need `-M prepared` or `-M extended`, which
# hold for a whole script and cannot send several statements in one string, and a pipeline of prepared statements is not what
# idem sends. So each statement that sqlx prepares costs a little more here: one of idem, three of the loop by hand.
#
# Some things that idem does not do are variants: sessions that start with the isolation level (`level-at-login`) or with
# limits (`idle-at-login`, `statement-timeout-at-login`), and a table of claims without checks (`no-checks`), or also
# without its trigger (`no-checks-no-trigger`).
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
    table unguarded ""
    table dated "$checked"; trigger dated
    table by_hand "$checked"
    table by_hand_unchecked ""
    echo "CREATE INDEX ON dated (processed_at) WHERE processed_at IS NOT NULL;
          CREATE INDEX ON by_hand (processed_at) WHERE processed_at IS NOT NULL;
          CREATE INDEX ON by_hand_unchecked (processed_at) WHERE processed_at IS NOT NULL;"
} | psql -qX "$DATABASE_URL"

# The parts of a message. The values are a key of 16 bytes and a fingerprint of 16 bytes.
no_level="BEGIN READ WRITE\\;"
first="BEGIN ISOLATION LEVEL READ COMMITTED, READ WRITE\\;"
lock="SET LOCAL lock_timeout = '1000'\\;"
two="$lock SET LOCAL statement_timeout = 30000\\;"
settings="$two SET LOCAL idle_in_transaction_session_timeout = 40000\\;"
begin="$first DISCARD SEQUENCES\\; $settings"
values="1, '\\x:a:b', '\\x:b:a', true, '0'"
types="(int, bytea, bytea, bool, text)"
effect="EXECUTE effect(':a:b');"
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
decimal="extract(epoch FROM pg_postmaster_start_time())::text || ' ' || extract(epoch FROM pg_stat_get_bgwriter_stat_reset_time())::text"
own="set_config('statement_timeout', \$1, true) IS NOT NULL"
own_idle="set_config('idle_in_transaction_session_timeout', \$2, true) IS NOT NULL"
prepare() { # the claim
    printf '\\set a random(1000000000000000, 9999999999999999)\n\\set b random(1000000000000000, 9999999999999999)\n'
    printf '\\if :new = 1\n'
    echo "PREPARE claim $types AS $1;" | tr '\n' ' '
    echo
    echo "PREPARE effect (text) AS INSERT INTO one_message.effects VALUES (\$1);"
    echo "PREPARE effect_xid (text) AS INSERT INTO one_message.effects VALUES (\$1) RETURNING pg_current_xact_id()::text AS xid;"
    for table in by_hand by_hand_unchecked; do
        echo "PREPARE $table (int, bytea, bytea) AS INSERT INTO one_message.$table (handler_id, key, fingerprint, processed_at) VALUES (\$1, \$2, \$3, now()) ON CONFLICT DO NOTHING RETURNING pg_current_xact_id()::text AS xid;"
    done
    echo "PREPARE by_hand_guard AS SELECT pg_current_xact_id_if_assigned()::text;"
    echo "PREPARE guard (xid8) AS SELECT $ended WHEN current_setting('synchronous_commit') <> 'on' THEN length(set_config('synchronous_commit', 'on', true)) ELSE 1 END;"
    echo "PREPARE guard_sets (xid8) AS SELECT $ended ELSE 1 END, set_config('synchronous_commit', 'on', true);"
    echo "PREPARE unclaimed (text, text) AS $number, $run AS run WHERE $own AND $own_idle;"
    echo "PREPARE unclaimed_no_idle (text) AS $number, $run AS run WHERE $own;"
    echo "PREPARE unclaimed_lock (text, text, text) AS $number, $run AS run WHERE $own AND $own_idle AND set_config('lock_timeout', \$3, true) IS NOT NULL;"
    echo "PREPARE unclaimed_decimal (text, text) AS $number, $decimal AS run WHERE $own AND $own_idle;"
    echo "PREPARE unclaimed_no_limits AS $number, $run AS run; PREPARE unclaimed_no_run AS $number;"
    echo "PREPARE limits (text, text, text) AS SELECT WHERE $own AND $own_idle AND set_config('lock_timeout', \$3, true) IS NOT NULL;"
    echo "PREPARE clean AS SELECT pg_advisory_unlock_all()::text = '' AND current_user <> 'a' AND session_user <> 'a' AND pg_my_temp_schema() = 0;"
    echo "PREPARE clean_looks AS SELECT pg_advisory_unlock_all()::text = '', current_user <> 'a' AND session_user <> 'a' AND pg_my_temp_schema() = 0 AND NOT EXISTS (SELECT FROM pg_listening_channels()) AND NOT EXISTS (SELECT FROM pg_cursor());"
    printf '\\set new 0\n\\endif\n'
}
sides=""
message() { # name, claim, what is sent before the handler, after it
    sides="$sides $1"
    { prepare "$2"; printf '%s\n%s\n%s\n' "$3" "$effect" "$4"; } > "$dir/$1"
}
ours=$(claim claims "" "$pruned")
execute="EXECUTE claim($values) \\gset"
message idem "$ours" "$begin $execute" "$guard COMMIT\\; $clean"
conflict="ON CONFLICT (handler_id, key) DO NOTHING"
message no-checks-no-trigger "$(claim unguarded "" "$pruned")" "$begin $execute" "$guard COMMIT\\; $clean"
message no-checks "$(claim unchecked "" "$pruned")" "$begin $execute" "$guard COMMIT\\; $clean"
message level-at-login "$ours" "$no_level DISCARD SEQUENCES\\; $settings $execute" "$guard COMMIT\\; $clean"
message idle-at-login "$ours" "$first DISCARD SEQUENCES\\; $two $execute" "$guard COMMIT\\; $clean"
message on-conflict "$(claim claims "$conflict" "$pruned")" "$begin $execute" "$guard COMMIT\\; $clean"
message guard-sets-the-level "$ours" "$begin $execute" "EXECUTE guard_sets(':xid')\\; COMMIT\\; $clean"
message clean-by-looks "$ours" "$begin $execute" "$guard COMMIT\\; RESET ALL\\; EXECUTE clean_looks;"
message no-reset-all "$ours" "$begin $execute" "$guard COMMIT\\; CLOSE ALL\\; UNLISTEN *\\; EXECUTE clean;"
message no-close-and-unlisten "$ours" "$begin $execute" "$guard COMMIT\\; RESET ALL\\; EXECUTE clean;"
message no-clean "$ours" "$begin $execute" "$guard COMMIT;"
message no-discard-sequences "$ours" "$first $settings $execute" "$guard COMMIT\\; $clean"
message no-limits "$ours" "$first DISCARD SEQUENCES\\; $execute" "$guard COMMIT\\; $clean"
message statement-timeout-at-login "$ours" "$first DISCARD SEQUENCES\\; $lock $execute" "$guard COMMIT\\; $clean"
message limits-by-execute "$ours" "$first DISCARD SEQUENCES\\; EXECUTE limits('30000', '40000', '1000')\\; $execute" "$guard COMMIT\\; $clean"
message no-guard "$ours" "$begin $execute" "COMMIT\\; $clean"
message no-existing-claim "$(alone claims)" "$begin $execute" "$guard COMMIT\\; $clean"
message no-pruning-cutoff "$(claim claims "" "")" "$begin $execute" "$guard COMMIT\\; $clean"
message no-trigger "$(claim untriggered "" "$pruned")" "$begin $execute" "$guard COMMIT\\; $clean"
message date-index "$(claim dated "" "$pruned")" "$begin $execute" "$guard COMMIT\\; $clean"
message no-fingerprint "$ours" "$begin EXECUTE claim(1, '\\x:a:b', '', true, '0') \\gset" "$guard COMMIT\\; $clean"
message four-round-trips "$ours" "BEGIN;
$execute" "EXECUTE guard(':xid');
COMMIT;"
# A natural message, and the same with one change each.
unclaimed="EXECUTE unclaimed('30000', '40000')"
message natural "$ours" "$first DISCARD SEQUENCES\\; $unclaimed \\gset" "$guard COMMIT\\; $clean"
message natural-lock-timeout-in-each-message "$ours" "$first DISCARD SEQUENCES\\; EXECUTE unclaimed_lock('30000', '40000', '0') \\gset" "$guard COMMIT\\; $clean"
message natural-decimal-run "$ours" "$first DISCARD SEQUENCES\\; EXECUTE unclaimed_decimal('30000', '40000') \\gset" "$guard COMMIT\\; $clean"
message natural-level-at-login "$ours" "$no_level DISCARD SEQUENCES\\; $unclaimed \\gset" "$guard COMMIT\\; $clean"
message natural-idle-at-login "$ours" "$first DISCARD SEQUENCES\\; EXECUTE unclaimed_no_idle('30000') \\gset" "$guard COMMIT\\; $clean"
message natural-no-limits "$ours" "$first DISCARD SEQUENCES\\; EXECUTE unclaimed_no_limits \\gset" "$guard COMMIT\\; $clean"
message natural-no-run "$ours" "$first DISCARD SEQUENCES\\; EXECUTE unclaimed_no_run \\gset" "$guard COMMIT\\; $clean"
message natural-no-discard "$ours" "$first $unclaimed \\gset" "$guard COMMIT\\; $clean"
message natural-no-clean "$ours" "$first DISCARD SEQUENCES\\; $unclaimed \\gset" "$guard COMMIT;"
message natural-bare "$ours" "BEGIN\\; EXECUTE unclaimed_no_run \\gset" "COMMIT;"
# As if the beginning were sent with the handler's statement: what two round trips instead of three could save.
one_effect=$effect effect=""
message natural-two-trips "$ours" "$first DISCARD SEQUENCES\\; $unclaimed\\; EXECUTE effect_xid(':a:b') \\gset" "$guard COMMIT\\; $clean"
message natural-two-trips-bare "$ours" "BEGIN\\; $one_effect" "COMMIT;"
effect=$one_effect
# As benches/src/by_hand.rs sends them.
by_hand() { # name, table
    message "$1" "$ours" "BEGIN\\; SET LOCAL lock_timeout = 1000\\; SET LOCAL statement_timeout = 30000\\; SET LOCAL idle_in_transaction_session_timeout = 40000\\; SET LOCAL synchronous_commit = on;
EXECUTE $2(1, '\\x:a:b', '\\x:b:a') \\gset" "EXECUTE by_hand_guard;
COMMIT;"
}
by_hand by-hand by_hand
by_hand by-hand-no-checks by_hand_unchecked
message no-claim "$ours" "BEGIN;" "COMMIT;"
message no-claim-autocommit "$ours" "" ""

one() {
    idle="-c idle_in_transaction_session_timeout=40000"
    case $1 in
        *level-at-login) options="-c default_transaction_isolation=read\\ committed" ;;
        *idle-at-login) options=$idle ;;
        statement-timeout-at-login) options="-c statement_timeout=30000" ;;
        natural-no-limits) options="$idle -c statement_timeout=30000" ;;
        *) options="" ;;
    esac
    spent > before
    PGOPTIONS=$options pgbench -n -M simple -D new=1 -c "$clients" -j 2 -T "$seconds" -f "$1" "$DATABASE_URL" >out 2>log || return 1
    # The server adds the time of a session to its own when that has ended.
    while [ "$(psql -qXAt "$DATABASE_URL" -c "SELECT count(*) FROM pg_stat_activity WHERE application_name = 'pgbench'")" -gt 0 ]; do :; done
    spent > after
    awk '/^tps/ {print $3}' out >> "$1.tps"
    cat before after out | awk 'NR < 3 {spent[NR] = $1} /actually processed/ {print (spent[2] - spent[1]) * 1000000 / hertz / $6}' hertz="$(getconf CLK_TCK)" >> "$1.cpu"
}
# The main process of the server is the parent of each session.
server=$(printf '%s\n' 'SELECT pg_backend_pid() AS pid \gset' '\setenv PID :pid' "\\! awk '{print \$4}' /proc/\$PID/stat" | psql -qX "$DATABASE_URL" 2>/dev/null)
[ "$(cat "/proc/$server/comm" 2>/dev/null)" = postgres ] || server=""
spent() { # the time of the sessions that have ended
    if [ -n "$server" ]; then awk '{print $16 + $17}' "/proc/$server/stat"; else echo 0; fi
}
cd "$dir"
[ -z "$chosen" ] || sides="idem $chosen"
for round in $(seq "$rounds"); do
    for side in $sides; do one "$side" || { cat log >&2; exit 1; }; done
done
echo "sh benches/one_message.sh $clients $rounds $seconds: $(nproc) cores, load $(cut -d' ' -f1 /proc/loadavg), $(date -u +%Y-%m-%d)"
median() { sort -n | awk '{v[NR]=$1} END {print v[int((NR+1)/2)]}'; }
for side in $sides; do
    ratio=$(paste idem.tps "$side.tps" | awk '{print $2/$1}' | median)
    cpu=""
    [ -z "$server" ] || cpu=$(printf '%5.0f us of the server' "$(median < "$side.cpu")")
    printf '%-37s %6.0f messages a second  %.3f of idem  %s\n' "$side" "$(median < "$side.tps")" "$ratio" "$cpu"
done
