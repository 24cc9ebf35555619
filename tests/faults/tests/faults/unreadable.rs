//! Messages that RabbitMQ delivers and its client cannot read.

use idem::{DeliveryOrder, Reason};
use idem_faults::{Act, Mode, Order, RabbitMq, Running, Scene, Tuned, orders, until};

use crate::raw::{BAD_ID, Raw};
use crate::returns::Returns;

/// Publishes some unreadable messages among many readable ones.
async fn publish(scene: &Scene<RabbitMq>, each: usize) {
    let mut raw = Raw::connect(&scene.site.address).await;
    for part in 0..3 {
        scene.publish(&orders(&format!("good-{part}"), each, Act::Write)).await;
        raw.publish(&scene.site.name, BAD_ID, format!("bad-{part}").as_bytes()).await;
    }
    scene.publish(&orders("good-3", each, Act::Write)).await;
}

async fn ends(scene: &Scene<RabbitMq>, each: usize, worker: Running) {
    let good = (0..4).flat_map(|part| orders(&format!("good-{part}"), each, Act::Write));
    let dead = scene.ends_with(good, vec![worker]).await;
    let mut payloads: Vec<_> = dead.iter().map(|row| row.delivery.payload().to_vec()).collect();
    payloads.sort();
    assert_eq!(payloads, [b"bad-0", b"bad-1", b"bad-2"]);
    for row in dead {
        assert_eq!(row.reason, Some(Reason::Unrepresentable));
        assert_eq!(row.error, "message id is not UTF-8: its bytes are fffe.");
        let list = row.delivery.headers().get("idem-amqp-properties").unwrap();
        assert!(list.ends_with(&BAD_ID[2..]), "{list:?}");
    }
}

async fn taken_out(mode: Mode, tune: impl FnOnce(Tuned<idem::rabbitmq::Queue>) -> Tuned<idem::rabbitmq::Queue>) {
    crate::everywhere::run::<RabbitMq>(mode, async |scene| {
        publish(scene, 50).await;
        let returns = Returns::default();
        let worker =
            scene.start_from(scene.site.source().await, |worker| tune(returns.watch(&scene.world.journal, worker)));
        ends(scene, 50, worker).await;
        assert!(returns.most() <= 1, "an innocent message was returned more than once");
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn is_a_dead_letter_and_its_neighbours_run_once() {
    taken_out(Mode::Direct, |worker| worker).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn is_a_dead_letter_and_its_neighbours_run_once_in_batches() {
    taken_out(Mode::Batch, |worker| worker.batch(50)).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn is_a_dead_letter_and_its_neighbours_run_once_from_the_inbox() {
    taken_out(Mode::Inbox, |worker| worker).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn is_a_dead_letter_and_its_neighbours_keep_their_order() {
    crate::everywhere::run::<RabbitMq>(Mode::Direct, async |scene| {
        // With one consumer at a time.
        assert!(scene.site.forget().await);
        Raw::connect(&scene.site.address).await.declare_single_active(&scene.site.name).await;
        publish(scene, 20).await;
        let returns = Returns::default();
        let worker = scene.start_from(scene.site.source().await, |worker| {
            returns.watch(&scene.world.journal, worker.order(DeliveryOrder::Queue))
        });
        ends(scene, 20, worker).await;
        assert!(returns.most() <= 1, "an innocent message was returned more than once");
        let ran: Vec<_> = scene.world.stage.runs().into_iter().map(|run| run.id).collect();
        let published: Vec<_> = (0..4).flat_map(|part| (0..20).map(move |n| format!("good-{part}-{n}"))).collect();
        assert_eq!(ran, published);
    })
    .await;
}

/// One message at a time is taken after it, so that one which the database refuses keeps all others back. The worker says
/// so, and goes on by itself. To release the message would not help: the queue delivers it again before all others.
#[tokio::test(flavor = "multi_thread")]
async fn makes_the_worker_unready_while_the_one_message_behind_it_is_refused() {
    crate::everywhere::run::<RabbitMq>(Mode::Direct, async |scene| {
        let run = async |sql| sqlx::raw_sql(scene.world.stage.sql(sql)).execute(&scene.world.pool).await.unwrap();
        let worker = scene.start_from(scene.site.source().await, |worker| worker);
        until("the worker is ready", || async { worker.health.is_ready() }).await;
        run("CREATE FUNCTION {schema}.refuse() RETURNS trigger LANGUAGE plpgsql AS
                 $$ BEGIN RAISE EXCEPTION 'refused by a test' USING ERRCODE = '23514'; END $$;
             CREATE TRIGGER refuse BEFORE INSERT ON {schema}.processed_messages FOR EACH ROW
                 WHEN (NEW.key = 'refused') EXECUTE FUNCTION {schema}.refuse()")
        .await;
        let mut raw = Raw::connect(&scene.site.address).await;
        raw.publish(&scene.site.name, BAD_ID, b"bad").await;
        until("it is a dead letter", || async { scene.world.rows(&scene.store).await.len() == 1 }).await;
        let good = orders("good", 5, Act::Write);
        scene.publish(&[Order::new("refused", Act::Write)]).await;
        scene.publish(&good).await;
        until("the worker is not ready", || async { !worker.health.is_ready() && worker.health.broker() }).await;
        assert_eq!(scene.site.left().await, 5);

        run("DROP TRIGGER refuse ON {schema}.processed_messages").await;
        scene.effects(6).await;
        until("the worker is ready again", || async { worker.health.is_ready() }).await;
        let all = good.into_iter().chain([Order::new("refused", Act::Write)]);
        let dead = scene.ends_with(all, vec![worker]).await;
        assert_eq!(dead.len(), 1, "{dead:?}");
    })
    .await;
}
