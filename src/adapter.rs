//! The interface between a worker and a broker, for authors of adapters: [`Source`] and [`Acker`], and the types that they
//! exchange with a worker; and [`Sink`], to which a relay publishes.

pub use idem_core::{
    Acker, BackgroundTasks, BoxError, Callback, Delivery, DeliveryOrder, Error, Headers, Lag, Outgoing, Properties,
    ReplayWindow, Settled, Sink, SinkConnection, SinkError, Source, StagedMessage, SubscribeOptions,
};
