//! What somebody on call waits for, over millions of rows: answers of the operator, of the command and of its page, and replays. And
//! how often a process writes its rows of the table of workers.

use std::collections::BTreeSet;
use std::fmt;
use std::ops::ControlFlow;
use std::process::Stdio;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use idem::operator::{Asked, Bulk, Count, Filter, Operator as OnCall};
use idem::{Postgres, Worker, Workers};
use sqlx::{AssertSqlSafe, Connection, PgConnection};
use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::net::TcpStream;
use tokio::process::{Child, Command};
use tokio::time::sleep;
use uuid::Uuid;

use crate::machine::{describe, load};
use crate::message::{Claims, order_paid};
use crate::options::Operator;
use crate::queue::{Deliveries, Queue};
use crate::samples::{median, range};
use crate::tables::{Table, run};

const SCHEMA: &str = "idem_bench_operator";

/// The dead letters of each replay that is measured.
const REPLAYED: u64 = 20_000;

/// Seven of ten rows are dead, of forty causes, each of one of five handlers. The names of the causes have letters instead of digits,
/// which are not compared when causes are counted.
const ROWS: &str = "
    TRUNCATE {schema}.inbox_messages, {schema}.operations, {schema}.workers;
    INSERT INTO {schema}.handlers (consumer, name, retention)
        SELECT 'bench', 'handler_' || n, '720 hours' FROM generate_series(0, 4) AS n ON CONFLICT DO NOTHING;
    INSERT INTO {schema}.inbox_messages (handler_id, key, fingerprint, envelope, payload, run_at, state, died_at, reason, attempts, error)
        SELECT h.id, convert_to('row-' || n, 'UTF8'), decode(md5('row-' || n), 'hex'), '{\"source\":\"orders\",\"headers\":[]}',
            convert_to('{\"event_id\":\"row-' || n || '\",\"order_id\":' || n || '}', 'UTF8'), now() + interval '1 day',
            CASE WHEN dead THEN 'dead' ELSE 'scheduled' END, CASE WHEN dead THEN now() - interval '1 minute' END,
            CASE WHEN dead THEN 'exhausted' END, CASE WHEN dead THEN 5 ELSE 1 END,
            'cause ' || translate((n / 10 % 40)::text, '0123456789', 'abcdefghij') || E': the bank refuses order ' || n || E'\\nat pay.rs'
        FROM generate_series(1, {rows}) AS n CROSS JOIN LATERAL (SELECT n % 10 < 7 AS dead) AS d
            JOIN {schema}.handlers AS h ON h.consumer = 'bench' AND h.name = 'handler_' || n / 10 % 5;
    INSERT INTO {schema}.processed_messages (handler_id, key, fingerprint)
        SELECT handler_id, key, fingerprint FROM {schema}.inbox_messages ON CONFLICT DO NOTHING;
    INSERT INTO {schema}.workers (instance, kind, name, host, pid, version, started_at, report)
        SELECT gen_random_uuid(), 'worker', 'bench', 'host-' || n, n, '1.0.0', now(), json_build_object(
            'processed', array_fill(100, ARRAY[60]), 'duplicates', array_fill(3, ARRAY[60]), 'failed', array_fill(1, ARRAY[60]),
            'parked', 0, 'blocked', 0, 'blocked_for', NULL, 'paused', NULL, 'window', NULL, 'unlimited', false)
        FROM generate_series(1, 50) AS n";

/// Measures and prints each line beside its goal. Returns 0 if all are reached, 1 if one is not.
pub(crate) async fn measure(url: &str, options: &Operator) -> Result<u8> {
    let mut conn = PgConnection::connect(url).await?;
    let table = Table::kept(&mut conn, url, SCHEMA, options.claims).await?;
    eprintln!("filling {SCHEMA}.inbox_messages");
    run(&mut conn, ROWS.replace("{schema}", SCHEMA).replace("{rows}", &options.rows.to_string())).await?;
    run(&mut conn, format!("VACUUM (ANALYZE) {SCHEMA}.inbox_messages")).await?;

    println!("command     cargo xtask bench operator (release build)\n{}", describe(&mut conn).await?);
    println!("tables      {} claims, {} rows, 7 of 10 dead\n", options.claims, options.rows);
    println!("{:48} {:>16} {:>9} {:>18} {:>9}", "", "goal", "median", "lowest to highest", "first");
    let mut lines = answers(url, options.rounds, &mut conn, &table.claims).await?;
    lines.extend(programs(url, options.rounds).await?);
    lines.extend(replays(url).await?);
    lines.push(beats(url, options.seconds, &mut conn).await?);
    lines.iter().for_each(|line| println!("{line}"));
    println!("\nload        {} at the end", load());
    Ok(u8::from(!lines.iter().all(Line::is_reached)))
}

