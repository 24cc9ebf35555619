//! The command line: its commands, their help, and what their flags are read as.

use std::net::SocketAddr;
use std::path::PathBuf;

use clap::builder::{NonEmptyStringValueParser, PossibleValuesParser, TypedValueParser};
use clap::{Args, Parser, Subcommand, value_parser};
use idem_core::Reason;
use idem_core::operator::{Page, Time};
use uuid::Uuid;

use crate::output::Failure;

const EXITS: &str = "Exit codes:
  0   done, and nothing needs a person
  1   nothing matches, or there is no such row
  2   a flag, a handler, a reason, a key or a time is wrong
  3   the database cannot be used
  4   the role of the database may not do this
  5   done in part: the text says what is left
  10  status, doctor: a person is needed; why: a delivery would run
  11  why: duplicate, 12: conflict, 13: waiting in the inbox, 14: too old
  74  the answer could not be written

A time is a duration ago (2h), today, yesterday, or RFC 3339 (2026-11-29T03:00Z, or its date alone); all are UTC.";

/// Stands above the flags of [`Globals`] in the help of a command.
const EVERY: &str = "For every command";

/// Answers what is stuck and why, and changes it, in the database of idem's workers.
#[derive(Parser)]
#[command(name = "idem", version, after_help = EXITS)]
pub(crate) struct Arguments {
    #[command(flatten)]
    pub(crate) globals: Globals,
    #[command(subcommand)]
    pub(crate) command: Command,
}

/// What each command takes.
#[derive(Args)]
pub(crate) struct Globals {
    /// The database: postgres://.., sqlite:.., or the path of a SQLite file. Others on this machine see arguments, and not the
    /// variable.
    #[arg(long, value_name = "URL", env = "DATABASE_URL", hide_env_values = true, global = true, help_heading = EVERY)]
    pub(crate) database: Option<String>,
    /// The schema of idem's tables on PostgreSQL.
    #[arg(long, value_name = "NAME", env = "IDEM_SCHEMA", default_value = "idem_store", global = true, help_heading = EVERY)]
    pub(crate) schema: String,
    /// Only this consumer.
    #[arg(long, value_name = "NAME", global = true, help_heading = EVERY)]
    pub(crate) consumer: Option<String>,
    /// One JSON document instead of text; errors are JSON, too.
    #[arg(long, global = true, help_heading = EVERY)]
    pub(crate) json: bool,
}

#[derive(Subcommand)]
pub(crate) enum Command {
    /// Workers, rates (processed/duplicates/failed), dead letters and lags; exit 10 if something needs a person.
    Status {
        /// Count all rows, which takes seconds where there are millions, instead of saying "at least 10,000".
        #[arg(long)]
        exact: bool,
    },
    /// What a delivery of a message would be now, and why: run, duplicate, conflict, waiting or too old.
    Why(Why),
    /// List, group, show, replay and discard dead letters.
    #[command(subcommand)]
    Dead(Dead),
    /// The messages that wait in the inbox.
    Scheduled(List),
    /// Staged messages, and those that no broker has taken.
    #[command(subcommand)]
    Outbox(Outbox),
    /// External calls that are in doubt or unresolved.
    Calls {
        #[command(subcommand)]
        resolve: Option<Calls>,
    },
    /// Delete the claim of a processed message, so that a later copy runs again.
    Forget {
        handler: String,
        /// As the log shows it: text, a number, a UUID, 0x and bytes, or a,b for a composite key. Behind -- it may begin with -.
        #[arg(allow_negative_numbers = true)]
        key: String,
        /// Nothing asks.
        #[arg(long, required = true)]
        yes: bool,
    },
    /// The workers and relays of the last day.
    Workers,
    /// Who has replayed, discarded, resolved or forgotten which messages in the last 90 days.
    Operations(Paged),
    /// Remove claims beyond their retention now; workers do it every minute.
    Prune,
    /// Create the tables, or the part of them that is missing.
    Migrate {
        /// Print the SQL for the database that is named, and connect to none; the comment at its top says how to run it.
        #[arg(long)]
        print: bool,
    },
    /// SQL for roles with the least privileges: migrator, worker, operator, viewer.
    Roles {
        /// Print it. Roles are yours to create.
        #[arg(long, required = true)]
        print: bool,
    },
    /// Check what a worker checks at its start, and look for what keeps messages waiting.
    Doctor,
    /// Serve the page for browsers.
    Page(Served),
}

#[derive(Args)]
pub(crate) struct Why {
    /// order_paid, or billing/order_paid.
    pub(crate) handler: String,
    /// As the log shows it: text, a number, a UUID, 0x and bytes, or a,b for a composite key. Behind -- it may begin with -.
    #[arg(allow_negative_numbers = true)]
    pub(crate) key: String,
    /// Compare this payload with the one that was claimed.
    #[arg(long, value_name = "FILE")]
    pub(crate) payload: Option<PathBuf>,
    /// When it was published, for messages that may be older than the claims.
    #[arg(long, value_name = "TIME")]
    pub(crate) published: Option<Time>,
}

