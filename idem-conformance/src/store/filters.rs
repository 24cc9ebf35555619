//! Which rows the filter of an operator means: in windows, counted, and grouped by their cause.

use std::collections::BTreeSet;
use std::time::{Duration, SystemTime};

use idem_core::operator::{Asked, Count, Filter, Found, Operator, Page, Time};
use idem_core::store::{HandlerId, Identity, InboxRows, NewRow};
use idem_core::{Delivery, Reason};

use super::stage::{Stage, committed, register};
use super::world::World;

/// More than a count goes to, and more than the rows of one window.
const MANY: usize = 10_050;

/// A dead letter without a claim.
pub(super) struct Dead<'a> {
    handler: HandlerId,
    key: String,
    reason: Reason,
    error: &'a str,
    payload: &'a str,
}

impl<'a> Dead<'a> {
    pub(super) fn new(handler: HandlerId, key: impl Into<String>, error: &'a str) -> Self {
        Self { handler, key: key.into(), reason: Reason::Exhausted, error, payload: "hay" }
    }

    pub(super) fn payload(self, payload: &'a str) -> Self {
        Self { payload, ..self }
    }

    pub(super) fn reason(self, reason: Reason) -> Self {
        Self { reason, ..self }
    }
}

/// Inserts dead letters of one handler, in the order of their keys.
pub(super) async fn insert<W: World>(stage: &Stage<W>, dead: &[Dead<'_>]) {
    let message = |dead: &Dead<'_>| {
        let identity = Identity { handler: dead.handler, ..stage.message(&dead.key, dead.payload) };
        (identity, Delivery::new("orders", dead.payload.to_owned()))
    };
    let messages: Vec<_> = dead.iter().map(message).collect();
    let mut rows = Vec::new();
    for ((identity, delivery), dead) in messages.iter().zip(dead) {
        rows.push(NewRow::new(identity, delivery, Err(dead.reason)).with_attempts(1, dead.error));
    }
    let mut txn = stage.begin().await;
    stage.store.insert(&mut txn, &rows).await.unwrap();
    committed(stage.commit(txn).await);
}

/// Inserts that many dead letters with this error.
pub(super) async fn insert_many<W: World>(stage: &Stage<W>, handler: HandlerId, many: usize, error: &str) {
    let dead: Vec<_> = (0..many).map(|n| Dead::new(handler, format!("{n:05}"), error)).collect();
    insert(stage, &dead).await;
}

/// The operator of the consumer `billing`.
pub(super) fn operator<W: World>(stage: &Stage<W>) -> Operator<W::Store> {
    Operator::new(&stage.store).consumer("billing").by("anna")
}

fn keys(found: &Found) -> Vec<String> {
    found.rows.iter().map(|row| row.identity.key.to_string()).collect()
}

