//! The statements, with the schema's name in them.

use std::sync::Arc;

use sqlx::postgres::PgArguments;
use sqlx::query::Query;
use sqlx::{AssertSqlSafe, Postgres as Pg};

use super::{claims, fate, inbox_rows, many, operator, ping, prune, register};

/// A statement with the schema's name in it, made once per store.
#[derive(Clone)]
pub(super) struct Statement(Arc<str>);

impl Statement {
    fn new(template: &str, schema: &str) -> Self {
        Self(template.replace("{schema}", schema).into())
    }

    /// The statement as it is sent.
    pub(super) fn text(&self) -> AssertSqlSafe<Arc<str>> {
        AssertSqlSafe(self.0.clone())
    }

    /// The statement with at most nine values as literals, none of which holds a dollar sign.
    pub(super) fn with(&self, values: &[String]) -> String {
        let name = |(at, value): (usize, &String)| (format!("${}", at + 1), value.clone());
        let named = values.iter().enumerate().map(name);
        named.fold(self.0.to_string(), |text, (name, value)| text.replace(&name, &value))
    }

    /// The statement, to bind values to.
    pub(super) fn query<'q>(&self) -> Query<'q, Pg, PgArguments> {
        // Nothing but the quoted name of the schema and constants are in the text.
        sqlx::query(AssertSqlSafe(self.0.clone()))
    }
}

macro_rules! statements {
    ($($name:ident = $template:expr,)*) => {
        /// Every statement that runs while a store is in use.
        pub(super) struct Statements { $(pub(super) $name: Statement,)* }

        impl Statements {
            /// With the name of the schema, quoted.
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
    start = inbox_rows::START,
    claim_alone = many::claim_alone(),
    claim_beside = many::claim_beside(),
    mark = many::MARK,
    standing_many = many::standing(),
    known = many::known(),
    start_many = many::START,
    insert_many = many::INSERT,
    sight_many = many::SIGHT,
    remove = inbox_rows::REMOVE,
    insert = inbox_rows::INSERT,
    sight = inbox_rows::SIGHT,
    survey = inbox_rows::survey(),
    take_ordinary = inbox_rows::take(inbox_rows::ORDINARY, 1),
    take_suspect = inbox_rows::take(inbox_rows::SUSPECT, 0),
    count_start = inbox_rows::COUNT_START,
    extend = inbox_rows::EXTEND,
    taken = inbox_rows::taken(),
    note = inbox_rows::note(),
    is_parked = inbox_rows::IS_PARKED,
    make_due = inbox_rows::MAKE_DUE,
    unstart = inbox_rows::UNSTART,
    judge = inbox_rows::judge(),
    level = operator::LEVEL,
    list_dead = operator::list("dead"),
    list_parked = operator::list("parked"),
    replay = operator::replay(),
    replay_as = operator::replay_as(),
    discard = operator::discard(),
    prune_lock = prune::LOCK,
    prune_lock_chunk = prune::LOCK_CHUNK,
    prune_unlock = prune::UNLOCK,
    prune_find = prune::FIND,
    prune_delete = prune::DELETE,
}

/// A name as an identifier, whatever is in it (PostgreSQL manual, 4.1.1).
pub(super) fn quoted(name: &str) -> String {
    format!("\"{}\"", name.replace('"', "\"\""))
}