#[derive(Subcommand)]
pub(crate) enum Dead {
    /// Those with the highest ids first.
    List(List),
    /// By handler, reason and first line of the error.
    Group {
        #[command(flatten)]
        filters: Filters,
        /// Count all rows, which takes seconds where there are millions, instead of saying "at least 10,000".
        #[arg(long)]
        exact: bool,
    },
    /// One message, dead or scheduled, with its payload; values whose names mean secrets are hidden.
    Show {
        id: i64,
        /// Only the payload, byte by byte, for a file or a pipe.
        #[arg(long)]
        raw: bool,
    },
    /// Make dead letters due now, with all their attempts; only those that died before this command.
    Replay {
        #[command(flatten)]
        which: Which,
        /// Also those that had committed, or were too old to know: their effects may be there already.
        #[arg(long)]
        force: bool,
        /// A conflict, under this key.
        #[arg(long = "as", value_name = "KEY", allow_hyphen_values = true, conflicts_with_all = ["force", "new_keys", "dry_run"])]
        new_key: Option<String>,
        /// Conflicts as well, under the keys that their handler has for them since a deploy. Only for other events: one that is
        /// the same event in other bytes would run twice, so look at some with idem dead show.
        #[arg(long)]
        new_keys: bool,
    },
    /// Delete dead letters forever; copies of them stay duplicates.
    Discard {
        #[command(flatten)]
        which: Which,
        /// Nothing asks.
        #[arg(long, required_unless_present = "dry_run")]
        yes: bool,
    },
}

#[derive(Subcommand)]
pub(crate) enum Outbox {
    /// All outboxes, or the dead messages of one.
    List {
        name: Option<String>,
        /// Those that wait to be published instead of dead ones.
        #[arg(long, requires = "name")]
        waiting: bool,
    },
    /// Stage dead messages again.
    Replay(Outgoing),
    /// Delete dead messages forever.
    Discard {
        #[command(flatten)]
        which: Outgoing,
        /// Nothing asks.
        #[arg(long, required = true)]
        yes: bool,
    },
}

/// Dead messages of an outbox to change.
#[derive(Args)]
pub(crate) struct Outgoing {
    pub(crate) name: String,
    /// By their ids.
    #[arg(value_name = "ID", required_unless_present = "all")]
    pub(crate) ids: Vec<i64>,
    /// All of them.
    #[arg(long, conflicts_with = "ids")]
    pub(crate) all: bool,
}

#[derive(Subcommand)]
pub(crate) enum Calls {
    /// Record what a search at the provider has found about a dead letter's call.
    Resolve {
        id: i64,
        /// The key that was looked for: idem calls shows it.
        #[arg(long, value_name = "PROVIDER-KEY")]
        key: Uuid,
        #[command(flatten)]
        found: Found,
    },
}

/// What was found about a call: one of these.
#[derive(Args)]
#[group(required = true, multiple = false)]
pub(crate) struct Found {
    /// It had an effect, and this is its answer: the handler completes with it.
    #[arg(long, value_name = "JSON")]
    pub(crate) answer: Option<String>,
    /// It had no effect: call again, under another key.
    #[arg(long)]
    pub(crate) again: bool,
    /// Delete the message.
    #[arg(long)]
    pub(crate) discard: bool,
}

#[derive(Args)]
pub(crate) struct List {
    #[command(flatten)]
    pub(crate) filters: Filters,
    #[command(flatten)]
    pub(crate) paged: Paged,
}

/// A part of a list.
#[derive(Args)]
pub(crate) struct Paged {
    /// So many at most, those with the highest ids first.
    #[arg(long, value_name = "ROWS", default_value_t = 50, value_parser = value_parser!(u32).range(1..))]
    pub(crate) limit: u32,
    /// Only below this id: the next page.
    #[arg(long, value_name = "ID")]
    pub(crate) before: Option<i64>,
}

impl Paged {
    pub(crate) fn page(&self) -> Page {
        let page = Page::new(self.limit).without_payloads();
        self.before.map_or(page, |id| page.before(id))
    }

    /// The hint behind a page that is full.
    pub(crate) fn more(&self, next: Option<i64>) -> String {
        next.map(|id| format!("there may be more: --before {id}\n")).unwrap_or_default()
    }
}

