//! The keys of calls, and what goes with them.

use std::time::{Duration, SystemTime};

use idem_core::store::{
    CallResult, Consumers, FetchFor, HandlerId, HandlerMark, InboxRows, LeftCalls, NewRow, Resolution, RowKind,
    RowResult,
};
use idem_core::{Delivery, Reason};
use uuid::Uuid;

use super::calling::{HOUR, answer, caller, failed, fetch_row, fetched, resolve, store, take_for};
use super::stage::{LEASE, Stage, committed, register};
use super::world::{Setup, World};

/// A call that is repeated has the key and the time of the first one.
pub async fn a_repeated_call_keeps_its_key<W: World>(world: W) {
    let stage = Stage::new(world).await;
    let first = fetched(&stage).await;
    stage.rows_earlier(HOUR).await;
    let second = fetch_row(&stage).await;
    assert_eq!((second.provider_key, second.called_at, second.calls), (first.provider_key, first.called_at, Some(2)));
    assert_ne!(second.locked_by, first.locked_by);
    // The former holder writes nothing, unless it has an answer.
    for result in [failed(Ok(HOUR)), CallResult::snoozed(HOUR)] {
        assert!(!stage.store.record_result(&first, &RowResult::Called(result.clone())).await.unwrap());
    }
    assert_eq!(stage.store.date_call(&first, LEASE).await.unwrap(), None);
    assert_eq!(stage.one_scheduled().await.locked_by, second.locked_by);
    assert!(stage.store.record_result(&second, &RowResult::Called(failed(Ok(Duration::ZERO)))).await.unwrap());
    let third = fetch_row(&stage).await;
    assert_eq!((third.provider_key, third.called_at, third.calls), (first.provider_key, first.called_at, Some(1)));
    assert_eq!((third.attempts, third.error.as_str()), (1, "it failed"));
}

/// The database was away for longer than a lease, and another worker has begun to call meanwhile, also after the provider has said
/// that it knows no call. Its call has no other effect.
pub async fn an_answer_that_comes_after_the_lease_is_kept_for_its_key<W: World>(world: W) {
    let stage = Stage::new(world).await;
    let first = fetched(&stage).await;
    assert!(stage.store.record_result(&first, &RowResult::Called(failed(Err(Reason::Exhausted)))).await.unwrap());
    assert!(resolve(&stage, &first, &Resolution::CallAgain).await);
    let second = fetch_row(&stage).await;
    assert!(
        !stage.store.record_result(&first, &RowResult::Called(CallResult::answered(answer()))).await.unwrap(),
        "it has another key"
    );
    stage.rows_earlier(HOUR).await;
    let third = fetch_row(&stage).await;
    assert!(stage.store.date_call(&third, LEASE).await.unwrap().is_some());
    assert!(stage.store.record_result(&second, &RowResult::Called(CallResult::answered(answer()))).await.unwrap());
    assert!(!stage.store.record_result(&third, &RowResult::Called(failed(Ok(HOUR)))).await.unwrap());
    assert_eq!(stage.fetch_row(RowKind::Ordinary).await.answer, Some(answer()));
}

/// It is a new row, because its handler has committed, and it says whose answer it has.
pub async fn a_dead_letter_that_is_inserted_with_an_answer_keeps_its_call<W: World>(world: W) {
    let stage = Stage::new(world).await;
    let (identity, delivery, answer) = (stage.id("a"), Delivery::new("orders", "payload"), answer());
    let called_at = SystemTime::UNIX_EPOCH + Duration::from_millis(1_800_000_000_123);
    let mut row = NewRow::new(&identity, &delivery, Err(Reason::Committed));
    (row.answer, row.call_name, row.called_at) = (Some(&answer), Some("charge"), Some(called_at));
    let mut txn = stage.begin().await;
    stage.store.insert(&mut txn, &[row]).await.unwrap();
    committed(stage.commit(txn).await);
    let dead = stage.one_dead().await;
    assert_eq!((dead.answer.as_ref(), dead.call_name.as_deref()), (Some(&answer), Some("charge")));
    assert_eq!(dead.called_at, Some(called_at));
}

