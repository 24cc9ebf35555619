//! Each command asks the operator, prints the answer, and returns the exit code.

use idem_core::operator::{Count, Operator, Page};
use idem_core::{Error, Store};

use crate::args::{Arguments, Calls, Command, Dead, Globals, Outbox};
use crate::connect::{Session, Target, unusable};
use crate::output::{Exit, Output};
use crate::{changes, reads, setup};

/// Connects, if the command needs a database, and runs it.
pub(crate) async fn run(Arguments { globals, command }: Arguments) -> Exit {
    let out = Output::new(globals.json);
    let target = match command {
        Command::Roles { print: true } => return setup::roles(out, &globals),
        Command::Migrate { print } => return setup::migrate(out, Target::new(&globals, true)?, print).await,
        _ => Target::new(&globals, false)?,
    };
    match target {
        Target::Postgres(options) => run_on(options.for_operator().connect().await, &globals, command).await,
        Target::Sqlite(options) => run_on(options.for_operator().connect().await, &globals, command).await,
    }
}

/// Runs the command on a store, if it is connected.
async fn run_on<S: Store>(connected: Result<S, Error>, globals: &Globals, command: Command) -> Exit {
    let store = connected.map_err(unusable)?;
    let operator = match &globals.consumer {
        Some(consumer) => Operator::of(&store, consumer).await?,
        None => Operator::new(&store),
    };
    let on = &Session { operator, out: Output::new(globals.json) };
    match command {
        Command::Status { exact } => reads::status(on, exact).await,
        Command::Why(args) => reads::why(on, args).await,
        Command::Dead(Dead::List(list)) => reads::list(on, &list, false).await,
        Command::Dead(Dead::Group { filters, exact }) => reads::group(on, &filters, exact).await,
        Command::Dead(Dead::Show { id, raw }) => reads::show(on, id, raw).await,
        Command::Dead(Dead::Replay { which, new_key: Some(key), .. }) => changes::replay_as(on, &which, &key).await,
        Command::Dead(Dead::Replay { which, force, new_keys, .. }) => {
            changes::replay(on, &which, force, new_keys).await
        }
        Command::Dead(Dead::Discard { which, yes }) => changes::discard(on, &which, yes).await,
        Command::Scheduled(list) => reads::list(on, &list, true).await,
        Command::Outbox(Outbox::List { name: None, .. }) => {
            on.rows(reads::OUTBOXES, &on.operator.outboxes(Count::AtLeast).await?, "there is no outbox")
        }
        Command::Outbox(Outbox::List { name: Some(name), waiting }) => reads::outgoing(on, &name, waiting).await,
        Command::Outbox(Outbox::Replay(which)) => changes::outgoing(on, &which, true).await,
        Command::Outbox(Outbox::Discard { which, yes: true }) => changes::outgoing(on, &which, false).await,
        Command::Calls { resolve: None } => {
            on.rows(reads::CALLS, &on.operator.calls(Page::default()).await?, "no call is in doubt or unresolved")
        }
        Command::Calls { resolve: Some(Calls::Resolve { id, key, found }) } => {
            changes::resolve(on, id, key, found).await
        }
        Command::Forget { handler, key, yes: true } => changes::forget(on, &handler, &key).await,
        Command::Workers => {
            on.rows(reads::WORKERS, &on.operator.workers().await?, "no worker was here in the last day")
        }
        Command::Operations(paged) => reads::operations(on, &paged).await,
        Command::Prune => setup::prune(on).await,
        Command::Doctor => reads::doctor(on, globals).await,
        Command::Page(page) => setup::page(on, &store, globals, page).await,
        // They are done without an operator, or are no commands without --yes.
        Command::Migrate { .. } | Command::Roles { .. } | Command::Outbox(_) | Command::Forget { .. } => Ok(0),
    }
}
