//! The SQL statements, with the schema's name inserted.

use super::statement::Statement;
use super::{claims, fate, inbox_sql, many, operator, ping, prune, register};

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
    ping = ping::PING,
    intern = register::INTERN,
    keep = register::KEEP,
    handlers = register::HANDLERS,
    retention = register::RETENTION,
    seen = register::SEEN,
    waiting = register::WAITING,
    has_history = register::HAS_HISTORY,
    stands = fate::STANDS,
    claim = claims::CLAIM,
    prepare_claim = claims::prepare(),
    standing = claims::STANDING,
    reopen = claims::REOPEN,
    start = inbox_sql::START,
    claim_alone = many::claim_alone(),
    claim_beside = many::claim_beside(),
    mark = many::MARK,
    standing_many = many::standing(),
    known = many::known(),
    start_many = many::START,
    insert_many = many::INSERT,
    sight_many = many::SIGHT,
    remove = inbox_sql::REMOVE,
    insert = inbox_sql::INSERT,
    count_duplicate = inbox_sql::SIGHT,
    poll_due = inbox_sql::poll_due(),
    take_ordinary = inbox_sql::take(inbox_sql::ORDINARY, 1),
    take_suspect = inbox_sql::take(inbox_sql::SUSPECT, 0),
    set_starts = inbox_sql::SET_STARTS,
    extend = inbox_sql::EXTEND,
    taken = inbox_sql::taken(),
    record_result = inbox_sql::record_result(),
    is_scheduled = inbox_sql::IS_PARKED,
    make_due = inbox_sql::MAKE_DUE,
    refund_start = inbox_sql::UNSTART,
    dead_letter_crashed = inbox_sql::dead_letter_crashed(),
    stats = operator::LEVEL,
    consumers = operator::CONSUMERS,
    list_dead = operator::list("dead"),
    list_scheduled = operator::list("scheduled"),
    replay = operator::replay(),
    replay_as = operator::replay_as(),
    discard = operator::discard(),
    prune_lock = prune::LOCK,
    prune_lock_chunk = prune::LOCK_CHUNK,
    prune_unlock = prune::UNLOCK,
    prune_find = prune::FIND,
    prune_delete = prune::DELETE,
}
