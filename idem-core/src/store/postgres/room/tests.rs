use super::*;

#[tokio::test]
async fn idle_connections_count_and_are_closed_for_the_other_use() {
    let room = Room::new(3);
    for name in ["one", "two"] {
        let (slot, idle) = room.enter(Use::Lent, false).await.unwrap();
        assert_eq!(idle, None);
        if name == "two" {
            slot.put_back(Use::Lent, name);
        } else {
            let (other, _) = room.enter(Use::Lent, false).await.unwrap();
            slot.put_back(Use::Lent, "one");
            drop(other);
            let _ = room.enter(Use::Lent, false).await.unwrap();
        }
    }
    let (first, idle) = room.enter(Use::Own, false).await.unwrap();
    assert_eq!(idle, None);
    first.put_back(Use::Own, "own");
    let (second, idle) = room.enter(Use::Own, false).await.unwrap();
    assert_eq!(idle, Some("own"));
    let (_third, idle) = room.enter(Use::Lent, false).await.unwrap();
    assert_eq!(idle, Some("two"));
    drop(second);
}

/// One value for own statements is in use, and the others are idle and lent.
async fn nearly_full() -> (Room<&'static str>, Slot<&'static str>) {
    let room = Room::new(4);
    let (own, _) = room.enter(Use::Own, false).await.unwrap();
    let mut slots = Vec::new();
    for _ in 0..3 {
        slots.push(room.enter(Use::Lent, false).await.unwrap().0);
    }
    slots.into_iter().for_each(|slot| slot.put_back(Use::Lent, "lent"));
    (room, own)
}

#[tokio::test(start_paused = true)]
async fn a_value_that_comes_back_soon_spares_an_exchange() {
    let (room, own) = nearly_full().await;
    let began = Instant::now();
    let next = async { room.enter(Use::Own, false).await.unwrap() };
    let back = async { own.put_back(Use::Own, "own") };
    let ((_slot, idle), ()) = tokio::join!(next, back);
    assert_eq!((idle, room.0.state().lent.len()), (Some("own"), 3));
    assert_eq!(began.elapsed(), Duration::ZERO, "nothing has told it");
}

#[tokio::test(start_paused = true)]
async fn values_in_use_keep_an_exchange_waiting_for_a_moment_only() {
    let (room, _own) = nearly_full().await;
    let began = Instant::now();
    let (_second, idle) = room.enter(Use::Own, false).await.unwrap();
    assert_eq!((idle, room.0.state().lent.len()), (None, 2));
    assert_eq!(began.elapsed().as_millis() / 5, SOON.as_millis() / 5);
    let (_third, _) = room.enter(Use::Own, false).await.unwrap();
    assert_eq!((room.0.state().lent.len(), began.elapsed() >= SOON + EXCHANGE), (1, true));
    assert!(began.elapsed() < SOON + EXCHANGE + SOON);
    let (_ping, _) = room.enter(Use::Own, true).await.unwrap();
    assert!(room.0.state().lent.is_empty() && began.elapsed() < SOON + EXCHANGE + SOON, "a ping waits for nobody");
}

#[tokio::test(start_paused = true)]
async fn an_exchange_waits_for_nothing_where_no_value_can_come_back() {
    let room = Room::new(1);
    let began = Instant::now();
    for of in [Use::Lent, Use::Own, Use::Lent] {
        let (slot, idle) = room.enter(of, false).await.unwrap();
        let state = room.0.state();
        assert_eq!((idle, state.lent.len() + state.own.len()), (None, 0));
        drop(state);
        slot.put_back(of, "idle");
    }
    assert_eq!(began.elapsed(), Duration::ZERO);
}

#[tokio::test(start_paused = true)]
async fn one_that_gives_up_waiting_leaves_nothing_behind() {
    let (room, own) = nearly_full().await;
    let late = tokio::time::timeout(SOON / 2, room.enter(Use::Own, false)).await;
    assert!(late.is_err());
    assert_eq!((room.0.permits.available_permits(), room.0.state().used_own), (3, 1));
    own.put_back(Use::Own, "own");
    assert_eq!(room.enter(Use::Own, false).await.unwrap().1, Some("own"));
}

#[tokio::test(start_paused = true)]
async fn a_handler_does_not_get_the_slot_in_which_an_own_statement_waits() {
    let (room, _own) = nearly_full().await;
    let _first = room.enter(Use::Lent, false).await.unwrap();
    let _second = room.enter(Use::Lent, false).await.unwrap();
    let own = tokio::time::timeout(EXCHANGE, room.enter(Use::Own, false));
    let lent = tokio::time::timeout(EXCHANGE, room.enter(Use::Lent, false));
    let (own, lent) = tokio::join!(own, lent);
    assert!(own.is_ok() && lent.is_err());
}
