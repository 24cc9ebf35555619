//! What operators, other programs and handlers leave in Redis.

use std::time::Duration;

use idem_core::Fingerprint;
use idem_core::key_value::{Acquired, Completed, Held, KeyValueStore};
use idem_core::store::StoreError;
use idem_redis::RedisWrites;
use uuid::Uuid;

use crate::common::{self, World, id, record, unique};

const LEASE: Duration = Duration::from_secs(60);
const KEEP: Duration = Duration::from_secs(600);

fn print() -> Fingerprint {
    Fingerprint::of(b"{}")
}

async fn acquire(world: &World, id: &idem_core::key_value::Id, token: Uuid) -> Result<Acquired, StoreError> {
    world.redis.store().acquire(id, print(), token, LEASE, KEEP).await
}

async fn run<T: redis::FromRedisValue>(world: &World, command: &redis::Cmd) -> T {
    command.query_async(&mut world.client.clone()).await.unwrap()
}

#[tokio::test]
async fn a_key_of_another_program_refuses_its_message_and_stays() {
    let Some(world) = common::world().await else { return };
    for (command, value) in [("SET", &["theirs"][..]), ("HSET", &["state", "theirs"]), ("LPUSH", &["theirs"])] {
        let id = id();
        run::<redis::Value>(&world, redis::cmd(command).arg(record(&id)).arg(value)).await;
        let refused = acquire(&world, &id, Uuid::new_v4()).await;
        assert!(matches!(refused, Err(StoreError::Message(_))), "{command}: {refused:?}");
        let dump: Vec<u8> = run(&world, redis::cmd("DUMP").arg(record(&id))).await;
        assert!(String::from_utf8_lossy(&dump).contains("theirs"), "{command}");
    }
}

#[tokio::test]
async fn scripts_that_an_operator_has_removed_are_loaded_again() {
    let Some(world) = common::world().await else { return };
    let (id, token) = (id(), Uuid::new_v4());
    for _ in 0..2 {
        run::<redis::Value>(&world, redis::cmd("SCRIPT").arg("FLUSH")).await;
        assert!(matches!(acquire(&world, &id, token).await, Ok(Acquired::New { starts: 1, .. })));
        run::<redis::Value>(&world, redis::cmd("SCRIPT").arg("FLUSH")).await;
        assert_eq!(world.redis.store().renew(&id, token, LEASE).await.unwrap(), Held::Yes);
    }
}

#[tokio::test]
async fn each_command_writes_what_its_name_says() {
    let Some(world) = common::world().await else { return };
    let (id, token, name) = (id(), Uuid::new_v4(), unique("k"));
    let key = |kind: &str| format!("{name} \n{kind}");
    let mut writes = RedisWrites::default();
    writes
        .set(key("text"), b"\0\xff")
        .append(key("text"), "!")
        .set_for(key("short"), "x", LEASE)
        .set(key("gone"), "x")
        .del(key("gone"))
        .l_push(key("gone"), "now a list")
        .incr_by(key("number"), 7)
        .decr_by(key("number"), 9)
        .h_set(key("hash"), "a", "1")
        .h_incr_by(key("hash"), "a", 4)
        .h_set(key("hash"), "b", "1")
        .h_del(key("hash"), "b")
        .s_add(key("set"), "m")
        .s_add(key("set"), "n")
        .s_rem(key("set"), "n")
        .z_add(key("zset"), "m", 1.5)
        .z_incr_by(key("zset"), "m", -3.25)
        .z_add(key("zset"), "n", 1.0)
        .z_rem(key("zset"), "n")
        .l_push(key("list"), "1")
        .r_push(key("list"), "2")
        .expire(key("list"), LEASE);
    acquire(&world, &id, token).await.unwrap();
    assert_eq!(world.redis.store().complete(&id, token, KEEP, &writes).await.unwrap(), Completed::Yes);
    assert_eq!(run::<Vec<u8>>(&world, redis::cmd("GET").arg(key("text"))).await, b"\0\xff!");
    assert_eq!(run::<i64>(&world, redis::cmd("GET").arg(key("number"))).await, -2);
    assert_eq!(run::<Vec<String>>(&world, redis::cmd("HGETALL").arg(key("hash"))).await, ["a", "5"]);
    assert_eq!(run::<Vec<String>>(&world, redis::cmd("SMEMBERS").arg(key("set"))).await, ["m"]);
    let zset = redis::cmd("ZRANGE").arg(key("zset")).arg(0).arg(-1).arg("WITHSCORES").clone();
    assert_eq!(run::<Vec<String>>(&world, &zset).await, ["m", "-1.75"]);
    let list = redis::cmd("LRANGE").arg(key("list")).arg(0).arg(-1).clone();
    assert_eq!(run::<Vec<String>>(&world, &list).await, ["1", "2"]);
    assert_eq!(run::<String>(&world, redis::cmd("TYPE").arg(key("gone"))).await, "list");
    for ends in ["short", "list"] {
        let left: i64 = run(&world, redis::cmd("PTTL").arg(key(ends))).await;
        assert!(left > 30_000, "{ends}: {left}");
    }
}

