//! Handlers whose external calls cannot be made, which are refused when the worker starts.

use std::marker::PhantomData;
use std::time::Duration;

use idem_core::{Batch, BoxError, CallError, CalledBy, External, Handler, Input, OutboundKey, Outbox, Param, State};

use idem_conformance::store::World;

use super::desk::Desk;
use super::line::Line;
use super::orders::Order;
use super::settings::Settings;

/// A call whose parameters are `P`, under a key that lives for so many seconds.
struct Call<P, const LIFE: u64>(Of<P>);

impl<P: Param, const LIFE: u64> External for Call<P, LIFE> {
    const NAME: &'static str = if LIFE == NAMED { "call (at most once)" } else { "call" };
    const KEY_LIFE: Option<Duration> = Some(Duration::from_secs(LIFE));
    const TIMEOUT: Duration = Duration::from_secs(if LIFE == YEARS { 100_000 } else { 20 });

    type Message = Order;
    type Params = P;
    type Answer = ();

    async fn call(_: &Order, _: P) -> Result<(), CallError> {
        Ok(())
    }
}

const YEARS: u64 = 1_000_000_000;

/// That of a call whose name stands for another kind of call.
const NAMED: u64 = 90_000;

/// Names types without containing values of them.
type Of<T> = PhantomData<fn() -> T>;

/// A handler of this input with these parameters.
struct Calls<W, I, P, const NATURAL: bool>(Of<(W, I, P)>);

impl<W: World, I: Input<Order>, P: Param, const NATURAL: bool> Handler for Calls<W, I, P, NATURAL> {
    const NAME: &'static str = "calls";
    const NATURAL: bool = NATURAL;

    type Params = P;

    idem_conformance::keyed_by_id!(Order, W::Connection, I);

    async fn handle(_: I, _: P, _: &mut W::Connection) -> Result<(), BoxError> {
        Ok(())
    }
}

type Day<P = OutboundKey> = CalledBy<Call<P, 86_400>>;

/// The error with which a worker with this handler refuses to start.
async fn refused<W: World, H>(line: &Line<W>) -> String
where
    H: Handler<Message = Order, Connection = W::Connection>,
    H::Params: idem_core::Extract<Desk>,
{
    line.run_until_stopped(line.worker().handler::<H>(), Settings::default()).refused().await
}

/// Each error names the mistake, and nothing has run.
pub async fn a_call_that_cannot_be_made_refuses_the_start<W: World>(world: W) {
    let line = Line::new(world).await;
    line.publish(Order::ok("a"));
    let natural = refused::<W, Calls<W, Order, Day, true>>(&line).await;
    let batch = refused::<W, Calls<W, Batch<Order>, Day, false>>(&line).await;
    let short = refused::<W, Calls<W, Order, CalledBy<Call<OutboundKey, 33>>, false>>(&line).await;
    let staging = refused::<W, Calls<W, Order, Day<(OutboundKey, Outbox)>, false>>(&line).await;
    let keyless = refused::<W, Calls<W, Order, Day<State<Desk>>, false>>(&line).await;
    let long = refused::<W, Calls<W, Order, CalledBy<Call<OutboundKey, YEARS>>, false>>(&line).await;
    let named = refused::<W, Calls<W, Order, CalledBy<Call<OutboundKey, NAMED>>, false>>(&line).await;
    let two = refused::<W, Calls<W, Order, (Day, Day), false>>(&line).await;
    let without = refused::<W, Calls<W, Order, OutboundKey, false>>(&line).await;
    let says = [
        (natural, "Remove `natural`"),
        (batch, "let it take one message"),
        (short, "lower the timeout"),
        (staging, "a call has no transaction"),
        (keyless, "takes no `OutboundKey`"),
        (long, "ends in it leaves"),
        (named, "Give the call another name"),
        (two, "makes 2 calls"),
        (without, "name the call"),
    ];
    for (error, part) in says {
        assert!(error.contains("\"calls\"") && error.contains(part), "{part}: {error}");
    }
    assert_eq!(line.queue.counts().acks, 0);
}