#[derive(Args)]
pub(crate) struct Filters {
    /// order_paid, or billing/order_paid.
    #[arg(long, value_name = "NAME")]
    pub(crate) handler: Option<String>,
    /// Why it died.
    #[arg(long, value_parser = reasons())]
    pub(crate) reason: Option<Reason>,
    /// Text in its error; capitals matter.
    #[arg(long, value_name = "TEXT", allow_hyphen_values = true, value_parser = NonEmptyStringValueParser::new())]
    pub(crate) error: Option<String>,
    /// Text in its payload, as its bytes are: '"order_id":7'. It is no path of JSON. Payloads above 1 MiB are not searched.
    #[arg(long, value_name = "TEXT", allow_hyphen_values = true, value_parser = NonEmptyStringValueParser::new())]
    pub(crate) payload: Option<String>,
    /// Its key, as the log shows it.
    #[arg(long, allow_hyphen_values = true)]
    pub(crate) key: Option<String>,
    /// Not before this time: that of its death, or of its arrival if it is scheduled.
    #[arg(long, value_name = "TIME")]
    pub(crate) since: Option<Time>,
    /// Before this time, in the same way.
    #[arg(long, value_name = "TIME")]
    pub(crate) until: Option<Time>,
}

/// Dead letters to change.
#[derive(Args)]
pub(crate) struct Which {
    /// By their ids.
    #[arg(value_name = "ID")]
    pub(crate) ids: Vec<i64>,
    #[command(flatten)]
    pub(crate) filters: Filters,
    /// All of them.
    #[arg(long, conflicts_with = "ids")]
    pub(crate) all: bool,
    /// So many at most, those with the highest ids first.
    #[arg(long, value_name = "ROWS", value_parser = value_parser!(u64).range(1..))]
    pub(crate) limit: Option<u64>,
    /// So many a second at most.
    #[arg(long, value_name = "ROWS", value_parser = value_parser!(u32).range(1..))]
    pub(crate) rate: Option<u32>,
    /// Count them, and change nothing.
    #[arg(long)]
    pub(crate) dry_run: bool,
}

/// Where and how the page is served.
#[derive(Args)]
pub(crate) struct Served {
    /// Where it listens.
    #[arg(long, value_name = "ADDRESS", default_value = "127.0.0.1:4040")]
    pub(crate) listen: SocketAddr,
    /// Let people change messages; the table of operations names $USER.
    #[arg(long)]
    pub(crate) actions: bool,
    /// Show payloads; values whose names mean secrets stay hidden.
    #[arg(long)]
    pub(crate) payloads: bool,
    /// A name under which browsers may ask for it, besides those of this machine.
    #[arg(long, value_name = "NAME")]
    pub(crate) host: Vec<String>,
    /// There is a login in front of it, so it may listen on other addresses than those of this machine.
    #[arg(long)]
    i_have_authentication: bool,
}

impl Served {
    /// Refuses an address that other machines reach, unless there is a login.
    pub(crate) fn check(&self) -> Result<(), Failure> {
        if self.listen.ip().is_loopback() || self.i_have_authentication {
            return Ok(());
        }
        Err(Failure::usage(format!(
            "every machine that reaches {} could read messages: put authentication in front, and say --i-have-authentication",
            self.listen
        )))
    }
}

/// All reasons, of which clap names the nearest.
fn reasons() -> impl TypedValueParser<Value = Reason> {
    PossibleValuesParser::new(Reason::ALL.iter().map(|reason| reason.as_str()))
        .try_map(|word| Reason::parse(&word).ok_or("it is no reason"))
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    use super::*;

    #[test]
    fn the_flags_of_no_command_contradict_each_other() {
        Arguments::command().debug_assert();
    }

    #[test]
    fn flags_of_changes_that_contradict_each_other_are_refused() {
        let is_read = |args: &str| {
            let words = ["idem", "dead"].into_iter().chain(args.split(' '));
            Arguments::try_parse_from(words).is_ok()
        };
        for good in ["replay 1 2", "replay --handler a", "replay --all", "replay 1 --as k", "discard --key k --yes"] {
            assert!(is_read(good), "{good}");
        }
        for bad in [
            "discard 1",
            "replay 1 --all",
            "replay --reason exausted",
            "replay 1 --as k --force",
            "replay --all --rate 0",
            "replay --since whenever",
            // An empty text is in each error: a variable that is not set would mean all.
            "replay --error=",
            "discard --payload= --yes",
        ] {
            assert!(!is_read(bad), "{bad}");
        }
    }

    #[test]
    fn a_page_for_other_machines_needs_authentication() {
        let is_served = |args: &str| {
            let arguments = Arguments::try_parse_from(["idem", "page"].into_iter().chain(args.split(' '))).unwrap();
            matches!(arguments.command, Command::Page(page) if page.check().is_ok())
        };
        assert!(is_served("--listen [::1]:0") && is_served("--listen 0.0.0.0:4040 --i-have-authentication"));
        assert!(!is_served("--listen 0.0.0.0:4040") && !is_served("--listen 192.168.1.7:80 --actions"));
    }
}
