//! COMMIT without an answer.

use idem::Outcome;
use idem_faults::{Act, Order, World};
use sqlx::Executor;

#[tokio::test(flavor = "multi_thread")]
async fn a_commit_without_an_answer_is_asked_again() {
    let Some(world) = World::new().await else { return };
    // The first COMMIT that has an effect to write ends its own connection. A sequence counts also what is rolled back.
    let trigger = "CREATE SEQUENCE {schema}.commits;
        CREATE FUNCTION {schema}.die() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
            IF nextval('{schema}.commits') = 1 THEN PERFORM pg_terminate_backend(pg_backend_pid()); END IF;
            RETURN NULL;
        END $$;
        CREATE CONSTRAINT TRIGGER die AFTER INSERT ON {schema}.effects DEFERRABLE INITIALLY DEFERRED
            FOR EACH ROW EXECUTE FUNCTION {schema}.die()";
    world.pool.execute(sqlx::raw_sql(world.stage.sql(trigger))).await.unwrap();
    let store = world.store().await;
    let worker = world.start(&store, world.broker.queue("orders"), |worker| worker);
    world.publish(&Order::new("unanswered", Act::Write));
    assert_eq!(world.journal.end_of("unanswered").await, Outcome::Processed);
    assert_eq!(world.effects("unanswered").await, [1], "one effect, and no attempt was charged");
    assert_eq!(world.stage.attempts("unanswered"), [1, 1], "the handler was called two times");
    worker.stop().await.unwrap();
    world.end().await;
}