/// The questions of the module.
async fn answers(url: &str, rounds: u64, conn: &mut PgConnection, claims: &Claims) -> Result<Vec<Line>> {
    let store = Postgres::options(url).schema(SCHEMA).for_operator().connect().await?;
    let operator = OnCall::new(&store);
    let mut keys = Vec::new();
    for _ in 0..=rounds {
        keys.push(some_key(conn, claims).await?);
    }
    let why = timed(rounds, async || {
        let key = keys.pop().context("there is no further key")?;
        operator.why(&Asked::new("bench/order_paid", key)).await?;
        Ok(())
    });
    let why = Line::millis("why, of a processed message", 20.0, why.await?);
    let status = timed(rounds, async || {
        operator.status(Count::AtLeast).await?;
        Ok(())
    });
    let status = Line::millis("status", 100.0, status.await?);
    let groups = timed(rounds, async || {
        operator.groups(&Filter::default(), Count::AtLeast).await?;
        Ok(())
    });
    let groups = Line::millis("dead group", 100.0, groups.await?);
    Ok(vec![why, status, groups])
}

/// Returns the key of a claim, as an operator writes it.
async fn some_key(conn: &mut PgConnection, Claims { table, handler }: &Claims) -> Result<String> {
    let text = format!(
        "SELECT encode(key, 'hex')::uuid::text FROM {table} WHERE handler_id = $1 AND key > $2 ORDER BY key LIMIT 1"
    );
    let above = Uuid::new_v4();
    let found = sqlx::query_scalar(AssertSqlSafe(text)).bind(handler).bind(&above.as_bytes()[..]).fetch_one(conn);
    found.await.context("no claim has a greater key: there are too few claims")
}

/// The command, from its start to its end, and the first page that it serves.
async fn programs(url: &str, rounds: u64) -> Result<Vec<Line>> {
    let page = Page::start(url).await?;
    let overview = timed(rounds, async || page.get("/").await).await?;
    let version = timed(rounds, async || ended(idem(url)?.arg("--version")).await).await?;
    let status = timed(rounds, async || ended(idem(url)?.arg("status")).await).await?;
    Ok(vec![
        Line::millis("overview of the page", 100.0, overview),
        Line::millis("idem --version, the process", 50.0, version),
        Line::millis("idem status, the process", 150.0, status),
    ])
}

/// Many dead letters of a handler, and all of a cause, which are an eighth of those of their handler.
async fn replays(url: &str) -> Result<[Line; 2]> {
    let store = Postgres::options(url).schema(SCHEMA).for_operator().connect().await?;
    let operator = OnCall::new(&store).by("bench");
    let replay = async |filter: Filter| {
        let (bulk, began) = (Bulk { limit: Some(REPLAYED), ..Bulk::default() }, Instant::now());
        let done = operator.replay_all(&filter, bulk, |_| ControlFlow::Continue(())).await?;
        ensure!(done.due > 0, "nothing was replayed: {done:?}");
        anyhow::Ok(done.due as f64 / began.elapsed().as_secs_f64())
    };
    let (mut by_handler, mut by_error) = (Vec::new(), Vec::new());
    for handler in ["bench/handler_0", "bench/handler_1", "bench/handler_2"] {
        by_handler.push(replay(Filter::default().handler(handler)).await?);
    }
    for cause in ["cause d:", "cause i:", "cause bd:"] {
        by_error.push(replay(Filter::default().handler("bench/handler_3").error(cause)).await?);
    }
    let line = |what, values| Line { what, goal: Goal::AtLeast(5_000.0), first: None, values };
    Ok([line("replays a second, of a handler", by_handler), line("replays a second, by text of the error", by_error)])
}

/// How many statements write the rows of a process with two workers. Each has its own time, and gives it to all of its rows.
async fn beats(url: &str, seconds: f64, conn: &mut PgConnection) -> Result<Line> {
    let store = Postgres::options(url).schema(SCHEMA).connect().await?;
    let idle = || Deliveries::of(&Queue::new(Vec::new()));
    let worker = |name: &str| Worker::new(name, store.clone(), idle()).handler::<order_paid>();
    let mut counted = Ok(0);
    let count = async { counted = written(conn, seconds).await };
    Workers::new().add(worker("beats-1")).add(worker("beats-2")).run_until(count).await?;
    let values = vec![counted? as f64 / seconds];
    Ok(Line { what: "statements a second for the table of workers", goal: Goal::AtMost(0.5), first: None, values })
}

async fn written(conn: &mut PgConnection, seconds: f64) -> Result<usize> {
    let text = format!("SELECT DISTINCT seen_at::text FROM {SCHEMA}.workers WHERE name LIKE 'beats-%'");
    let (mut seen, until) = (BTreeSet::<String>::new(), Instant::now() + Duration::from_secs_f64(seconds));
    while Instant::now() < until {
        seen.extend(sqlx::query_scalar::<_, String>(AssertSqlSafe(text.clone())).fetch_all(&mut *conn).await?);
        sleep(Duration::from_millis(100)).await;
    }
    ensure!(!seen.is_empty(), "the workers have written no row");
    Ok(seen.len())
}

