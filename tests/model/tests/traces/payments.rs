//! A handler that pays for an order first, at a fake provider.

use std::collections::HashSet;
use std::marker::PhantomData;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use idem_conformance::store::World;
use idem_core::{BoxError, CallError, Called, CalledBy, External, Found, Handler, OutboundKey, State};
use idem_test::harness::TracedCall;
use idem_test::provider::Provider;
use serde::{Deserialize, Serialize};

/// An order. Its effect is its id and the number of the charge.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct Bill {
    pub(crate) id: String,
}

/// The provider, the table of the effects, and the orders whose first completion fails.
#[derive(Clone)]
pub(crate) struct Till {
    pub(crate) provider: Provider,
    effects: String,
    failing: Arc<Mutex<HashSet<String>>>,
}

impl Till {
    pub(crate) fn new(effects: String) -> Self {
        Self { provider: Provider::new(), effects, failing: Arc::default() }
    }

    /// Lets the first completion of this order fail.
    pub(crate) fn fails_once(&self, id: &str) {
        self.failing.lock().unwrap().insert(id.to_owned());
    }
}

/// The payment. The provider knows keys if it is `KEYED`. It can be asked, and cannot tell what became of the order `unknown`.
#[derive(Debug)]
pub(crate) struct Pay<const KEYED: bool>;

impl<const KEYED: bool> External for Pay<KEYED> {
    const NAME: &'static str = "pay";
    const KEY_LIFE: Option<Duration> = if KEYED { Some(Duration::from_secs(24 * 3600)) } else { None };
    // A call in doubt is waited for that long, and ten seconds.
    const TIMEOUT: Duration = Duration::from_secs(2);
    const RECONCILES: bool = true;
    const ASK_AFTER: Duration = Duration::from_secs(1);

    type Message = Bill;
    type Params = (OutboundKey, State<Till>);
    type Answer = String;

    async fn call(bill: &Bill, (key, State(till)): Self::Params) -> Result<String, CallError> {
        let reply = till.provider.charge(KEYED.then_some(key.as_str()), &bill.id).await?;
        match reply.status {
            200 => Ok(reply.body),
            409 => Err("in progress".into()),
            429 => Err(CallError::not_done(reply.body)),
            status => Err(CallError::permanent(format!("the status {status}"))),
        }
    }

    async fn reconcile(bill: &Bill, (key, State(till)): Self::Params) -> Result<Found<String>, BoxError> {
        if bill.id == "unknown" {
            return Ok(Found::Unknown);
        }
        let ledger = till.provider.ledger();
        let charge = match KEYED {
            true => ledger.into_iter().find(|charge| charge.key.as_deref() == Some(key.as_str())),
            false => ledger.into_iter().find(|charge| charge.body == bill.id),
        };
        Ok(charge.map_or(Found::NotThere, |charge| Found::There(charge.number.to_string())))
    }
}

/// The handler: one effect, with the number of the charge.
pub(crate) struct Pays<W, const KEYED: bool>(PhantomData<fn() -> W>);

impl<W: World, const KEYED: bool> Handler for Pays<W, KEYED> {
    const NAME: &'static str = "pays";

    type Params = (State<Till>, CalledBy<TracedCall<Pay<KEYED>>>);

    idem_conformance::keyed_by_id!(Bill, W::Connection);

    async fn handle(bill: Bill, (State(till), called): Self::Params, tx: &mut W::Connection) -> Result<(), BoxError> {
        let Called(number) = called.into_called();
        W::execute(tx, &format!("INSERT INTO {} (name) VALUES ('{} {number}')", till.effects, bill.id)).await?;
        let fails = till.failing.lock().unwrap().remove(&bill.id);
        if fails { Err("failed".into()) } else { Ok(()) }
    }
}