/// Each field leaves fewer rows, alone and beside another one.
pub async fn ids_respect_each_filter<W: World>(world: W) {
    let stage = Stage::new(world).await;
    let shipped = register(&stage.store, "billing", "order_shipped").await;
    let elsewhere = register(&stage.store, "shipping", "order_paid").await;
    let paid = stage.handler;
    stage.schedule("waits").await;
    let of = |handler, key: &str, reason, error, payload| Dead { handler, key: key.to_owned(), reason, error, payload };
    for dead in [
        of(paid, "a", Reason::Permanent, "timeout after 30 s", r#"{"order_id":7}"#),
        of(paid, "b", Reason::Exhausted, "relation \"orders\" does not exist\nat line 7", r#"{"order_id":8}"#),
        of(shipped, "c", Reason::Permanent, "Timeout: 100%", r#"{"order_id":77}"#),
        of(elsewhere, "d", Reason::Permanent, "timeout after 30 s", r#"{"order_id":7}"#),
    ] {
        insert(&stage, &[dead]).await;
    }
    let (inbox, earlier) = (stage.world.own("inbox_messages"), W::earlier("died_at", Duration::from_secs(3600)));
    stage.world.run(&format!("UPDATE {inbox} SET died_at = {earlier} WHERE error = 'timeout after 30 s'")).await;
    let all = operator(&stage).list(&Filter::new(), Page::default()).await.unwrap();
    let ids: Vec<i64> = all.rows.iter().map(|row| row.id).collect();
    let half = Some(Time(SystemTime::now() - Duration::from_secs(1800)));
    let within = |since, until| {
        let mut filter = Filter::new();
        (filter.since, filter.until) = (since, until);
        filter
    };
    let by_id = |ids: &[i64]| {
        let mut filter = Filter::new();
        filter.ids = ids.to_vec();
        filter
    };

    let new = Filter::new;
    let table: [(Filter, &[&str]); 21] = [
        (new(), &["c", "b", "a"]),
        (new().scheduled(), &["waits"]),
        (new().handler("order_paid"), &["b", "a"]),
        (new().handler("nobody"), &[]),
        (new().reason(Reason::Permanent), &["c", "a"]),
        (new().key("b"), &["b"]),
        (new().key("d"), &[]),
        // Contained, in its case, in each line of it, and without wildcards.
        (new().error("timeout"), &["a"]),
        (new().error("line 7"), &["b"]),
        (new().error("\"orders\""), &["b"]),
        (new().error("t%s"), &[]),
        (new().error("100%"), &["c"]),
        (payload("\"order_id\":7"), &["c", "a"]),
        (payload("\"order_id\":7}"), &["a"]),
        (within(half, None), &["c", "b"]),
        (within(None, half), &["a"]),
        (by_id(&[ids[2], ids[0]]), &["c", "a"]),
        (by_id(&[ids[2] + 1000]), &[]),
        (new().handler("order_paid").reason(Reason::Permanent), &["a"]),
        (within(half, None).reason(Reason::Permanent), &["c"]),
        (payload("77").error("imeout"), &["c"]),
    ];
    for (filter, expected) in table {
        let found = operator(&stage).list(&filter, Page::default()).await.unwrap();
        assert_eq!(
            (keys(&found), found.next),
            (expected.iter().map(ToString::to_string).collect(), None),
            "{filter:?}"
        );
    }
    // Without a consumer, those of all.
    let found = Operator::new(&stage.store).list(&payload("\"order_id\":7}"), Page::default()).await.unwrap();
    assert_eq!(keys(&found), ["d", "a"]);
}

/// The dead letters with this text in their payloads.
pub(super) fn payload(text: &str) -> Filter {
    let mut filter = Filter::new();
    filter.payload = Some(text.to_owned());
    filter
}

/// All pages of a filter: the keys, and how many rows were looked at.
async fn walk<W: World>(stage: &Stage<W>, filter: &Filter, rows: u32) -> (Vec<String>, u64) {
    let (mut page, mut all, mut looked) = (Page::new(rows), Vec::new(), 0);
    for _ in 0..1000 {
        let found = operator(stage).list(filter, page).await.unwrap();
        assert!(found.rows.len() <= rows as usize);
        all.extend(keys(&found));
        looked += found.looked;
        match found.next {
            Some(next) => page = page.before(next),
            None => return (all, looked),
        }
    }
    panic!("the pages do not end: {} rows", all.len());
}

/// The rows of a call are limited, however few match, and the call says how far it has come.
pub async fn a_text_filter_looks_at_a_window_and_says_so<W: World>(world: W) {
    let stage = Stage::new(world).await;
    let needle = Dead::new(stage.handler, "first", "it failed").payload("hay and a needle");
    insert(&stage, &[needle]).await;
    insert_many(&stage, stage.handler, MANY, "it failed").await;
    let filter = payload("needle");
    let found = operator(&stage).list(&filter, Page::new(10)).await.unwrap();
    assert!(found.rows.is_empty() && found.looked < MANY as u64, "{} were looked at", found.looked);
    let next = found.next.expect("it has not looked at all");
    let rest = operator(&stage).list(&filter, Page::new(10).before(next)).await.unwrap();
    assert_eq!((keys(&rest), rest.next), (vec!["first".to_owned()], None));
    assert_eq!(found.looked + rest.looked, MANY as u64 + 1, "each row is looked at once");
}

/// Pages that are smaller than a window, of two handlers whose rows alternate for a while: each row comes once, newest first.
pub async fn a_window_ends<W: World>(world: W) {
    let stage = Stage::new(world).await;
    let rare = register(&stage.store, "billing", "rare").await;
    for n in 0..40 {
        for (handler, key) in [(rare, format!("rare {n:02}")), (stage.handler, format!("needle {n:02}"))] {
            insert(&stage, &[Dead::new(handler, key, "").payload("needle")]).await;
        }
    }
    insert_many(&stage, stage.handler, 2500, "").await;
    let newest: Vec<String> = (0..40).rev().flat_map(|n| [format!("needle {n:02}"), format!("rare {n:02}")]).collect();
    for rows in [1, 7, 80, 1000] {
        let (found, _) = walk(&stage, &payload("needle"), rows).await;
        assert_eq!(found, newest, "in pages of {rows}");
    }
    let (all, looked) = walk(&stage, &Filter::new(), 700).await;
    assert_eq!((all.len(), all.iter().collect::<BTreeSet<_>>().len()), (2580, 2580));
    assert!(looked >= 2580);
}

/// A page shows a count at once, however many rows there are; who wants to know it exactly, waits.
pub async fn counts_stop_at_the_limit<W: World>(world: W) {
    let stage = Stage::new(world).await;
    insert_many(&stage, stage.handler, MANY, "").await;
    stage.schedule("waits").await;
    for (count, rows, at_least) in [(Count::AtLeast, 10_000, true), (Count::Exact, MANY as u64, false)] {
        let status = operator(&stage).status(count).await.unwrap();
        let [billing] = &status.consumers[..] else { panic!("{status:?}") };
        assert_eq!((billing.consumer.as_str(), billing.dead.rows, billing.dead.at_least), ("billing", rows, at_least));
        assert_eq!((billing.scheduled.rows, billing.scheduled.at_least), (1, false));
        assert!(billing.oldest_due.is_some(), "it is due now");
        assert!(!status.needs().is_empty(), "dead letters need a person");
    }
}

/// Exactly as many as the limit are no "at least".
pub async fn a_count_at_the_limit_is_exact<W: World>(world: W) {
    let stage = Stage::new(world).await;
    insert_many(&stage, stage.handler, 10_000, "").await;
    let status = operator(&stage).status(Count::AtLeast).await.unwrap();
    let dead = &status.consumers[0].dead;
    assert_eq!((dead.rows, dead.at_least, dead.to_string()), (10_000, false, "10,000".to_owned()));
}

/// One handler with more dead letters than are looked at hides no other one.
pub async fn groups_show_each_handler<W: World>(world: W) {
    let stage = Stage::new(world).await;
    let rare = register(&stage.store, "billing", "rare").await;
    let elsewhere = register(&stage.store, "shipping", "order_paid").await;
    insert(&stage, &[Dead::new(rare, "rare", "the bank is closed")]).await;
    insert(&stage, &[Dead::new(elsewhere, "elsewhere", "the ship has sunk")]).await;
    insert_many(&stage, stage.handler, MANY, "timeout\nwith a second line").await;
    let groups = operator(&stage).groups(&Filter::new(), Count::AtLeast).await.unwrap();
    let [loud, quiet] = &groups.groups[..] else { panic!("{groups:?}") };
    assert_eq!((loud.handler.as_str(), loud.line.as_str()), ("order_paid", "timeout"), "the first line");
    assert!(loud.count.rows < MANY as u64 && groups.looked.at_least, "{groups:?}");
    assert_eq!((quiet.consumer.as_str(), quiet.handler.as_str(), quiet.count.rows), ("billing", "rare", 1));

    let exact = operator(&stage).groups(&Filter::new(), Count::Exact).await.unwrap();
    assert_eq!((exact.groups[0].count.rows, exact.looked.at_least), (MANY as u64, false));
    let of_rare = operator(&stage).groups(&Filter::new().handler("rare"), Count::AtLeast).await.unwrap();
    assert_eq!((of_rare.groups.len(), of_rare.groups[0].line.as_str()), (1, "the bank is closed"));
}

/// Ids, numbers and times differ in each error of one cause. The filter of a group finds its rows.
pub async fn groups_merge_numbers<W: World>(world: W) {
    let stage = Stage::new(world).await;
    let paid = stage.handler;
    let errors = [
        "order 17 was refused after 30 s",
        "order 18 was refused after 1 s",
        "order 123456 was refused after 30 s",
        "no row 9513c1b4-5c2d-4d3c-8a55-4be7d8a0b1a2",
        "no row a8098c1a-f86e-11da-bd1a-00112444be1e",
        "another cause",
    ];
    for (n, error) in errors.iter().enumerate() {
        insert(&stage, &[Dead::new(paid, n.to_string(), error)]).await;
    }
    let conflict = Dead { reason: Reason::Permanent, ..Dead::new(paid, "another reason", errors[0]) };
    insert(&stage, &[conflict]).await;
    let groups = operator(&stage).groups(&Filter::new(), Count::AtLeast).await.unwrap().groups;
    let mut counts: Vec<_> = groups.iter().map(|group| (group.count.rows, group.reason)).collect();
    counts.sort_by_key(|(rows, reason)| (*rows, reason.as_str()));
    let exhausted = Reason::Exhausted;
    assert_eq!(counts, [(1, exhausted), (1, Reason::Permanent), (2, exhausted), (3, exhausted)], "{groups:?}");
    for group in groups {
        let example = operator(&stage).show(group.example).await.unwrap().unwrap().row;
        assert!(example.error.contains(&group.line) && example.reason == Some(group.reason), "{group:?}");
        assert!(group.first.0 <= group.last.0, "{group:?}");
        let filter = Filter::new().handler("order_paid").reason(group.reason).error(group.error_filter.clone());
        let found = operator(&stage).list(&filter, Page::default()).await.unwrap();
        assert_eq!(found.rows.len() as u64, group.count.rows, "{filter:?}");
    }
}

/// Wherever it is shown: in a row, in a group, in the answer to `why`, and where it is written down.
pub async fn an_error_with_nul_quotes_and_html_survives_json<W: World>(world: W) {
    let stage = Stage::new(world).await;
    let error =
        "nul \0, \"quotes\", 'more', back\\slash, <b>&amp;, \u{1b}[31m, \u{202e}, \u{e4}\u{1f4e6}\t\nsecond line";
    let identity = stage.id("a");
    stage.row(&identity, true, Err(Reason::Exhausted)).await;
    let delivery = Delivery::new("orders", "another");
    let other = stage.message("a", "another");
    let mut txn = stage.begin().await;
    let row = NewRow::new(&other, &delivery, Err(Reason::Permanent)).with_attempts(3, error);
    stage.store.insert(&mut txn, &[row]).await.unwrap();
    committed(stage.commit(txn).await);

    let anna = operator(&stage);
    let found = anna.list(&Filter::new().reason(Reason::Permanent), Page::default()).await.unwrap();
    let [row] = &found.rows[..] else { panic!("{found:?}") };
    // Text cannot have a NUL.
    let kept = row.error.clone();
    assert_eq!(kept, error.replace('\0', "\\0"));
    let filter = Filter::new().error("<b>&amp;, \u{1b}[31m");
    let groups = anna.groups(&filter, Count::AtLeast).await.unwrap().groups;
    assert_eq!((groups.len(), groups[0].line.as_str()), (1, kept.lines().next().unwrap()));
    let why = anna.why(&Asked::new("order_paid", "a")).await.unwrap();
    assert!(why.rows.iter().any(|shown| shown.error == kept), "{why:?}");
    anna.replay(row.id).await.unwrap();
    let why = anna.why(&Asked::new("order_paid", "a")).await.unwrap();
    assert_eq!(why.operations[0].error.as_deref(), Some(kept.as_str()));
}

/// No statement of theirs is refused by a database, and an empty one needs nobody.
pub async fn each_question_is_answered_where_nothing_is<W: World>(world: W) {
    let stage = Stage::new(world).await;
    let all = Operator::new(&stage.store);
    for count in [Count::AtLeast, Count::Exact] {
        let status = all.status(count).await.unwrap();
        assert_eq!(status.consumers.iter().map(|one| one.dead.rows + one.scheduled.rows).collect::<Vec<_>>(), [0]);
        assert!(all.groups(&Filter::new(), count).await.unwrap().groups.is_empty());
        assert!(all.outboxes(count).await.unwrap().is_empty());
    }
    for filter in [Filter::new(), Filter::new().scheduled(), payload("x").error("x").key("x")] {
        let found = all.list(&filter, Page::default()).await.unwrap();
        assert_eq!((found.rows.len(), found.looked, found.next), (0, 0, None));
    }
    assert!(all.show(7).await.unwrap().is_none());
    assert!(all.calls(Page::default()).await.unwrap().is_empty());
    assert!(all.workers().await.unwrap().is_empty());
    assert!(all.operations(None, Page::default()).await.unwrap().is_empty());
    assert_eq!(all.handlers().await.unwrap().len(), 1);
    all.doctor(None).await.unwrap();
    assert_eq!(all.prune().await.unwrap(), 0);
}
