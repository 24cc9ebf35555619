//! The SQL statements, with the schema's name inserted.

use super::statement::Statement;
use super::{calls_sql, claims_sql, inbox_sql, local_sql, many_sql, operator_sql, outbox_sql, prune_sql, register_sql};

macro_rules! statements {
    ($($name:ident = $template:expr,)*) => {
        /// Every statement that runs while a store is in use.
        pub(super) struct Statements { $(pub(super) $name: Statement,)* }

        impl Statements {
            /// Inserts the name of the schema, which has to be quoted.
            pub(super) fn new(schema: &str) -> Self {
                Self { $($name: Statement::new(&$template, schema),)* }
            }
        }
    };
}

statements! {
    ping = claims_sql::PING,
    intern = register_sql::INTERN,
    keep = register_sql::KEEP,
    handlers = register_sql::HANDLERS,
    rename = register_sql::RENAME,
    add_former_name = register_sql::ADD_FORMER_NAME,
    forget = register_sql::FORGET,
    retention = register_sql::RETENTION,
    seen = register_sql::SEEN,
    waiting = register_sql::waiting(),
    histories = register_sql::histories(),
    record_history = register_sql::RECORD_HISTORY,
    stands = claims_sql::STANDS,
    claim = claims_sql::claim(),
    prepare_claim = claims_sql::prepare(),
    own_claim = claims_sql::OWN,
    existing_claim = claims_sql::EXISTING_CLAIM,
    own_existing_claim = claims_sql::OWN_EXISTING,
    reopen = claims_sql::REOPEN,
    start = inbox_sql::START,
    claim_uncontended = many_sql::claim_uncontended(),
    claim_contended = many_sql::claim_contended(),
    mark = many_sql::MARK,
    existing_claims = many_sql::existing_claim(),
    known = many_sql::unlocked_claims(),
    start_many = many_sql::START,
    insert_many = many_sql::INSERT,
    count_duplicates = many_sql::COUNT_DUPLICATES,
    remove = inbox_sql::REMOVE,
    insert = inbox_sql::INSERT,
    count_duplicate = inbox_sql::COUNT_DUPLICATE,
    poll_due = inbox_sql::poll_due(),
    take_ordinary = inbox_sql::take(inbox_sql::ORDINARY),
    take_suspect = inbox_sql::take(inbox_sql::SUSPECT),
    take_alone = inbox_sql::take(inbox_sql::ALONE),
    extend = inbox_sql::EXTEND,
    taken = inbox_sql::rows_by_token(),
    record_result = inbox_sql::record_result(),
    is_scheduled = inbox_sql::IS_SCHEDULED,
    refund_start = inbox_sql::REFUND_START,
    dead_letter_crashed = inbox_sql::dead_letter_crashed(),
    take_calls = calls_sql::take(),
    calls_by_token = calls_sql::by_token(),
    record_call = calls_sql::RECORD,
    date_call = calls_sql::DATE,
    leave_to_call = calls_sql::LEAVE_TO_CALL,
    release_calls = calls_sql::release(),
    resolve = calls_sql::RESOLVE,
    store_namespace = calls_sql::STORE_NAMESPACE,
    call_namespace = calls_sql::NAMESPACE,
    stats = operator_sql::STATS,
    consumers = operator_sql::CONSUMERS,
    list_dead = operator_sql::list("state = 'dead'"),
    list_scheduled = operator_sql::list("state <> 'dead'"),
    replay = operator_sql::replay(),
    replay_as = operator_sql::replay_as(),
    discard = operator_sql::discard(),
    register_outbox = outbox_sql::REGISTER,
    stage = outbox_sql::STAGE,
    prepare_stage = outbox_sql::prepare(),
    lease_outbox = outbox_sql::LEASE,
    release_outbox = outbox_sql::RELEASE,
    show_relay = outbox_sql::SHOW,
    read_outbox = outbox_sql::read(outbox_sql::EXCEPT),
    read_keys = outbox_sql::read(outbox_sql::OF_KEYS),
    read_destination = outbox_sql::read(outbox_sql::TO_DESTINATION),
    read_by_id = outbox_sql::read(outbox_sql::BY_ID),
    mark_outbox = outbox_sql::mark(),
    highest_staged = outbox_sql::HIGHEST,
    delete_published = outbox_sql::delete(),
    record_failures = outbox_sql::record(),
    outbox_waiting = outbox_sql::WAITING,
    outbox_dead = outbox_sql::DEAD,
    relay_seen = outbox_sql::SEEN,
    unread_outboxes = outbox_sql::UNREAD,
    dead_outgoing = outbox_sql::dead(),
    replay_outgoing = outbox_sql::REPLAY,
    discard_outgoing = outbox_sql::DISCARD,
    stage_many = outbox_sql::stage_many(),
    stage_own = outbox_sql::stage_own(),
    stage_local = local_sql::stage(),
    prune_lock = prune_sql::LOCK,
    prune_place = prune_sql::PLACE,
    prune_find = prune_sql::FIND,
    prune_delete = prune_sql::DELETE,
    prune_move = prune_sql::MOVE,
}
