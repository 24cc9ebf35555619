//! The steps of an external call.

use idem_core::{BoxError, Extract, Extraction, OutboundKey, Param};

use super::process::{ProcessTrace, Step};
use super::request::Request;
use super::subject::Subject;

/// The process that makes a call, its message and its key, among the parameters of the call. Outside of a traced process, it
/// writes nothing.
#[derive(Debug)]
pub struct CallOf {
    process: Option<ProcessTrace>,
    of: Subject,
    key: OutboundKey,
}

impl Param for CallOf {}

impl<S> Extract<S> for CallOf {
    fn extract(from: &Extraction<'_, S>) -> Result<Self, BoxError> {
        let key = <OutboundKey as Extract<S>>::extract(from)?;
        Ok(Self { process: ProcessTrace::here(), of: Subject::of_key(from.key), key })
    }
}

impl CallOf {
    /// Writes that the request is sent now. If it is dropped, the call has failed, or was given up. `keyed`: the provider knows
    /// keys; `asks`: it can be asked what became of a call.
    pub(crate) async fn sends(self, keyed: bool, asks: bool) -> Request {
        let Self { process, of, key } = self;
        let yes = |is: bool| if is { "yes" } else { "no" };
        let more = format!(" keyed={} asks={}", yes(keyed), yes(asks));
        Request::send(process, ("sent", of), (format!("key={key}"), &more), "call-failed").await
    }

    /// Writes that the provider is asked now.
    pub(crate) async fn asks(self) -> Asked {
        let Self { process, of, key } = self;
        let Some(process) = process else { return Asked(None) };
        process.alive().await;
        let values = format!("key={key}");
        let step = process.begin("asked", of.clone(), values.clone());
        Asked(Some((step, of, values)))
    }
}

/// A question what became of a call. If it is dropped, it has no reply.
#[derive(Debug)]
pub(crate) struct Asked(Option<(Step, Subject, String)>);

impl Asked {
    /// Writes the reply.
    pub(crate) fn replied(self, reply: &'static str) {
        let Some((step, of, values)) = self.0 else { return };
        step.also("asked", of, format!("{values} reply={reply}"));
        step.nothing();
    }
}
