//! The handlers of a worker.

use std::marker::PhantomData;
use std::sync::Arc;

use crate::handler_options::HandlerLimits;
use crate::registry::{Bound, Registered};
use crate::{Codec, Extract, Handler, HandlerCodec, HandlerOptions, HasConnection, Source, Store};

use super::builder::{WithHandlers, Worker};

impl<S: Store, Src: Source, St, C, Stage> Worker<S, Src, St, C, Stage> {
    /// Adds a handler, with the worker's timeout, retry policy and codec; [`handler_with`](Self::handler_with) gives it
    /// its own. If several handlers share the queue, all but one must name their event type, and each its own;
    /// [`fan_out`](Self::fan_out) lets several handle the same.
    ///
    /// ```
    /// # use idem_core::{Worker, WithHandlers, Json, Store, Source, Handler, HasConnection};
    /// # struct App;
    /// // The type of a worker that is ready to run, for a function that returns it.
    /// fn billing<S, Src, OrderPaid>(store: S, orders: Src) -> Worker<S, Src, App, Json, WithHandlers>
    /// where
    ///     S: Store + HasConnection<OrderPaid::Connection>,
    ///     Src: Source,
    ///     OrderPaid: Handler<Params = (), Message: serde::de::DeserializeOwned>,
    /// {
    ///     Worker::new("billing", store, orders).state(App).handler::<OrderPaid>()
    /// }
    /// ```
    pub fn handler<H>(self) -> Worker<S, Src, St, C, WithHandlers>
    where
        H: Handler,
        S: HasConnection<H::Connection>,
        H::Params: Extract<St>,
        St: Send + Sync + 'static,
        C: Codec<H::Message>,
    {
        self.handler_with::<H>(HandlerOptions::new())
    }

    /// Adds a handler with its own options: a timeout, a retry policy or a codec. What they do not set is the worker's,
    /// in whatever order it is given.
    ///
    /// ```no_run
    /// # use std::time::Duration;
    /// # use idem_core::{Worker, HandlerOptions, Store, Source, Handler, HasConnection};
    /// # fn add<S: Store + HasConnection<Report::Connection> + HasConnection<Paid::Connection>, Paid: Handler<Params = (), Message: serde::de::DeserializeOwned>, Report: Handler<Params = (), Message: serde::de::DeserializeOwned>>(store: S, orders: impl Source) {
    /// Worker::new("billing", store, orders)
    ///     .handler::<Paid>()
    ///     .handler_with::<Report>(HandlerOptions::new().timeout(Duration::from_secs(300)));
    /// # }
    /// ```
    pub fn handler_with<H>(
        self,
        options: HandlerOptions<impl HandlerCodec<C, H::Message>>,
    ) -> Worker<S, Src, St, C, WithHandlers>
    where
        H: Handler,
        S: HasConnection<H::Connection>,
        H::Params: Extract<St>,
        St: Send + Sync + 'static,
    {
        let Self { consumer, store, source, state, codec, mut handlers, settings, health, gate, .. } = self;
        let (chosen, limits) = options.into_parts();
        handlers.push(bound::<H, S, St, _>(state.clone(), chosen.or_of_worker(&codec), limits));
        Worker { consumer, store, source, state, codec, handlers, settings, health, gate, stage: PhantomData }
    }
}

fn bound<H, S, St, C>(state: Arc<St>, codec: Arc<C>, limits: HandlerLimits) -> Arc<dyn Registered<S>>
where
    H: Handler,
    S: Store + HasConnection<H::Connection>,
    H::Params: Extract<St>,
    St: Send + Sync + 'static,
    C: Codec<H::Message>,
{
    Arc::new(Bound::<H, St, C> { state, codec, limits, handler: PhantomData })
}