#[tokio::test]
async fn a_key_of_another_type_is_found_before_anything_is_written() {
    let Some(world) = common::world().await else { return };
    let (id, token, name) = (id(), Uuid::new_v4(), unique("k"));
    run::<redis::Value>(&world, redis::cmd("LPUSH").arg(format!("{name}-list")).arg("x")).await;
    acquire(&world, &id, token).await.unwrap();
    let mut writes = RedisWrites::default();
    writes.incr_by(format!("{name}-number"), 1).incr_by(format!("{name}-list"), 1);
    let refused = world.redis.store().complete(&id, token, KEEP, &writes).await.unwrap();
    let Completed::Refused(why) = refused else { panic!("{refused:?}") };
    assert!(why.contains("INCRBY") && why.contains("list") && why.contains(&name), "{why}");
    assert!(!run::<bool>(&world, redis::cmd("EXISTS").arg(format!("{name}-number"))).await);
}

#[tokio::test]
async fn a_first_command_that_fails_leaves_nothing_and_the_lease() {
    let Some(world) = common::world().await else { return };
    let (id, token, key) = (id(), Uuid::new_v4(), unique("k"));
    run::<redis::Value>(&world, redis::cmd("SET").arg(&key).arg("no number")).await;
    acquire(&world, &id, token).await.unwrap();
    let mut writes = RedisWrites::default();
    writes.incr_by(&key, 1).incr_by(unique("k"), 1);
    let refused = world.redis.store().complete(&id, token, KEEP, &writes).await.unwrap();
    assert!(matches!(refused, Completed::Refused(_)), "{refused:?}");
    assert_eq!(world.redis.store().renew(&id, token, LEASE).await.unwrap(), Held::Yes);
}

#[tokio::test]
async fn writes_that_can_never_be_applied_are_refused_without_a_round_trip() {
    let Some(world) = common::world().await else { return };
    let (id, token) = (id(), Uuid::new_v4());
    acquire(&world, &id, token).await.unwrap();
    let own = RedisWrites::default().set("idem:dead", "x").clone();
    let score = RedisWrites::default().z_add("z", "m", f64::NAN).clone();
    let mut many = RedisWrites::default();
    for _ in 0..2000 {
        many.incr_by("n", 1);
    }
    for writes in [own, score, many] {
        let refused = world.redis.store().complete(&id, token, KEEP, &writes).await.unwrap();
        assert!(matches!(refused, Completed::Refused(_)), "{refused:?}");
    }
}

#[tokio::test]
async fn a_record_has_the_retention_and_a_readable_state() {
    let Some(world) = common::world().await else { return };
    let (id, token) = (id(), Uuid::new_v4());
    acquire(&world, &id, token).await.unwrap();
    let left: i64 = run(&world, redis::cmd("PTTL").arg(record(&id))).await;
    assert!(left > 500_000, "the record outlives its lease: {left}");
    world.redis.store().complete(&id, token, 2 * KEEP, &RedisWrites::default()).await.unwrap();
    let left: i64 = run(&world, redis::cmd("PTTL").arg(record(&id))).await;
    assert!(left > 1_100_000, "anew at completion: {left}");
    let state: String = run(&world, redis::cmd("HGET").arg(record(&id)).arg("state")).await;
    assert_eq!(state, "done");
}