/// It is that of the first call under the key, so that another call does not go on with it.
pub async fn the_name_of_a_call_is_that_of_its_first_fetch<W: World>(world: W) {
    let stage = Stage::new(world).await;
    let row = fetched(&stage).await;
    let other = [FetchFor { call: "mail".into(), ..caller(stage.handler) }];
    let fetched_by_other = async || take_for(&stage, &other, 1).await.remove(0);
    assert_eq!(row.call_name.as_deref(), Some("charge"));
    assert!(stage.store.record_result(&row, &RowResult::Called(failed(Ok(Duration::ZERO)))).await.unwrap());
    let row = fetched_by_other().await;
    assert_eq!(row.call_name.as_deref(), Some("charge"));
    let unused = CallResult { is_unused: true, ..CallResult::snoozed(Duration::ZERO) };
    assert!(stage.store.record_result(&row, &RowResult::Called(unused.clone())).await.unwrap());
    assert_eq!(stage.one_scheduled().await.call_name, None);
    let row = fetched_by_other().await;
    assert_eq!(row.call_name.as_deref(), Some("mail"));
    assert!(stage.store.record_result(&row, &RowResult::Called(failed(Err(Reason::Exhausted)))).await.unwrap());
    assert!(resolve(&stage, &row, &Resolution::CallAgain).await);
    assert_eq!(stage.one_scheduled().await.call_name, None);
}

/// A version without the call has had it for a while.
pub async fn a_row_that_is_left_to_its_call_keeps_the_key_that_it_has<W: World>(world: W) {
    let stage = Stage::new(world).await;
    store(&stage, "a").await;
    assert_eq!(stage.store.release_calls(&[stage.handler]).await.unwrap(), LeftCalls { released: 1, in_doubt: 0 });
    let ordinary = stage.fetch_row(RowKind::Ordinary).await;
    let left = RowResult::LeftToCall { provider_key: Uuid::new_v4() };
    assert!(stage.store.record_result(&ordinary, &left).await.unwrap());
    let row = fetch_row(&stage).await;
    assert!(row.provider_key.is_some() && row.provider_key == ordinary.provider_key, "{row:?}");
}

/// The namespace of the calls of this handler, as a worker gets it at its start.
async fn namespace_of<S: Consumers>(store: &S, handler: HandlerId) -> Uuid {
    assert!(store.mark(&[handler], HandlerMark::Calls).await.unwrap());
    let known = store.handlers(None).await.unwrap();
    known.iter().find(|known| known.id == handler).unwrap().namespace.unwrap()
}

/// The first keys of its messages are derived from it. Two handlers with one would have the same keys for one event.
pub async fn a_handler_keeps_the_namespace_of_its_calls<W: World>(world: W) {
    let stage = Stage::new(world).await;
    let other = register(&stage.store, "billing", "refunds").await;
    let stored = format!("SELECT count(*) FROM {}", stage.world.own("call_namespaces"));
    assert_eq!(stage.world.number(&stored).await, 0, "it would be in each database that is made from a template");
    let namespace = namespace_of(&stage.store, stage.handler).await;
    assert!(!namespace.is_nil());
    for store in [stage.store.clone(), stage.world.store(Setup::default()).await.unwrap()] {
        assert_eq!(namespace_of(&store, stage.handler).await, namespace);
    }
    assert_ne!(namespace_of(&stage.store, other).await, namespace);
    assert_eq!(stage.world.number(&stored).await, 2);
}

/// They are processes that start at the same time.
pub async fn stores_that_ask_at_once_get_one_namespace<W: World>(world: W) {
    let stage = Stage::new(world).await;
    let mut stores = Vec::new();
    for _ in 0..4 {
        stores.push(stage.world.store(Setup::default()).await.unwrap());
    }
    for round in 0..10 {
        let handler = register(&stage.store, "billing", &format!("handler {round}")).await;
        let mut all = futures_util::future::join_all(stores.iter().map(|store| namespace_of(store, handler))).await;
        all.dedup();
        assert_eq!(all.len(), 1, "{all:?}");
    }
}

/// Its number may come again, if somebody resets the table, for another handler.
pub async fn a_namespace_is_deleted_with_its_handler<W: World>(world: W) {
    let stage = Stage::new(world).await;
    let namespace = namespace_of(&stage.store, stage.handler).await;
    stage.world.run(&format!("DELETE FROM {}", stage.world.own("handlers"))).await;
    let stored = format!("SELECT count(*) FROM {}", stage.world.own("call_namespaces"));
    assert_eq!(stage.world.number(&stored).await, 0);
    assert!(!stage.store.mark(&[stage.handler], HandlerMark::Calls).await.unwrap());
    assert!(stage.store.handlers(None).await.unwrap().is_empty());
    let again = register(&stage.store, "billing", "order_paid").await;
    assert_ne!(namespace_of(&stage.store, again).await, namespace);
}
