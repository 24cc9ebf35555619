//! What is not about messages: tables, roles, old claims, the page.

use std::io;

use idem_core::operator::{self, By};
use idem_core::{Postgres, Sqlite, Store};
use serde_json::json;
use tokio::net::TcpListener;
use tokio::signal::ctrl_c;

use crate::args::{Globals, Served};
use crate::connect::Session;
use crate::connect::{Target, unusable};
use crate::output::{Exit, Failure, Output, facts};

pub(crate) fn roles(out: Output, globals: &Globals) -> Exit {
    let sql = operator::roles(&globals.schema);
    out.answer(&json!({ "sql": sql }), |_| sql.clone())
}

/// Prints the SQL of the tables, or creates what is missing of them.
pub(crate) async fn migrate(out: Output, target: Target, print: bool) -> Exit {
    let migrations = match &target {
        Target::Postgres(_) => Postgres::migrations(),
        Target::Sqlite(_) => Sqlite::migrations(),
    };
    if print {
        let sql: String = migrations.iter().map(|file| format!("-- {}\n{}\n", file.name, file.sql)).collect();
        return out.answer(&json!({ "sql": sql }), |_| sql.clone());
    }
    match target {
        Target::Postgres(options) => drop(options.connect().await.map_err(unusable)?),
        Target::Sqlite(options) => drop(options.connect().await.map_err(unusable)?),
    }
    let names: Vec<_> = migrations.iter().map(|file| file.name).collect();
    out.answer(&json!({ "migrations": names }), facts)
}

pub(crate) async fn prune<S: Store>(on: &Session<S>) -> Exit {
    on.out.answer(&json!({ "claims": on.operator.prune().await? }), facts)
}

/// Serves the page until Ctrl-C.
pub(crate) async fn page<S: Store>(on: &Session<S>, store: &S, globals: &Globals, args: Served) -> Exit {
    args.check()?;
    let mut page = idem_page::router(store).hosts(args.host);
    if let Some(consumer) = &globals.consumer {
        page = page.consumer(consumer);
    }
    if args.payloads {
        page = page.payloads();
    }
    if args.actions {
        page = page.actions(|_| Some(By::user().actor));
    }
    let taken = |error: io::Error| Failure::usage(format!("cannot listen on {}: {error}", args.listen));
    let listener = TcpListener::bind(args.listen).await.map_err(taken)?;
    let address = format!("http://{}", listener.local_addr().map_err(Failure::io)?);
    on.out.answer(&json!({ "address": address }), |_| address.clone())?;
    let ended = async { _ = ctrl_c().await };
    axum::serve(listener, page.into_router()).with_graceful_shutdown(ended).await.map_err(Failure::io)?;
    Ok(0)
}
