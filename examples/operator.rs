//! An operator's command for dead letters: list, show, replay, resolve and discard. It runs no worker.
//!
//! ```sh
//! export DATABASE_URL=postgres://..
//! cargo run --example operator --features postgres -- billing list handler=order_paid reason=exhausted key=e-7
//! cargo run --example operator --features postgres -- billing show 42
//! cargo run --example operator --features postgres -- billing replay 42
//! cargo run --example operator --features postgres -- billing replay-by-force 42
//! cargo run --example operator --features postgres -- billing replay-as 42 e-7-corrected
//! cargo run --example operator --features postgres -- billing replay-all reason=exhausted
//! cargo run --example operator --features postgres -- billing discard 42
//! # With the key of its call, which `show` shows; or `call-again`, or `discard`.
//! cargo run --example operator --features postgres -- billing resolve 42 KEY '{"id":"ch_1"}'
//! ```

use idem::external::Resolution;
use idem::prelude::*;
use idem::store::{CallAnswer, Filter, Page, Replayed, Row};
use idem::{Inbox, Reason};

#[tokio::main]
async fn main() -> Result<(), BoxError> {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let [consumer, command, rest @ ..] = &args[..] else {
        return Err("say: CONSUMER list|show|replay|replay-by-force|replay-as|replay-all|discard|resolve ..".into());
    };
    // With the schema of your workers, if it is not the default, and without the right to create tables.
    let store = Postgres::options(std::env::var("DATABASE_URL")?).connections(2).verify_only().connect().await?;
    // An error if no worker has ever had this name.
    let inbox = Inbox::open(&store, consumer).await?;
    match (command.as_str(), rest) {
        ("list", filters) => list(&inbox, &filter(filters)?).await?,
        ("show", [id]) => show(&inbox.get(id.parse()?).await?.ok_or("there is no such row")?),
        ("replay", [id]) => println!("{}", shown(inbox.replay(id.parse()?).await?)),
        ("replay-by-force", [id]) => println!("{}", shown(inbox.replay_by_force(id.parse()?).await?)),
        ("replay-as", [id, key]) => println!("{}", shown(inbox.replay_as(id.parse()?, &Key::of(key)?).await?)),
        ("replay-all", filters) => println!("{:?}", inbox.replay_all(&filter(filters)?).await?),
        ("discard", [id]) => {
            println!("{}", if inbox.discard(id.parse()?).await? { "deleted" } else { "none, or one to resolve" })
        }
        ("resolve", [id, key, shown]) => {
            let resolution = match shown.as_str() {
                "call-again" => Resolution::CallAgain,
                "discard" => Resolution::Discard,
                json => Resolution::Answer(CallAnswer::new(json.to_owned())),
            };
            println!("resolved: {}", inbox.resolve(id.parse()?, key.parse()?, resolution).await?)
        }
        _ => return Err(format!("`{command}` takes other arguments, or is unknown").into()),
    }
    Ok(())
}

fn shown(replayed: Replayed) -> &'static str {
    match replayed {
        Replayed::Due => "it is due now",
        Replayed::NeedsForce => "not replayed: its effects may be there; check, then replay-by-force or discard it",
        Replayed::NeedsKey => "not replayed: another message has its key; replay-as under a new key, or discard it",
        Replayed::Unresolved => "not replayed: its call may have had an effect; look at the provider, and resolve it",
        Replayed::KeyTaken => "not replayed: another message has the new key, too",
        _ => "not replayed: there is no such dead letter",
    }
}

/// Reads `handler=..`, `reason=..` and `key=..`. A key is written as the log writes it.
fn filter(filters: &[String]) -> Result<Filter, BoxError> {
    filters.iter().try_fold(Filter::new(), |filter, text| match text.split_once('=') {
        Some(("handler", name)) => Ok(filter.handler(name)),
        Some(("key", key)) => Ok(filter.key(key)),
        Some(("reason", word)) => Reason::parse(word).map(|reason| filter.reason(reason)).ok_or_else(|| {
            let all: Vec<_> = Reason::ALL.iter().map(|reason| reason.as_str()).collect();
            format!("`{word}` is no reason: {}", all.join(", ")).into()
        }),
        _ => Err(format!("`{text}` is no filter: say handler=.., reason=.. or key=..").into()),
    })
}

/// Newest first, page by page.
async fn list(inbox: &Inbox<Postgres>, filter: &Filter) -> Result<(), BoxError> {
    let mut page = Page::new(100);
    loop {
        let rows = inbox.list(filter, page).await?;
        for row in &rows {
            let reason = row.reason.map_or("", Reason::as_str);
            println!("{}\t{}\t{}\t{reason}\t{}", row.id, row.handler, row.identity.key, row.error);
        }
        let Some(last) = rows.last() else { return Ok(()) };
        page = Page::new(100).before(last.id);
    }
}

fn show(row: &Row) {
    let delivery = &row.delivery;
    println!("handler   {}\nkey       {}\nattempts  {}", row.handler, row.identity.key, row.attempts);
    println!("reason    {}\nerror     {}", row.reason.map_or("", Reason::as_str), row.error);
    println!("source    {}\ntype      {}", delivery.source(), delivery.event_type().unwrap_or_default());
    row.provider_key.iter().for_each(|key| println!("call      {key}, first at {:?}: {:?}", row.called_at, row.answer));
    println!("headers   {:?}\npayload   {}", delivery.headers(), String::from_utf8_lossy(delivery.payload()));
}
