//! The interface between a worker and a broker, for authors of adapters: [`Source`] and [`Acker`], and the types that they
//! exchange with a worker.

pub use idem_core::{
    Acker, BackgroundTasks, BoxError, Delivery, DeliveryOrder, Error, Headers, Lag, Properties, ReplayWindow, Settled,
    Source, SubscribeOptions,
};