/// Returns the milliseconds of each run: one that warms up, and the rounds.
async fn timed(rounds: u64, mut work: impl AsyncFnMut() -> Result<()>) -> Result<Vec<f64>> {
    let mut millis = Vec::new();
    for _ in 0..=rounds {
        let began = Instant::now();
        work().await?;
        millis.push(began.elapsed().as_secs_f64() * 1e3);
    }
    Ok(millis)
}

/// The command, which `cargo xtask bench operator` has built beside this program.
fn idem(url: &str) -> Result<Command> {
    let mut command = Command::new(std::env::current_exe()?.with_file_name("idem"));
    command.env("DATABASE_URL", url).env("IDEM_SCHEMA", SCHEMA).stdin(Stdio::null()).kill_on_drop(true);
    Ok(command)
}

/// Runs the command to its end. 10 is the answer that a person is needed.
async fn ended(command: &mut Command) -> Result<()> {
    let out = command.output().await.context("cannot run `idem`")?;
    let error = String::from_utf8_lossy(&out.stderr);
    ensure!(matches!(out.status.code(), Some(0 | 10)), "`idem` failed ({}): {error}", out.status);
    Ok(())
}

/// The page, as the command serves it.
struct Page {
    address: String,
    _process: Child,
}

impl Page {
    async fn start(url: &str) -> Result<Self> {
        let mut process = idem(url)?.args(["page", "--listen", "127.0.0.1:0"]).stdout(Stdio::piped()).spawn()?;
        let out = process.stdout.take().context("`idem page` has no output")?;
        let line = BufReader::new(out).lines().next_line().await?.context("`idem page` has ended")?;
        let (_, address) = line.split_once("http://").with_context(|| format!("there is no address in {line:?}"))?;
        Ok(Self { address: address.trim_end_matches('/').to_owned(), _process: process })
    }

    async fn get(&self, path: &str) -> Result<()> {
        let mut stream = TcpStream::connect(&self.address).await?;
        let request = format!("GET {path} HTTP/1.1\r\nHost: {}\r\nConnection: close\r\n\r\n", self.address);
        stream.write_all(request.as_bytes()).await?;
        let mut answer = String::new();
        stream.read_to_string(&mut answer).await?;
        let status = answer.lines().next().unwrap_or_default();
        ensure!(status.ends_with("200 OK"), "the page answers {status:?}");
        Ok(())
    }
}

#[derive(Debug, Clone, Copy)]
enum Goal {
    AtMost(f64),
    AtLeast(f64),
}

/// What was measured, beside its goal. The median is judged.
#[derive(Debug)]
struct Line {
    what: &'static str,
    goal: Goal,
    /// The run that warmed up, which is not among the values.
    first: Option<f64>,
    values: Vec<f64>,
}

impl Line {
    /// Milliseconds, of which the first run warmed up.
    fn millis(what: &'static str, most: f64, mut values: Vec<f64>) -> Self {
        let first = (values.len() > 1).then(|| values.remove(0));
        Self { what, goal: Goal::AtMost(most), first, values }
    }

    /// Returns whether the goal is reached. NaN is a miss.
    fn is_reached(&self) -> bool {
        let median = median(self.values.clone());
        match self.goal {
            Goal::AtMost(most) => median <= most,
            Goal::AtLeast(least) => median >= least,
        }
    }
}

impl fmt::Display for Line {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let goal = match self.goal {
            Goal::AtMost(most) => format!("at most {most}"),
            Goal::AtLeast(least) => format!("at least {least}"),
        };
        let (low, high) = range(self.values.iter().copied());
        let (median, values) = (median(self.values.clone()), format!("{low:.2} to {high:.2}"));
        let first = self.first.map_or(String::new(), |first| format!("{first:.2}"));
        let verdict = if self.is_reached() { "reached" } else { "MISSED" };
        write!(f, "{:48} {goal:>16} {median:>9.2} {values:>18} {first:>9}  {verdict}", self.what)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_median_is_judged_and_the_first_run_is_not() {
        assert!(Line::millis("answers", 20.0, vec![900.0, 19.0, 50.0, 18.0]).is_reached());
        assert!(!Line::millis("answers", 20.0, vec![1.0, 21.0, 22.0, 3.0]).is_reached());
        let rates = |values| Line { what: "rates", goal: Goal::AtLeast(5.0), first: None, values };
        assert!(rates(vec![4.0, 5.0, 6.0]).is_reached());
        assert!(!rates(vec![4.0, 4.9, 6.0]).is_reached() && !rates(Vec::new()).is_reached());
    }
}
